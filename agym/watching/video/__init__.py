"""Renders of many environments as one picture or as a video."""

from agym.watching.video.tiling import mosaic

__all__ = ["mosaic"]
