"""Snapshots: whether a branch continues as its origin would have, and what it costs."""
