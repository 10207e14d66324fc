"""Snapshots: whether a branch continues exactly as its origin, and its cost."""
