"""Faces: what users hold; thin, since the engine decides everything."""
