"""Renders of many environments as one picture or as a video."""

from agym.tools.video.tiling import mosaic

__all__ = ["mosaic"]
