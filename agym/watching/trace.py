"""Timelines in Chrome's trace format, which https://ui.perfetto.dev opens.

There are three kinds of lanes, on one clock::

    environments   a lane per worker (or per environment, if these run concurrently on a loop)
    waiting        the caller's waits for results, a lane per thread or task
    caller         the blocks that the caller marked: with agym.mark("backward")
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from agym import Hook, Tap, envs_of
from agym.core.engine.attached import Attached
from agym.core.engine.tap import timelines
from agym.core.protocol.metrics.spans import KINDS, SpanReader
from agym.errors import UsageError
from agym.watching.trace_report import CALLER, ENVIRONMENTS, INLINE, WAITING

# How often the hosts' ring buffers are emptied; each has room for 4096 spans or more.
READ_SECONDS = 0.025

# Maximum number of spans: more would make a file of several hundred megabytes.
MAX_SPANS = 1_000_000


def trace(envs: Any, path: str | os.PathLike[str]) -> Trace:
    """Record when environments and caller run, and write a timeline to a file.

    Example:
        >>> import agym, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.json")
        >>> with agym.make("CartPole-v1", 4) as envs, agym.trace(envs, path):
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.mark("thinking"):
        ...         actions = envs.action_space.sample()
        ...     result = envs.step(actions)
        >>> agym.overlap(path).caller > 0
        True

    The trace has each worker's steps, resets, renders and calls, the caller's waits, and the blocks
    that the caller marked (:func:`agym.mark`). ``agym trace run.json`` reports how much overlapped.
    It starts at once. The file is complete at the end of the block, even if the block raises. When
    nothing is traced, there is no measurable cost.

    Args:
        envs: Opened environments that agym runs, wrapped or not, or a list of several.
        path: The file, in Chrome's trace format; an existing file is replaced.

    Raises:
        UsageError: The folder does not exist.
        ClosedError: The environments are not open.
    """
    several = envs if isinstance(envs, list | tuple) else [envs]
    apis = [envs_of(each, "agym.trace") for each in several]
    taps = [api.tap for api in apis]  # first, because environments that aren't open have no spec
    names = ["environments" if api.spec is None else api.spec.id for api in apis]
    path = Path(path)
    if not path.parent.is_dir():
        raise UsageError(f"path={str(path)!r} is in a folder that does not exist")
    return Trace([*zip(names, taps, strict=True)], path)


class Trace(Attached, Hook):
    """A timeline in progress; made by :func:`agym.trace`.

    Example:
        >>> import agym, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.json")
        >>> with agym.make("CartPole-v1", 4) as envs:
        ...     with agym.trace(envs, path) as trace:
        ...         observations, infos = envs.reset(seed=0)
        >>> trace.lost
        0

    Attributes:
        lost: Number of spans that were dropped because there were more than a million.
    """

    follows_steps = False  # hosts record steps themselves, so steps are as fast as without a trace

    def __init__(self, named: Sequence[tuple[str, Tap]], path: Path) -> None:
        self._taps = [tap for _, tap in named]
        self._path = path
        self.lost = 0
        self._kept = 0
        self._lock = threading.Lock()
        # For each host and read: the table's position, the first environment, and the spans.
        self._spans: list[tuple[int, int, np.ndarray[Any, Any]]] = []
        self._blocks: list[tuple[str, str, str, int, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agym-trace", daemon=True)
        self._opened = time.perf_counter_ns()
        timelines.append(self)
        self._tables = [
            (name, INLINE if tap.inline else "worker", SpanReader(tap.gauges.arrays))
            for name, tap in named
        ]
        for tap in self._taps:
            tap.add_hook(self)
        self._thread.start()

    def after_wait(self, name: str, started: float, stopped: float, *, in_task: bool) -> None:
        """Record that the caller waited."""
        self._add(WAITING, _lane(in_task=in_task), name, started, stopped)

    def add_block(self, name: str, started: float, stopped: float) -> None:
        """Record a block that the caller marked."""
        self._add(CALLER, _lane(in_task=True), name, started, stopped)

    def _add(self, kind: str, lane: str, name: str, started: float, stopped: float) -> None:
        with self._lock:
            if self._has_room(1):
                self._blocks.append((kind, lane, name, int(started * 1e9), int(stopped * 1e9)))

    def _has_room(self, count: int) -> bool:
        room = self._kept + count <= MAX_SPANS
        self._kept += count if room else 0
        self.lost += 0 if room else count
        return room

    def _run(self) -> None:
        while not self._over.wait(READ_SECONDS):
            self._read()

    def _read(self) -> None:
        with self._lock:
            for position, (*_, reader) in enumerate(self._tables):
                for first, spans in reader.read():
                    if self._has_room(len(spans)):
                        self._spans.append((position, first, spans))

    def _detach(self) -> bool:
        """Stop recording; return whether the file is still to be written."""
        if self._over.is_set():
            return False
        self._over.set()
        timelines.remove(self)
        for tap in self._taps:
            tap.remove_hook(self)
        return True

    def _finish(self) -> None:
        if self._detach():
            self._write()

    async def _afinish(self) -> None:
        if self._detach():
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        self._thread.join()
        self._read()
        for *_, reader in self._tables:
            reader.stop()
        with self._path.open("w") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            file.write(",\n".join(map(json.dumps, self._events())))
            file.write("\n]}\n")
        self._tables.clear()

    def _events(self) -> Iterator[dict[str, Any]]:
        lanes: dict[tuple[str, str], tuple[int, int]] = {}
        groups: dict[str, int] = {}
        for group, lane, name, started, stopped in self._all():
            if stopped < self._opened:
                continue
            if group not in groups:
                groups[group] = len(groups) + 1
                yield _meta("process_name", group, groups[group], 0)
            if (group, lane) not in lanes:
                lanes[group, lane] = groups[group], len(lanes) + 1
                yield _meta("thread_name", lane, *lanes[group, lane])
            process, thread = lanes[group, lane]
            yield {
                "name": name, "ph": "X", "pid": process, "tid": thread,
                "ts": (started - self._opened) / 1e3, "dur": (stopped - started) / 1e3,
            }  # fmt: skip

    def _all(self) -> Iterator[tuple[str, str, str, int, int]]:
        # Only environments with spans get a number.
        numbers = {p: k for k, p in enumerate(sorted({each[0] for each in self._spans}))}
        for position, first, spans in sorted(self._spans, key=lambda each: each[:2]):
            name, runs_in, _ = self._tables[position]
            prefix = f"{name} #{numbers[position]}: " if len(numbers) > 1 else ""
            for kind, target, started, stopped in spans.tolist():
                # A negative target is the one environment ``-1 - target``, a positive one a count.
                single = target < 0
                lane = (
                    f"environment {-1 - target}" if single else f"{runs_in} of environment {first}"
                )
                text = KINDS[kind] if single else f"{KINDS[kind]} ×{target}"
                yield ENVIRONMENTS, prefix + lane, text, started, stopped
        yield from self._blocks


def _meta(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _lane(*, in_task: bool) -> str:
    """Return the name of the current task, if ``in_task`` and there is one; else of the thread."""
    task = None
    if in_task:
        with suppress(RuntimeError):  # no loop is running
            task = asyncio.current_task()
    return threading.current_thread().name if task is None else task.get_name()
