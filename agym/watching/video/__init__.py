"""Renders of many environments as one picture or as a video."""
