"""Logs episodes and statistics of environments to W&B, or to a function of yours.

A thread calls the sink, so the caller's steps do not wait for a file or a network::

    results --> Episodes --- a point per interval --> queue --> thread: sink({...})
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from agym import AsyncEnvs, Envs, Tap, envs_of
from agym.core.engine.attached import Attached
from agym.core.protocol.arguments import check_count
from agym.errors import UsageError
from agym.watching.episode_totals import EpisodesHook

LOGGER = logging.getLogger("agym")

# Maximum number of points waiting to be written; beyond it, the next point covers more episodes.
MAX_WAITING = 256

# Minimum interval between two readings of the statistics.
STATS_SECONDS = 1.0

# Writes one point: the values by name, with "step".
Write = Callable[[dict[str, float]], object]


class _Point(NamedTuple):
    step: int
    time: float
    values: dict[str, float]
    last: bool


def log(envs: Any, sink: Any, *, every: int = 1000, step: int = 0, prefix: str = "") -> Log:
    """Log returns and lengths of episodes, speed and faults to W&B or to a function.

    Example:
        >>> import agym
        >>> rows = []
        >>> with agym.make("CartPole-v1", 4, autoreset="next_step") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.log(envs, rows.append, every=100):
        ...         for _ in range(100):
        ...             result = envs.step(envs.action_space.sample())
        >>> rows[0]["step"] >= 100, rows[0]["episodes/return"] > 0
        (True, True)

    Logging starts at once; at the end of the block, everything is written (use ``async with`` for
    async environments). A thread writes, so steps do not wait. An episode that was under way when
    logging started, or that continues from a snapshot, counts only if its environment reports
    ``info["episode"]``. Each point is a dict of numbers:

    ============================== ==============================================================
    ``step``                       environment steps so far; W&B draws the others over it
    ``episodes/return, length``    means over the episodes that ended since the last point
    ``episodes/ended``             number of these episodes
    ``envs/steps_per_second``      of these environments; this and the following at most once per
                                   second, and in the last point; the following of the whole set
    ``envs/busy``                  mean share of time in which workers run environments
    ``envs/faults, restarts``      totals so far
    ``envs/memory_mb``             memory of the worker processes
    ``envs/queue_us``, ...         mean parts of the time of a step: queue, work, transport, caller
    ============================== ==============================================================

    Args:
        envs: Opened environments that agym runs, wrapped or not, or a group of ``split``.
        sink: A run of W&B, or another object with ``log(dict)``; or a function that takes a dict,
            such as ``print`` or ``rows.append``. A thread calls it.
        every: Minimum number of environment steps between two points.
        step: The initial number of steps, to continue a run.
        prefix: Prefix of all names.

    Raises:
        UsageError: An argument is invalid.
        ClosedError: The environments are not open.
    """
    api = envs_of(envs, "agym.log")
    tap = api.tap
    if isinstance(sink, logging.Logger | logging.LoggerAdapter):
        raise UsageError(f"sink={sink!r} logs texts: pass one of its methods, such as sink.info")
    write = getattr(sink, "log", sink)
    if not callable(write):
        raise UsageError(
            f"sink={sink!r} is not callable and has no log(): pass a W&B run (wandb.init(...)), or"
            " a function that takes a dict"
        )
    every, step = check_count("every", every), check_count("step", step, least=0)
    if hasattr(sink, "define_metric"):  # of W&B: else the x-axis is the number of calls
        for part in ("episodes", "envs"):
            sink.define_metric(f"{prefix}{part}/*", step_metric=f"{prefix}step")
    return Log(api, tap, write, every=every, step=step, prefix=prefix)


class Log(Attached, EpisodesHook):
    """A log in progress; made by :func:`agym.log` or :func:`agym.tensorboard`.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.log(envs, print, every=1000) as log:
        ...         result = envs.step([0, 1, 0, 1])
        {'step': 4, 'episodes/ended': 0, ...}
        >>> log.step
        4
    """

    def __init__(
        self, api: Envs | AsyncEnvs, tap: Tap, write: Write, *, every: int, step: int, prefix: str,
        clips: Attached | None = None, finish: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        """Start to log.

        Args:
            api: The environments.
            tap: Their tap.
            write: Called in the log's thread with each point.
            every: See :func:`log`, as for ``step`` and ``prefix``.
            step: The initial number of steps.
            prefix: Prefix of all names.
            clips: Recording that ends with the log.
            finish: Called at the end.
        """
        super().__init__(tap, tuple(api.env_ids), step)
        self._every = every
        self._start_step = self._point_step = step  # of the log, and of the latest point
        self._started = time.monotonic()
        # Of the episodes since the latest point.
        self._ended, self._returns, self._lengths = 0, 0.0, 0
        self._is_async = isinstance(api, AsyncEnvs)
        self._write = write
        self._prefix = prefix
        self._clips = clips
        self._finish_sink = finish
        self._error: BaseException | None = None
        self._points: queue.SimpleQueue[_Point] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="agym-log", daemon=True)
        self._thread.start()
        self.start()

    @property
    def step(self) -> int:
        """Number of environment steps so far."""
        return self.episodes.steps

    def on_steps(self) -> None:
        """Add the episodes that ended, and queue a point if one is due."""
        if self.episodes.ended:
            for each in self.episodes.take():
                self._ended += 1
                self._returns += each.total
                self._lengths += each.length
        due = self.step - self._point_step >= self._every
        if due and self._points.qsize() < MAX_WAITING:
            self._put_point(last=False)

    def _put_point(self, *, last: bool) -> None:
        values: dict[str, float] = {}
        if self.step > self._point_step:
            values["episodes/ended"] = self._ended
        if self._ended:
            values["episodes/return"] = self._returns / self._ended
            values["episodes/length"] = self._lengths / self._ended
        self._point_step = self.step
        self._ended, self._returns, self._lengths = 0, 0.0, 0
        self._points.put(_Point(self.step, time.monotonic(), values, last))

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        read, read_step, last = self._started, self._start_step, False
        while not last:
            point = self._points.get()
            last = point.last
            if self._error is not None:
                continue
            try:
                values, seconds = dict(point.values), point.time - read
                if (last or seconds >= STATS_SECONDS) and point.step > read_step:
                    values |= self._statistics((point.step - read_step) / max(seconds, 1e-9))
                    read, read_step = point.time, point.step
                if values:
                    named = {f"{self._prefix}{name}": value for name, value in values.items()}
                    self._write({f"{self._prefix}step": point.step, **named})
            except BaseException as error:  # the end of the block raises it
                self._error = error
                LOGGER.warning("the log of environments stops: its sink raised %r", error)

    def _statistics(self, rate: float) -> dict[str, float]:
        if self._tap.closed:
            return {}
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
        return {f"envs/{name}": value for name, value in values.items()}

    # ---------------------------------------------------------------- the end

    def _detach(self) -> bool:
        """Stop receiving results, and queue the last point; return whether this was done now."""
        first = self in self._tap.hooks
        if first:
            self._tap.remove_hook(self)
            self._put_point(last=True)
        return first

    def _end(self) -> None:
        self._thread.join()
        self._finish_sink()
        if self._error is not None:
            raise self._error

    def _finish(self) -> None:
        if not self._detach():
            return
        try:
            if self._clips is not None:
                self._clips._finish()
        finally:
            self._end()

    async def _afinish(self) -> None:
        if not self._detach():
            return
        try:
            if self._clips is not None:
                await self._clips._afinish()
        finally:
            await asyncio.to_thread(self._end)

    async def _aabort(self) -> None:
        with suppress(Exception):  # the block's error is more important
            await self._afinish()

    def _abort(self) -> None:
        """Write the points so far: the block raised, or it is ``with`` for async environments."""
        if not self._detach():
            return
        if self._clips is not None:
            self._clips._abort()
        with suppress(Exception):  # the block's error is more important
            self._end()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._write!r}, step={self.step})"
