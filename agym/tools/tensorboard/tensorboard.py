"""TensorBoard: returns, lengths, statistics and videos of environments, while they are stepped.

Whoever steps gives results and frames away, and waits for nobody::

    results --> Episodes --- a point now and then --> queue --> thread: add_scalar, statistics
    before_step --> render --- frames --------------> Writer: mosaic, GIF, add_video
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from agym._system.extras import require
from agym.api.aio import AsyncEnvs
from agym.engine.batches.results import StepResult
from agym.engine.hooks.episodes import Episodes
from agym.engine.hooks.hooks import Hook, StepOutcome
from agym.errors import UsageError
from agym.protocol.arguments import Ids, check_count, parse_env_ids
from agym.tools.tensorboard.clips import ClipMovie, Clips
from agym.tools.video.context import EitherContext
from agym.tools.video.recording import USUAL_FPS, check_pictures, face_of, paint_whole
from agym.tools.video.writer import Writer

# Videos fit into so many pixels (width, height) by default: TensorBoard shows them in that size.
FITTING = (640, 480)

# While so many points wait to be written, no more are added: the next stands for more episodes.
MOST_WAITING = 256

# Statistics are written as often at most.
STATS_SECONDS = 1.0

# Steps at which clips may begin.
FOR_EVER = 1 << 62


class _Point(NamedTuple):
    step: int
    returns: list[float]
    lengths: list[int]


class TensorBoard(EitherContext, Hook):
    """Write returns and lengths of episodes, statistics and videos for TensorBoard.

    It begins at once, and all is written at the end of the block: ``with
    agym.log.TensorBoard("runs/1", envs):``, or ``async with`` for the async face. Steps wait for
    nothing of it: a thread writes. The horizontal axis is steps of single environments.

    ============================== ==============================================================
    ``episodes/return``            mean return of the episodes that ended since the last point
    ``episodes/length``            their mean length
    ``episodes/ended``             how many
    ``envs/steps_per_second``      of all environments; this and what follows once a second
    ``envs/busy``                  share of the time in which workers run environments, on average
    ``envs/faults, restarts``      how many so far
    ``envs/memory_mb``             of the worker processes
    ``envs/queue_us, work_us,``    where the time of a step goes, on average; see
    ``transport_us, caller_us``    :class:`agym.Stats`
    ``envs/video``                 clips, with ``video_every``
    ============================== ==============================================================

    Args:
        writer: A ``torch.utils.tensorboard.SummaryWriter``, or what has its ``add_scalar`` and
            ``add_video``, as tensorboardX's has; it is flushed, and not closed. Or a folder, for
            which one is made.
        envs: What :func:`agym.make`, :func:`agym.make_async` (opened), :func:`agym.make_vec` or
            ``agym.sb3`` gave; or a group of ``split``.
        every: Steps of single environments between two points at least.
        step: The number of steps at the beginning, to go on with a run.
        prefix: Put before all names.
        video_every: Steps of single environments from the beginning of one clip to the next; the
            first is of the first steps. ``None`` for no videos.
        video_length: Pictures of a clip, one before each step.
        env_ids: Which environments the clips show, ``None`` for all.
        fps: Pictures a second, by default the environments' own ``render_fps``.
        scale: Factor for the sizes of pictures; by default a clip fits into 640 × 480.

    Raises:
        UsageError: An argument cannot work, or the environments render no pictures for a video.
        MissingExtraError: TensorBoard, or what encodes videos, is not installed.
        ClosedError: The environments are not open.

    Example:
        >>> import agym, tempfile
        >>> with agym.make("CartPole-v1", 4, autoreset="next_step") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.log.TensorBoard(tempfile.mkdtemp(), envs, every=100) as log:
        ...         for _ in range(100):
        ...             result = envs.step(envs.action_space.sample())
        >>> log.step > 350  # resets are no steps
        True
    """

    def __init__(
        self,
        writer: Any,
        envs: Any,
        *,
        every: int = 1000,
        step: int = 0,
        prefix: str = "",
        video_every: int | None = None,
        video_length: int = 100,
        env_ids: Sequence[int] | None = None,
        fps: float | None = None,
        scale: float | None = None,
    ) -> None:
        """Begin."""
        face = face_of(envs, "TensorBoard")
        self._every = check_count("every", every)
        if not isinstance(step, int) or step < 0:
            raise UsageError(f"step={step!r} must be a number of steps, 0 or more")
        ids = parse_env_ids(env_ids, face.num_envs, least=1)
        rounds = 0
        if video_every is not None:
            rounds = max(1, check_count("video_every", video_every) // face.num_envs)
            video_length = min(rounds, check_count("video_length", video_length))
            check_pictures(face)
            require("av", "tensorboard")
            require("PIL.Image", "tensorboard")
        if fps is None:
            fps = float(face.metadata.get("render_fps") or USUAL_FPS)
        if not (isinstance(fps, int | float) and 0 < fps <= 1000):
            raise UsageError(f"fps={fps!r} must be a number of pictures a second, 1000 at most")
        self._closes = isinstance(writer, str | os.PathLike)
        if self._closes:
            require("tensorboard", "tensorboard")
            writer = require("torch.utils.tensorboard", "tensorboard").SummaryWriter(writer)
        if not callable(getattr(writer, "add_scalar", None)):
            raise UsageError(
                f"writer={writer!r} has no add_scalar: pass a SummaryWriter of"
                " torch.utils.tensorboard, or a folder"
            )
        self._writer = writer
        self._face = face
        self._engine = face._engine
        self._lock = threading.Lock()  # of the writer, for two threads
        self._prefix = prefix
        self._members = None if face._ids is None else frozenset(face._ids)
        self._episodes = Episodes(self._engine.num_envs, self._engine.autoreset, step)
        self._last = step
        self._error: Exception | None = None
        self._read = self._engine.stats_reader()
        self._points: queue.SimpleQueue[_Point | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="agym-log", daemon=True)
        self._thread.start()
        self._clips: Clips | None = None
        if rounds:
            rate = Fraction(fps).limit_denominator(1000)
            steps = range(step, FOR_EVER, rounds * face.num_envs)
            movie = ClipMovie(writer, self._lock, f"{prefix}envs/video", video_length, rate, steps)
            paint = partial(paint_whole, scale=scale, size=FITTING)
            self._clips = Clips(envs, face, Writer([movie], paint), ids, rounds, video_length)
        self._engine.listeners.add(self)

    @property
    def step(self) -> int:
        """How many steps single environments made so far."""
        return self._episodes.steps

    # ---------------------------------------------------------------- as a listener

    def after_reset_sent(self, number: int, ids: Ids) -> None:
        """A reset was sent."""
        self._episodes.reset(number, ids)

    def after_step(self, number: int | None, ids: Ids, result: StepOutcome) -> None:
        """Steps have ended."""
        if self._members is not None and not self._members.issuperset(ids):
            mine = [k for k, i in enumerate(ids) if i in self._members]
            if not mine:
                return
            ids = tuple(ids[k] for k in mine)
            infos = [result.infos[k] for k in mine]
            flags = result.terminated[mine], result.truncated[mine]
            result = StepResult(None, result.rewards[mine], *flags, infos)
        episodes = self._episodes
        episodes.add(number, ids, result)
        if episodes.steps - self._last >= self._every and self._points.qsize() < MOST_WAITING:
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
        if self._engine.closed:
            return
        stats = self._read()
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

    def _leave(self) -> None:
        """See no more results, and have what is left written."""
        if self in self._engine.listeners:
            self._engine.listeners.remove(self)
            if self._episodes.returns or self._episodes.steps > self._last:
                self._points.put(_Point(self._episodes.steps, *self._episodes.take()))
            self._points.put(None)

    def _end(self) -> None:
        """Wait until all is in the file."""
        self._thread.join()
        flush = getattr(self._writer, "close" if self._closes else "flush", None)
        if flush is not None:
            with self._lock:
                flush()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Write what is left; the environments go on. Idempotent.

        Raises:
            Exception: What writing raised.
        """
        if isinstance(self._face, AsyncEnvs):
            raise UsageError("these are for async code: use `async with`, or await aclose()")
        self._leave()
        try:
            if self._clips is not None:
                self._clips.finish()
        finally:
            self._end()

    async def aclose(self) -> None:
        """The same without blocking the loop."""
        if not isinstance(self._face, AsyncEnvs):
            raise UsageError("these are for code without asyncio: use `with`, or close()")
        self._leave()
        try:
            if self._clips is not None:
                await self._clips._aconclude()
        finally:
            await asyncio.to_thread(self._end)

    def _conclude(self) -> None:
        self.close()

    async def _aconclude(self) -> None:
        await self.aclose()

    def _break_off(self) -> None:
        """Write what has come so far; the block raised, or has to be another kind of block."""
        self._leave()
        if self._clips is not None:
            self._clips._break_off()
        with suppress(Exception):  # what the block raised is what matters
            self._end()

    def __repr__(self) -> str:
        """How far it is."""
        return f"{type(self).__name__}({self._writer!r}, step={self.step})"
