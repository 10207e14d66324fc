"""Replays the failure that a capsule recorded."""
