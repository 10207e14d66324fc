"""Mosaic: one picture of the frames of many environments. Pillow scales and draws."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from agym.core._system.extras import require
from agym.core.protocol.arguments import check_count, is_number
from agym.core.protocol.typing import Array
from agym.errors import UsageError

# Default maximum size of a mosaic (width, height).
FITTING = (1920, 1080)

# Maximum scale factor, and maximum size of a mosaic: pixels per side, and in total.
MAX_SCALE = 1000
MAX_SIDE = 16384
MAX_PIXELS = 64_000_000

# Pixels between two pictures; background colour; text colour.
GAP = 2
GROUND = (24, 24, 24)
INK = (235, 235, 235)

# Colour escape sequences in texts of ``ansi``.
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def mosaic(
    frames: Sequence[Any],
    columns: int | None = None,
    *,
    labels: bool | Sequence[object] = False,
    scale: float | None = None,
    size: tuple[int, int] = FITTING,
) -> Array:
    """Put the frames of many environments into one picture, row by row.

    Example:
        >>> import agym, numpy as np
        >>> frames = [np.full((40, 60, 3), 20 * i, np.uint8) for i in range(6)]
        >>> agym.mosaic(frames, columns=3).shape
        (82, 184, 3)

    Args:
        frames: Results of ``envs.render()``, of any sizes: pictures ``uint8[height, width, 3]``,
            also with one or four channels or without this axis; depth maps of floats, with the
            nearest point white; texts; or lists of these, of which the last is shown. ``None``
            leaves a tile empty.
        columns: Pictures per row; by default the number that makes them largest within ``size``.
        labels: Text in the corner of each picture; ``True`` for its index.
        scale: Scale factor of all pictures; by default they are shrunk if necessary, so that the
            mosaic fits into ``size``.
        size: Maximum width and height of the mosaic, for the defaults of ``columns`` and ``scale``.

    Returns:
        ``uint8[height, width, 3]``, a new array.

    Raises:
        UsageError: There are no frames, one is not a picture, an option is invalid, or the mosaic
            would have more than 16384 pixels per side or 64 million in total.
        MissingExtraError: Pillow is not installed.
    """
    return np.array(tile(frames, columns, labels, scale, size).image)


class Tiling(NamedTuple):
    """A mosaic and its layout.

    Attributes:
        image: The mosaic, a Pillow image.
        columns: Tiles per row.
        width: Width of a tile in pixels; ``GAP`` pixels are between two.
        height: Height of a tile in pixels.
    """

    image: Any
    columns: int
    width: int
    height: int


def tile(
    frames: Sequence[Any], columns: int | None, labels: bool | Sequence[object],
    scale: float | None, size: tuple[int, int],
) -> Tiling:  # fmt: skip
    """Make a mosaic, as :func:`mosaic` does, and return it with its layout."""
    if isinstance(frames, str) or (isinstance(frames, np.ndarray) and frames.ndim != 4):
        raise UsageError("frames must be a list of frames, one per environment")
    if not len(frames):
        raise UsageError("mosaic needs at least one frame")
    images = [_image(frame, i) for i, frame in enumerate(frames)]
    texts = texts_of(labels, range(len(images)))
    width = max((image.width for image in images if image is not None), default=1)
    height = max((image.height for image in images if image is not None), default=1)
    if columns is None:
        fits = [_fitting(size, len(images), n, width, height) for n in range(1, len(images) + 1)]
        columns = 1 + fits.index(max(fits))
    columns = check_count("columns", columns)
    check_scale(scale)
    rows = -(-len(images) // columns)
    if scale is None:
        scale = max(1e-6, min(1.0, _fitting(size, len(images), columns, width, height)))
    width, height = _scaled(width, height, scale)
    pillow = require("PIL.Image", "render")
    whole_size = columns * (width + GAP) - GAP, rows * (height + GAP) - GAP
    if max(whole_size) > MAX_SIDE or math.prod(whole_size) > MAX_PIXELS:
        raise UsageError(
            f"a picture of {whole_size[0]} × {whole_size[1]} pixels is too large (at most"
            f" {MAX_SIDE} per side, {MAX_PIXELS:,} in total): use a smaller scale, fewer columns or"
            " fewer environments"
        )
    whole = pillow.new("RGB", whole_size, GROUND)
    for i, (image, text) in enumerate(zip(images, texts, strict=True)):
        left, top = i % columns * (width + GAP), i // columns * (height + GAP)
        if image is not None:
            if scale != 1.0:
                image = image.resize(
                    _scaled(image.width, image.height, scale),
                    pillow.Resampling.BOX if scale < 1 else pillow.Resampling.NEAREST,
                    # Averages whole pixels first, which is faster.
                    reducing_gap=1.0 if scale < 1 else None,
                )
            middle = left + (width - image.width) // 2, top + (height - image.height) // 2
            whole.paste(image, middle)
        if text:
            _write(whole, (left, top), text)
    return Tiling(whole, columns, width, height)


def check_scale(scale: float | None) -> None:
    """Check a scale factor; ``None`` is the default.

    Raises:
        UsageError: It is not a positive number, or too large.
    """
    if scale is not None and not (is_number(scale) and 0 < scale <= MAX_SCALE):
        raise UsageError(f"scale={scale!r} must be a positive number, at most {MAX_SCALE}")


def _fitting(size: tuple[int, int], count: int, columns: int, width: int, height: int) -> float:
    """Return the largest scale factor at which all pictures fit."""
    across = (size[0] + GAP) / columns - GAP
    down = (size[1] + GAP) / -(-count // columns) - GAP
    return min(across / width, down / height)


def _scaled(width: int, height: int, scale: float) -> tuple[int, int]:
    return max(1, int(width * scale)), max(1, int(height * scale))


def texts_of(labels: bool | Sequence[object], ids: Sequence[int]) -> list[str]:
    """Return the texts of ``labels=``, one for each environment.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(labels, bool):
        return [str(i) if labels else "" for i in ids]
    if isinstance(labels, str) or len(labels) != len(ids):
        raise UsageError(f"labels must be True, or a sequence of {len(ids)} labels")
    return [str(label) for label in labels]


