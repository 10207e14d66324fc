"""Infos: which are returned, and how they are laid out in the slot table."""
