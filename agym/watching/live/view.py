"""Views: the environments that a viewer shows, and the picture of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from agym.watching.video.tiling import GAP, tile

# Number of environments on a page, and the maximum size of their picture (width, height).
TILES = 64
FITTING = (1280, 800)

QUALITY = 80


class View(NamedTuple):
    """The environments that a viewer shows: one, or a page of many if ``env`` is ``None``."""

    env: int | None = None
    page: int = 0

    def ids(self, num_envs: int) -> range:
        """Return the ids of the environments in view."""
        return self.page_ids(num_envs) if self.env is None else range(self.env, self.env + 1)

    def page_ids(self, num_envs: int) -> range:
        """Return the ids of the page, even while one environment is shown alone."""
        start = self.page * TILES
        return range(start, min(num_envs, start + TILES))

    def reach(self, num_envs: int) -> set[int]:
        """Return the ids that are in view or one click away."""
        return {*self.page_ids(num_envs), *self.ids(num_envs)}


def pages(num_envs: int) -> int:
    """Return the number of pages."""
    return -(-num_envs // TILES)


def paint(ids: range, frames: Mapping[int, Any], step: int) -> bytes:
    """Return a picture as a message to the browser.

    Returns:
        The length of the header in four bytes (little-endian), the header in JSON (``ids``,
        ``columns``, ``width`` and ``height`` of a tile, ``gap``, ``step``), and a JPEG.
    """
    tiling = tile([frames.get(i) for i in ids], None, False, None, FITTING)
    header = {
        "ids": [ids.start, ids.stop],
        "columns": tiling.columns,
        "width": tiling.width,
        "height": tiling.height,
        "gap": GAP,
        "step": step,
    }
    encoded = json.dumps(header).encode()
    stream = io.BytesIO()
    stream.write(len(encoded).to_bytes(4, "little"))
    stream.write(encoded)
    tiling.image.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def last(frame: Any) -> Any:
    """Return the last of a list of frames, or the frame itself."""
    return (frame[-1] if frame else None) if isinstance(frame, list | tuple) else frame
