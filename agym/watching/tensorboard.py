"""Logs environments for TensorBoard: the values of a log, and clips.

::

    Log ----------------------- thread: add_scalar
    before_step --> render ---> Writer: mosaic, GIF, add_video
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agym import AsyncEnvs, Envs, Tap, envs_of
from agym.core._system.extras import require
from agym.core.protocol.arguments import Ids, check_count, parse_env_ids
from agym.core.protocol.typing import Array
from agym.errors import UsageError
from agym.watching.log import Log
from agym.watching.video.movie import Movie
from agym.watching.video.recording import Recording, check_pictures, frame_rate, paint_whole
from agym.watching.video.writer import Writer

# Default maximum size of videos (width, height). TensorBoard shows videos in their own size.
FITTING = (640, 480)

# Where each package with a SummaryWriter defines the messages of a file.
MESSAGES = {
    "tensorboardX": "tensorboardX.proto.summary_pb2",
    "torch": "tensorboard.compat.proto.summary_pb2",
}

# Upper bound of the steps at which clips start.
FOR_EVER = 1 << 62


def tensorboard(
    envs: Any,
    writer: Any,
    *,
    every: int = 1000,
    step: int = 0,
    prefix: str = "",
    video_every: int | None = None,
    video_length: int = 100,
    env_ids: Sequence[int] | None = None,
    fps: float | None = None,
    scale: float | None = None,
) -> Log:
    """Log returns and lengths of episodes, statistics and videos for TensorBoard.

    Example:
        >>> import agym, tempfile
        >>> with agym.make("CartPole-v1", 4, autoreset="next_step") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.tensorboard(envs, tempfile.mkdtemp(), every=100) as log:
        ...         for _ in range(100):
        ...             result = envs.step(envs.action_space.sample())
        >>> log.step > 350  # resets are not steps
        True

    This is :func:`agym.log` with a writer as its sink, and with videos: the x-axis is environment
    steps, and the names are those of :func:`agym.log`. ``envs/video`` has the clips.

    Args:
        envs: Opened environments that agym runs, wrapped or not, or a group of ``split``.
        writer: A folder; or a ``SummaryWriter`` of tensorboardX or ``torch.utils.tensorboard``, or
            an object with the same ``add_scalar`` and ``add_video``. A writer is flushed but not
            closed.
        every: Minimum number of environment steps between two points.
        step: The initial number of steps, to continue a run.
        prefix: Prefix of all names.
        video_every: Environment steps between the starts of two clips; the first clip starts with
            the first step. ``None`` for no videos.
        video_length: Pictures per clip, one before each step.
        env_ids: Environments that the clips show, ``None`` for all.
        fps: Pictures per second; by default the environments' ``render_fps``.
        scale: Scale factor of pictures; by default a clip fits into 640 × 480.

    Raises:
        UsageError: An argument is invalid, or the environments render no pictures for a video.
        MissingExtraError: tensorboardX, or a library that encodes videos, is not installed.
        ClosedError: The environments are not open.
    """
    api = envs_of(envs, "agym.tensorboard")
    tap = api.tap
    every, step = check_count("every", every), check_count("step", step, least=0)
    ids = parse_env_ids(env_ids, api.num_envs, least=1)
    rounds = 0
    if video_every is not None:
        rounds = max(1, check_count("video_every", video_every) // api.num_envs)
        video_length = min(rounds, check_count("video_length", video_length))
        check_pictures(api)
        require("av", "tensorboard")
        require("PIL.Image", "tensorboard")
    rate = frame_rate(api, fps)
    closes = isinstance(writer, str | os.PathLike)
    if closes:
        writer = require("tensorboardX", "tensorboard").SummaryWriter(str(writer))
    if not callable(getattr(writer, "add_scalar", None)):
        raise UsageError(
            f"writer={writer!r} has no add_scalar: pass a folder, or a"
            " SummaryWriter of tensorboardX or torch.utils.tensorboard"
        )
    lock, clips = threading.Lock(), None  # two threads use the writer
    if rounds:
        steps = range(step, FOR_EVER, rounds * api.num_envs)
        movie = ClipMovie(writer, lock, f"{prefix}envs/video", video_length, rate, steps)
        paint = partial(paint_whole, scale=scale, size=FITTING)
        clips = Clips(api, tap, Writer([movie], paint), ids, rounds, video_length)

    def write(values: dict[str, float]) -> None:
        at = values.pop(f"{prefix}step")
        with lock:
            for name, value in values.items():
                writer.add_scalar(name, value, at)

    def finish() -> None:
        end = getattr(writer, "close" if closes else "flush", None)
        if end is not None:
            with lock:
                end()

    return Log(api, tap, write, every=every, step=step, prefix=prefix, clips=clips, finish=finish)


# ---------------------------------------------------------------- videos


class Clips(Recording):
    """Records the first steps of every interval."""

    def __init__(
        self, api: Envs | AsyncEnvs, tap: Tap, writer: Writer, ids: Ids, rounds: int, length: int
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
