"""Short videos of environments for TensorBoard, at regular intervals."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from agym import AsyncEnvs, Envs, Tap
from agym.core._system.extras import require
from agym.core.protocol.arguments import Ids
from agym.core.protocol.typing import Array
from agym.watching.video.movie import Movie
from agym.watching.video.recording import Recording
from agym.watching.video.writer import Writer

# Where each package with a SummaryWriter defines the messages of a file.
MESSAGES = {
    "tensorboardX": "tensorboardX.proto.summary_pb2",
    "torch": "tensorboard.compat.proto.summary_pb2",
}


class Clips(Recording):
    """Records the first steps of every interval."""

    def __init__(
        self,
        api: Envs | AsyncEnvs,
        tap: Tap,
        writer: Writer,
        ids: Ids,
        rounds: int,
        length: int,
    ) -> None:
        """Start with the next step.

        Of every ``rounds`` steps of the environments ``ids``, record the first ``length``.
        """
        self._rounds = rounds
        self._length = length
        self._round = 0
        super().__init__(api, tap, writer, ids, 1, drop=True)

    def _take(self) -> None:
        recorded = self._round % self._rounds < self._length
        self._round += 1
        if recorded:
            super()._take()


@dataclass(eq=False)
class ClipMovie:
    """Writes each clip as a video; used by a :class:`~agym.watching.video.writer.Writer`.

    The lock guards TensorBoard's writer. A clip has ``_length`` pictures, including dropped ones;
    ``_steps`` are the steps at which clips start.
    """

    _writer: Any
    _lock: threading.Lock
    _tag: str
    _length: int
    _fps: Fraction
    _steps: range
    _clip: int = 0
    _pictures: list[Array] = field(default_factory=list)

    def add(self, picture: Array, position: int) -> None:
        """Add a picture, and write the clip if it is complete."""
        clip, place = divmod(position, self._length)
        if clip != self._clip:
            self.close()
            self._clip = clip
        self._pictures.append(picture)
        if place == self._length - 1:
            self.close()

    def close(self) -> None:
        """Write the pictures of an incomplete clip."""
        pictures, self._pictures = self._pictures, []
        if pictures:
            with self._lock:
                self._write(pictures, self._steps[self._clip])

    def _write(self, pictures: list[Array], step: int) -> None:
        package = _package_of(self._writer)
        if package is None:
            clip = np.stack(pictures).transpose(0, 3, 1, 2)[None]
            self._writer.add_video(self._tag, clip, step, fps=float(self._fps))
            return
        # Without moviepy, and torch's without a moviepy before 2, their add_video writes nothing.
        summaries = require(MESSAGES[package], "tensorboard")
        height, width, colours = pictures[0].shape
        image = summaries.Summary.Image(
            height=height, width=width, colorspace=colours,
            encoded_image_string=encode(pictures, self._fps),
        )  # fmt: skip
        value = summaries.Summary.Value(tag=self._tag, image=image)
        self._writer.file_writer.add_summary(summaries.Summary(value=[value]), step)


def _package_of(writer: Any) -> str | None:
    """Return the package in ``MESSAGES`` of whose ``SummaryWriter`` this is an instance."""
    for cls in type(writer).__mro__:
        package = cls.__module__.partition(".")[0]
        if cls.__name__ == "SummaryWriter" and package in MESSAGES:
            return package
    return None


def encode(pictures: list[Array], fps: Fraction) -> bytes:
    """Return pictures as a GIF."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.gif"
        movie = Movie(path, fps)
        for position, picture in enumerate(pictures):
            movie.add(picture, position)
        movie.close()
        return path.read_bytes()
