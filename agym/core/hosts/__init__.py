"""Hosts run environments; no other code calls an environment that is in use."""
