"""Environments that wait, backward passes, and slow steps."""
