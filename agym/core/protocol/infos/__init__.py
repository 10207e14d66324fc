"""Infos: which ones are returned, and their layout in the slot table."""
