"""Pictures of many environments: one of all, or a video."""

from agym.render.tiling import mosaic

__all__ = ["mosaic"]
