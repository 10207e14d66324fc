"""Snapshots as users hold them, and their files."""
