"""Pictures of many environments: one of all, or a video."""

from agym.tools.video.tiling import mosaic

__all__ = ["mosaic"]
