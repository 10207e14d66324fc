"""Views: which environments somebody looks at, and the picture of these.

Pictures are made small by leaving pixels out, which takes a tenth of the time of averaging them.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from agym.tools.video.tiling import GAP, arrange, tile

# So many environments are shown at once, in so many pixels at most (width, height).
TILES = 64
FITTING = (1280, 800)

QUALITY = 80


class View(NamedTuple):
    """What somebody looks at.

    Attributes:
        env: One environment, which is shown alone; ``None`` for many.
        page: Which of the pages of many.
    """

    env: int | None = None
    page: int = 0

    def ids(self, num_envs: int) -> range:
        """The environments that are seen."""
        return self.page_ids(num_envs) if self.env is None else range(self.env, self.env + 1)

    def page_ids(self, num_envs: int) -> range:
        """Those of the page of many, to which one that is seen alone goes back."""
        start = self.page * TILES
        return range(start, min(num_envs, start + TILES))

    def reach(self, num_envs: int) -> set[int]:
        """Those that are seen now, or one click away."""
        return {*self.page_ids(num_envs), *self.ids(num_envs)}


def pages(num_envs: int) -> int:
    """How many pages there are."""
    return -(-num_envs // TILES)


def paint(ids: range, frames: Mapping[int, Any]) -> bytes:
    """Make a picture, as a message to the browser.

    Returns:
        The length of the header in four bytes (little-endian), the header in JSON (``ids``,
        ``columns``, ``width`` and ``height`` of a place, ``gap``), and a JPEG.
    """
    shown = [frames.get(i) for i in ids]
    shapes = [frame.shape[:2] for frame in shown if _is_picture(frame)]
    columns = None
    if shapes:
        height, width = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
        columns, scale = arrange(len(shown), width, height, FITTING)
        stride = math.ceil(1 / min(1.0, scale))
        shown = [frame[::stride, ::stride] if _is_picture(frame) else frame for frame in shown]
    # What is no plain picture, such as a text, has a size of its own.
    tiling = tile(shown, columns, scale=1.0 if len(shapes) == len(shown) else None)
    header = {
        "ids": [ids.start, ids.stop],
        "columns": tiling.columns,
        "width": tiling.width,
        "height": tiling.height,
        "gap": GAP,
    }
    told = json.dumps(header).encode()
    stream = io.BytesIO()
    stream.write(len(told).to_bytes(4, "little"))
    stream.write(told)
    tiling.image.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def last(frame: Any) -> Any:
    """What is shown of a list of frames."""
    return (frame[-1] if frame else None) if isinstance(frame, list | tuple) else frame


def _is_picture(frame: Any) -> TypeGuard[np.ndarray[Any, Any]]:
    return isinstance(frame, np.ndarray) and frame.ndim >= 2 and 0 not in frame.shape
