"""Hooks, which are called while steps are under way."""