def _image(frame: Any, i: int) -> Any:
    """Return a frame as a Pillow image, or ``None``."""
    if isinstance(frame, list | tuple):
        frame = frame[-1] if frame else None
    if frame is None:
        return None
    pillow = require("PIL.Image", "render")
    if isinstance(frame, str):
        return _page(frame)
    pixels = np.asarray(frame)
    if pixels.dtype.kind == "f" and pixels.ndim == 2:
        pixels = _shade(pixels)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype != np.uint8 or not (
        pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    ):
        raise UsageError(
            f"frame {i} is not a picture: {pixels.dtype} of shape {pixels.shape}, not uint8 of"
            " (height, width), or (height, width, channels) with 1, 3 or 4 channels"
        )
    if 0 in pixels.shape:
        return None
    image = pillow.fromarray(_in_order(pixels))
    if image.mode == "RGBA":
        ground = pillow.new("RGBA", image.size, (*GROUND, 255))
        image = pillow.alpha_composite(ground, image)
    return image.convert("RGB")


def _in_order(pixels: Array) -> Array:
    """Return pixels in C order; pygame's are transposed, and copying whole pixels is faster."""
    if pixels.ndim == 3 and pixels.strides[2] == 1 and not pixels.flags.c_contiguous:
        whole = np.ascontiguousarray(pixels.view(f"V{pixels.shape[2]}"))
        return whole.view(np.uint8).reshape(pixels.shape)
    return np.ascontiguousarray(pixels)


def _shade(depths: Array) -> Array:
    """Return depths as shades of grey; the nearest point is white."""
    finite = depths[np.isfinite(depths)]
    if not finite.size:
        return np.zeros(depths.shape, np.uint8)
    nearest, farthest = float(finite.min()), float(finite.max())
    shades = (farthest - depths.clip(nearest, farthest)) / ((farthest - nearest) or 1.0)
    shaded: Array = (np.nan_to_num(shades) * 255).astype(np.uint8)
    return shaded


def _page(text: str) -> Any:
    """Return a picture of a text, without its colours."""
    pillow, drawing = require("PIL.Image", "render"), require("PIL.ImageDraw", "render")
    plain = _ESCAPE.sub("", text)
    ruler = drawing.Draw(pillow.new("RGB", (1, 1)))
    *_, right, bottom = ruler.multiline_textbbox((4, 4), plain)
    page = pillow.new("RGB", (int(right) + 5, int(bottom) + 5), GROUND)
    drawing.Draw(page).multiline_text((4, 4), plain, INK)
    return page


def _write(whole: Any, corner: tuple[int, int], text: str) -> None:
    draw = require("PIL.ImageDraw", "render").Draw(whole)
    place = corner[0] + 4, corner[1] + 2
    left, top, right, bottom = draw.textbbox(place, text)
    draw.rectangle((left - 2, top - 1, right + 2, bottom + 1), fill=GROUND)
    draw.text(place, text, INK)
