"""Movie: a video file that pictures are added to, one after the other; PyAV encodes.

MP4 (H.264) loses what the eye hardly sees. GIF keeps pictures of up to 256 colours as they are, and
finds the 256 best for others.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from agym._system.extras import require
from agym.errors import UsageError
from agym.protocol.typing import Array

# By the end of the file's name: codec, form of pixels, and options of the codec.
FORMS: dict[str, tuple[str, str, dict[str, str]]] = {
    ".mp4": ("libx264", "yuv420p", {"preset": "veryfast", "crf": "20"}),
    ".gif": ("gif", "pal8", {}),
}


def check_path(path: Path) -> None:
    """See that a video can be written there.

    Raises:
        UsageError: Another kind of file, or no such folder.
        MissingExtraError: PyAV, or Pillow, is not installed.
    """
    if path.suffix.lower() not in FORMS:
        raise UsageError(f"path={str(path)!r} must end in {' or '.join(FORMS)}")
    if not path.parent.is_dir():
        raise UsageError(f"path={str(path)!r} is in no folder that exists")
    require("av", "video")
    require("PIL.Image", "video")


class Movie:
    """One file. It is there from the first picture on, and whole once it is closed."""

    def __init__(self, path: Path, fps: Fraction) -> None:
        """Write nothing yet."""
        self._path = path
        self._fps = fps
        self._codec, self._form, self._options = FORMS[path.suffix.lower()]
        self._container: Any = None
        self._stream: Any = None

    def add(self, picture: Array, position: int) -> None:
        """Add a picture.

        Args:
            picture: ``uint8[height, width, 3]``. The first one's size is the video's; others are
                put into its upper left corner.
            position: When it is shown, in pictures from the beginning: more than the last one's.
        """
        if self._container is None:
            self._begin(picture)
        frame = self._frame(_fitted(picture, self._stream.height, self._stream.width))
        frame.pts, frame.time_base = position, 1 / self._fps
        self._container.mux(self._stream.encode(frame))

    def _begin(self, picture: Array) -> None:
        self._container = require("av", "video").open(str(self._path), "w")
        self._stream = stream = self._container.add_stream(
            self._codec, rate=self._fps, options=self._options
        )
        even = 2 if self._form == "yuv420p" else 1  # it has colours for squares of four pixels
        stream.height, stream.width = (-(-size // even) * even for size in picture.shape[:2])
        stream.pix_fmt = self._form
        stream.codec_context.time_base = 1 / self._fps
        stream.codec_context.thread_count = 1  # the others are for the environments

    def _frame(self, picture: Array) -> Any:
        frames = require("av", "video").VideoFrame
        if self._form != "pal8":
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
            try:
                container.mux(self._stream.encode())
            finally:
                container.close()


def _fitted(picture: Array, height: int, width: int) -> Array:
    """A contiguous picture of a size: cut off, or with black added on the right and below."""
    if picture.shape[:2] == (height, width):
        return np.ascontiguousarray(picture)
    fitted = np.zeros((height, width, 3), np.uint8)
    part = picture[:height, :width]
    fitted[: part.shape[0], : part.shape[1]] = part
    return fitted
