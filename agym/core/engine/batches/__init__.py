"""Builds the caller's results from rows of the slot table."""
