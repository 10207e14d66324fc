"""Logs episodes, statistics and videos of environments for TensorBoard.

A thread writes the files, so the caller's steps do not wait for them::

    results --> Episodes --- a point per interval --> queue --> thread: add_scalar, statistics
    before_step --> render --- frames --------------> Writer: mosaic, GIF, add_video
"""

from __future__ import annotations

import asyncio
import os
import queue
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agym import AsyncEnvs, Batch, Envs, Hook, StepResult, Tap, envs_of
from agym.core._system.extras import require
from agym.core.engine.attached import Attached
from agym.core.protocol.arguments import Ids, check_count, parse_env_ids
from agym.core.protocol.typing import Array
from agym.errors import UsageError
from agym.watching.episode_totals import Episodes
from agym.watching.video.movie import Movie
from agym.watching.video.recording import Recording, check_pictures, frame_rate, paint_whole
from agym.watching.video.writer import Writer

# Default maximum size of videos (width, height). TensorBoard shows videos in their own size.
FITTING = (640, 480)

# Maximum number of points waiting to be written; beyond it, the next point covers more episodes.
MAX_WAITING = 256

# Minimum interval between writing statistics.
STATS_SECONDS = 1.0

# Where each package with a SummaryWriter defines the messages of a file.
MESSAGES = {
    "tensorboardX": "tensorboardX.proto.summary_pb2",
    "torch": "tensorboard.compat.proto.summary_pb2",
}

# Upper bound of the steps at which clips start.
FOR_EVER = 1 << 62


class _Point(NamedTuple):
    step: int
    returns: list[float]
    lengths: list[int]


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
) -> TensorBoard:
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

    Logging starts at once; at the end of the block, everything is written (use ``async with`` for
    async environments). A thread writes, so steps do not wait. The x-axis is environment steps. An
    episode that was under way when logging started, or that continues from a snapshot, counts only
    if its environment reports ``info["episode"]``.

    ============================== ==============================================================
    ``episodes/return, length``    means over the episodes that ended since the last point
    ``episodes/ended``             number of these episodes
    ``envs/steps_per_second``      of all environments; this and the following once per second
    ``envs/busy``                  mean share of time in which workers run environments
    ``envs/faults, restarts``      totals so far
    ``envs/memory_mb``             memory of the worker processes
    ``envs/queue_us``, ...         mean parts of the time of a step: queue, work, transport, caller
    ``envs/video``                 clips, with ``video_every``
    ============================== ==============================================================

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
    every = check_count("every", every)
    step = check_count("step", step, least=0)
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
    lock, clips = threading.Lock(), None
    if rounds:
        steps = range(step, FOR_EVER, rounds * api.num_envs)
        movie = ClipMovie(writer, lock, f"{prefix}envs/video", video_length, rate, steps)
        paint = partial(paint_whole, scale=scale, size=FITTING)
        clips = Clips(api, tap, Writer([movie], paint), ids, rounds, video_length)
    return TensorBoard(api, tap, writer, lock, clips, every, step, prefix, closes)


