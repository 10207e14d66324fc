"""Movie: a video file to which pictures are added one by one; PyAV encodes.

MP4 (H.264) is visually almost lossless. GIF is lossless for pictures of up to 256 colours;
others get their best 256.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from agym.core._system.extras import require
from agym.core.protocol.typing import Array
from agym.errors import UsageError

# Codec, pixel format and codec options by file extension.
FORMATS: dict[str, tuple[str, str, dict[str, str]]] = {
    ".mp4": ("libx264", "yuv420p", {"preset": "veryfast", "crf": "20"}),
    ".gif": ("gif", "pal8", {}),
}


def check_path(path: Path) -> None:
    """Check that a video can be written to a path.

    Raises:
        UsageError: Unknown extension, or see :func:`check_file`.
        MissingExtraError: PyAV, or Pillow, is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"path={str(path)!r} must end in {' or '.join(FORMATS)}")
    check_file(path)
    require("av", "video")
    require("PIL.Image", "video")


def check_file(path: Path) -> None:
    """Check that a file can be written, by opening it; its contents do not change.

    Raises:
        UsageError: It cannot be written: it is a folder, its folder does not exist, ...
    """
    with writing(path):
        if not path.parent.is_dir():
            raise UsageError(f"path={str(path)!r} is in a folder that does not exist")
        new = not (path.exists() or path.is_symlink())
        path.open("ab").close()
        if new:
            path.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` about a file into a :class:`UsageError`.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"path={str(path)!r} cannot be written: {error.strerror or error}"
        ) from error


class Movie:
    """A video file. It exists from the first picture on, and can be played once it is closed."""

    def __init__(self, path: Path, fps: Fraction) -> None:
        self._path = path
        self._fps = fps
        self._codec, self._pixel_format, self._options = FORMATS[path.suffix.lower()]
        self._container: Any = None
        self._stream: Any = None

    def add(self, picture: Array, position: int) -> None:
        """Add a picture.

        Args:
            picture: ``uint8[height, width, 3]``. The first picture sets the size of the video;
                others are put into its upper left corner.
            position: When it is shown, in pictures since the start; must increase.
        """
        with writing(self._path):
            if self._container is None:
                self._open(picture)
            frame = self._frame(_fitted(picture, self._stream.height, self._stream.width))
            frame.pts, frame.time_base = position, 1 / self._fps
            self._container.mux(self._stream.encode(frame))

    def _open(self, picture: Array) -> None:
        self._container = require("av", "video").open(str(self._path), "w")
        self._stream = stream = self._container.add_stream(
            self._codec, rate=self._fps, options=self._options
        )
        even = 2 if self._pixel_format == "yuv420p" else 1  # colours are per 2 × 2 pixels
        stream.height, stream.width = (-(-size // even) * even for size in picture.shape[:2])
        stream.pix_fmt = self._pixel_format
        stream.codec_context.time_base = 1 / self._fps
        stream.codec_context.thread_count = 1  # the other cores are for the environments

    def _frame(self, picture: Array) -> Any:
        frames = require("av", "video").VideoFrame
        if self._pixel_format != "pal8":
            return frames.from_ndarray(picture, format="rgb24")
        image = require("PIL.Image", "video").fromarray(picture).quantize(256)
        colours = np.reshape(image.getpalette("RGB"), (-1, 3))
        palette = np.full((256, 4), 255, np.uint8)  # opaque
        palette[: len(colours), 1:] = colours
        return frames.from_ndarray((np.asarray(image), palette), format="pal8")

    def close(self) -> None:
        """Write the end of the file."""
        container, self._container = self._container, None
        if container is not None:
            with writing(self._path):
                try:
                    container.mux(self._stream.encode())
                finally:
                    container.close()


def _fitted(picture: Array, height: int, width: int) -> Array:
    """Crop a picture to a size, or pad it with black right and below; return it contiguous."""
    if picture.shape[:2] == (height, width):
        return np.ascontiguousarray(picture)
    fitted = np.zeros((height, width, 3), np.uint8)
    part = picture[:height, :width]
    fitted[: part.shape[0], : part.shape[1]] = part
    return fitted
