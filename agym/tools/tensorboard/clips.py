"""Clips: short videos of environments now and then, for TensorBoard."""

from __future__ import annotations

import sys
import tempfile
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from agym._system.extras import require
from agym.api.base import BaseEnvs
from agym.protocol.arguments import Ids
from agym.protocol.typing import Array
from agym.tools.video.movie import Movie
from agym.tools.video.recording import Recording
from agym.tools.video.writer import Writer


class Clips(Recording):
    """A recording of some rounds of steps out of many."""

    def __init__(
        self,
        envs: Any,
        face: BaseEnvs[Any, Any],
        writer: Writer,
        ids: Ids,
        rounds: int,
        length: int,
    ) -> None:
        """Begin with the next step.

        Args:
            envs: What is recorded.
            face: Its face.
            writer: Writes the clips.
            ids: Which environments.
            rounds: How many steps of all these from one clip's beginning to the next one's.
            length: How many of them are recorded.
        """
        self._rounds = rounds
        self._length = length
        self._round = 0
        super().__init__(envs, face, writer, ids, 1, drop=True)

    def _take(self) -> None:
        taken = self._round % self._rounds < self._length
        self._round += 1
        if taken:
            super()._take()


class ClipMovie:
    """What a :class:`~agym.render.writer.Writer` writes into: a video for each clip."""

    def __init__(
        self, writer: Any, lock: threading.Lock, tag: str, length: int, fps: Fraction, steps: range
    ) -> None:
        """Write nothing yet.

        Args:
            writer: TensorBoard's.
            lock: Held while it is used.
            tag: The name of the videos.
            length: Pictures of a clip, those included that were dropped.
            fps: Pictures a second.
            steps: The step at which each clip begins.
        """
        self._writer = writer
        self._lock = lock
        self._tag = tag
        self._length = length
        self._fps = fps
        self._steps = steps
        self._clip = 0
        self._pictures: list[Array] = []

    def add(self, picture: Array, position: int) -> None:
        """Add a picture, and write a clip that is complete."""
        clip, place = divmod(position, self._length)
        if clip != self._clip:
            self.close()
            self._clip = clip
        self._pictures.append(picture)
        if place == self._length - 1:
            self.close()

    def close(self) -> None:
        """Write what there is of a clip."""
        pictures, self._pictures = self._pictures, []
        if pictures:
            with self._lock:
                self._write(pictures, self._steps[self._clip])

    def _write(self, pictures: list[Array], step: int) -> None:
        torch = sys.modules.get("torch.utils.tensorboard")
        if torch is None or not isinstance(self._writer, torch.SummaryWriter):
            clip = np.stack(pictures).transpose(0, 3, 1, 2)[None]
            self._writer.add_video(self._tag, clip, step, fps=float(self._fps))
            return
        # Its own ``add_video`` needs a moviepy of before version 2, and says nothing without.
        summaries = require("tensorboard.compat.proto.summary_pb2", "tensorboard")
        height, width, colours = pictures[0].shape
        image = summaries.Summary.Image(
            height=height, width=width, colorspace=colours,
            encoded_image_string=encode(pictures, self._fps),
        )  # fmt: skip
        value = summaries.Summary.Value(tag=self._tag, image=image)
        self._writer.file_writer.add_summary(summaries.Summary(value=[value]), step)


def encode(pictures: list[Array], fps: Fraction) -> bytes:
    """Make a GIF of pictures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.gif"
        movie = Movie(path, fps)
        for position, picture in enumerate(pictures):
            movie.add(picture, position)
        movie.close()
        return path.read_bytes()
