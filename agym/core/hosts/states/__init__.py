"""Snapshots: the state of an environment in the middle of an episode, as a value."""
