"""Actors of Ray against hand-written loops."""
