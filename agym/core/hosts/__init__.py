"""Hosts run environments; no other code calls those that are in use."""