@dataclass(eq=False, repr=False)
class TensorBoard(Attached, Hook):
    """A log in progress; made by :func:`agym.tensorboard`.

    Example:
        >>> import agym, tempfile
        >>> with agym.make("CartPole-v1", 4) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.tensorboard(envs, tempfile.mkdtemp()) as log:
        ...         result = envs.step([0, 1, 0, 1])
        >>> log.step
        4
    """

    _api: InitVar[Envs | AsyncEnvs]
    _tap: Tap
    _writer: Any
    _lock: threading.Lock  # guards the writer, which two threads use
    _clips: Clips | None
    _every: int
    _last: int  # the step of the latest point
    _prefix: str
    _closes: bool
    _error: Exception | None = None

    def __post_init__(self, api: Envs | AsyncEnvs) -> None:
        tap = self._tap
        self._is_async = isinstance(api, AsyncEnvs)
        self._members = None if api.num_envs == tap.num_envs else frozenset(api.env_ids)
        self._episodes = Episodes(tap.num_envs, tap.autoreset, self._last)
        self._points: queue.SimpleQueue[_Point | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="agym-log", daemon=True)
        self._thread.start()
        tap.add_hook(self)
        self._episodes.count_from_start(tap.unstepped())

    @property
    def step(self) -> int:
        """Number of environment steps so far."""
        return self._episodes.steps

    # ---------------------------------------------------------------- hook

    def after_reset_sent(self, number: int, ids: Ids, *, restored: bool) -> None:
        """Start new episodes."""
        self._episodes.reset(number, ids, restored=restored)

    def after_steps_lost(self, ids: Ids) -> None:
        """Do not count the episodes of these steps."""
        self._episodes.lose(ids)

    def after_step(self, number: int | None, ids: Ids, result: StepResult | Batch) -> None:
        """Collect the episodes that ended, and queue a point if one is due."""
        if self._members is not None and not self._members.issuperset(ids):
            rows = [k for k, i in enumerate(ids) if i in self._members]
            if not rows:
                return
            ids = tuple(ids[k] for k in rows)
            infos = [result.infos[k] for k in rows]
            flags = result.terminated[rows], result.truncated[rows]
            result = StepResult(None, result.rewards[rows], *flags, infos)
        episodes = self._episodes
        episodes.add(number, ids, result)
        if episodes.steps - self._last >= self._every and self._points.qsize() < MAX_WAITING:
            self._last = episodes.steps
            self._points.put(_Point(episodes.steps, *episodes.take()))

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        written, steps = time.monotonic(), self._last
        while (point := self._points.get()) is not None:
            if self._error is not None:
                continue
            try:
                self._write(point)
                now = time.monotonic()
                if now - written >= STATS_SECONDS:
                    self._write_stats(point.step, (point.step - steps) / (now - written))
                    written, steps = now, point.step
            except Exception as error:
                self._error = error

    def _write(self, point: _Point) -> None:
        count = len(point.returns)
        if count:
            self._add("episodes/return", sum(point.returns) / count, point.step)
            self._add("episodes/length", sum(point.lengths) / count, point.step)
        self._add("episodes/ended", count, point.step)

    def _write_stats(self, step: int, rate: float) -> None:
        if self._tap.closed:
            return
        stats = self._tap.stats()
        workers = stats.workers
        values = {
            "steps_per_second": rate,
            "busy": sum(worker.busy for worker in workers) / len(workers),
            "faults": sum(env.faults for env in stats.envs),
            "restarts": sum(worker.restarts for worker in workers),
            "memory_mb": sum({w.pid: w.rss or 0 for w in workers}.values()) / 1e6,
            "queue_us": 1e6 * stats.queue,
            "work_us": 1e6 * stats.work,
            "transport_us": 1e6 * stats.transport,
            "caller_us": 1e6 * stats.caller,
        }
        for name, value in values.items():
            self._add(f"envs/{name}", value, step)

    def _add(self, name: str, value: float, step: int) -> None:
        with self._lock:
            self._writer.add_scalar(self._prefix + name, value, step)

    # ---------------------------------------------------------------- the end

    def _detach(self) -> None:
        """Stop receiving results, and queue the last point."""
        if self in self._tap.hooks:
            self._tap.remove_hook(self)
            if self._episodes.returns or self._episodes.steps > self._last:
                self._points.put(_Point(self._episodes.steps, *self._episodes.take()))
            self._points.put(None)

    def _end(self) -> None:
        self._thread.join()
        flush = getattr(self._writer, "close" if self._closes else "flush", None)
        if flush is not None:
            with self._lock:
                flush()
        if self._error is not None:
            raise self._error

    def _finish(self) -> None:
        self._detach()
        try:
            if self._clips is not None:
                self._clips._finish()
        finally:
            self._end()

    async def _afinish(self) -> None:
        self._detach()
        try:
            if self._clips is not None:
                await self._clips._afinish()
        finally:
            await asyncio.to_thread(self._end)

    def _abort(self) -> None:
        """Write the points so far: the block raised, or it is ``with`` for async environments."""
        self._detach()
        if self._clips is not None:
            self._clips._abort()
        with suppress(Exception):  # the block's error is more important
            self._end()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._writer!r}, step={self.step})"


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
