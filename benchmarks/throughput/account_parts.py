"""Splits the time of a batch with ``backend="process"``, next to bare loops in as many processes.

A batch is a step of all environments, from one result that the caller sees to the next::

    caller     seen |-- caller --| posted                                          seen |
    worker 0                     |-- waking --[ work ]------- barrier -------|
    worker 1                     |--- waking ---[ work                       ]- transport -|

    work = bare + waiting for a core + host and cache

Times of workers are averages over the workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from agym import make
from agym.backends import Process
from agym.core.protocol.metrics.gauges import clock
from agym.errors import MissingExtraError
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import alternate
from benchmarks.measuring.processes import CoreUse, core_use
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.workloads import Actions, Workload, sample_actions
from benchmarks.reports.results import Report, Settings, WorkloadResult, to_json
from benchmarks.systems.base import System
from benchmarks.systems.baseline import BareAtOnce
from benchmarks.systems.runners import AgymProcess

# The part that bare loops need, too; all other parts are the gap.
BARE_PART = "bare"

NO_WAITS = (
    "This system does not say how long processes wait for a core (/proc/PID/schedstat): that is"
    " part of host and cache"
)


@dataclass(frozen=True)
class Timing:
    """A slice of worker processes; microseconds per batch.

    Attributes:
        batches: Number of batches.
        batch: From one result to the next.
        waking: From the post of a step until a worker starts it.
        work: From there until the worker has finished it.
        barrier: From there until the last worker has finished it.
        transport: From there until the caller sees the result.
        caller: From there until the next step is posted.
        uneven: The part of the barrier that the same workers cause in each batch, because their
            ranges take longer. Assigning environments by measured cost could avoid no more.
        worker_use: Use of the cores by a worker per batch; ``None`` if unknown.
        caller_use: The same for the caller.
    """

    batches: int
    batch: float
    waking: float
    work: float
    barrier: float
    transport: float
    caller: float
    uneven: float
    worker_use: CoreUse | None
    caller_use: CoreUse | None


@dataclass(frozen=True)
class Slice:
    """A slice of worker processes, next to a slice of bare loops.

    Attributes:
        timing: The worker processes.
        parts: Microseconds of each part of a batch, by name; they add up to the batch.
    """

    timing: Timing
    parts: Mapping[str, float]

    @classmethod
    def of(cls, bare: float, timing: Timing) -> Slice:
        """Split a slice, given the microseconds of a batch of bare loops."""
        excess = timing.work - bare
        use = timing.worker_use
        # An upper bound: the system also counts waits before and after the work, which the other
        # parts contain.
        waiting = 0.0 if use is None else min(use.waiting, max(0.0, excess))
        parts = {
            BARE_PART: bare,
            "host and cache": excess - waiting,
            "waiting for a core": waiting,
            "barrier": timing.barrier,
            "waking": timing.waking,
            "transport": timing.transport,
            "caller": timing.caller,
        }
        return cls(timing, parts)

    @property
    def ratio(self) -> float:
        """Speed of worker processes relative to bare loops."""
        return self.parts[BARE_PART] / self.timing.batch


@dataclass(frozen=True)
class Account:
    """A run of ``python -m benchmarks account``.

    Attributes:
        report: Rates of both systems, the settings and the machine.
        pin: Whether workers were pinned.
        slices: The slices, in the order of their measurement.
    """

    report: Report
    pin: bool
    slices: tuple[Slice, ...]

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return median(each.ratio for each in self.slices)

    @property
    def batch(self) -> float:
        """Median microseconds per batch."""
        return median(each.timing.batch for each in self.slices)

    @property
    def uneven(self) -> float:
        """Median microseconds of the barrier that uneven ranges cause."""
        return median(each.timing.uneven for each in self.slices)

    @property
    def parts(self) -> dict[str, float]:
        """Median of each part."""
        names = self.slices[0].parts
        return {name: median(each.parts[name] for each in self.slices) for name in names}

    def to_json(self) -> str:
        slices = [
            {"ratio": each.ratio, "parts": each.parts, **asdict(each.timing)}
            for each in self.slices
        ]
        medians = {
            "ratio": self.ratio, "parts": self.parts, "batch": self.batch, "uneven": self.uneven,
        }  # fmt: skip
        return to_json(
            {**asdict(self.report), "pin": self.pin, "slices": slices, "medians": medians}
        )


def run_account(work: Workload, settings: Settings, *, pin: bool) -> Account:
    """Measure both systems, with progress on stderr that is redrawn only between slices.

    Raises:
        MissingExtraError: The environment's package is not installed.
        UsageError: The environment cannot be made.
    """
    if (missing := work.missing()) is not None:
        raise MissingExtraError(missing)
    actions = sample_actions(work)
    with progress_bar(1) as bar, bar.part(work.name) as announce:
        announce("making the environments")
        with (
            closing(TimedProcess(work, actions, settings.workers, pin=pin)) as process,
            closing(BareAtOnce(work, actions, settings.workers)) as bare,
        ):
            process.reset()
            bare.reset()
            turns = alternate({bare.name: bare, process.name: process}, settings, announce)
            announce("closing")
    slices = tuple(
        Slice.of(1e6 * work.num_envs / rate, timing)
        for rate, timing in zip(turns.rates[bare.name], process.timings, strict=True)
    )
    notes = () if all(timing.worker_use for timing in process.timings) else (NO_WAITS,)
    result = WorkloadResult(work.name, tuple(turns.rows), notes, other_cores=turns.other_cores)
    return Account(Report(describe_machine(), settings, (result,)), pin, slices)


class TimedProcess(System):
    """agym's worker processes; ``timings`` has a :class:`Timing` of each slice."""

    name = AgymProcess.name

    def __init__(self, work: Workload, actions: Actions, workers: int, *, pin: bool) -> None:
        self._pin = pin
        self.timings: list[Timing] = []
        super().__init__(work, actions, workers)
        self._stamps = Stamps(self._envs._backend)

    def make(self, work: Workload, workers: int) -> Any:
        backend = Process(workers=workers, pin=self._pin)
        return make(
            work.factory, work.num_envs, backend=backend, output="array", autoreset="next_step"
        )

    def run(self, seconds: float) -> float:
        """Step for ``seconds`` and keep the timing; return environment steps per second."""
        stamps, gauges = self._stamps, self._envs.tap.gauges
        workers = self._envs.stats().workers
        firsts = [worker.env_ids.start for worker in workers]
        pids, me = [worker.pid for worker in workers], [os.getpid()]
        workers_before, caller_before = core_use(pids), core_use(me)
        steps = []
        begun = clock()
        until = begun + 1e9 * seconds
        while stamps.seen < until:
            self.step(next(self._actions))
            began, ended = ([times[i] for i in firsts] for times in (gauges.began, gauges.ended))
            steps.append((stamps.posted, stamps.seen, *began, *ended))
        batches = len(steps)
        timing = Timing(
            batches,
            **split(begun, steps),
            worker_use=per_batch(workers_before, core_use(pids), batches * len(pids)),
            caller_use=per_batch(caller_before, core_use(me), batches),
        )
        self.timings.append(timing)
        return 1e6 * self._num_envs / timing.batch

    def run_in(self, seconds: float) -> None:
        super().run(seconds)


class Stamps:
    """When the latest step was posted, and when its end was seen, on the clock of the gauges.

    The package does not measure these times, to keep a step short. So the instance's methods are
    wrapped here.
    """

    def __init__(self, backend: Any) -> None:
        self.posted = self.seen = 0

        def posting(send: Callable[..., Any]) -> Callable[..., Any]:
            def post(*arguments: Any) -> Any:
                self.posted = clock()
                send(*arguments)

            return post

        def timed(see: Callable[..., Any]) -> Callable[..., Any]:
            def look(*arguments: Any) -> Any:
                seen = see(*arguments)
                if seen:
                    self.seen = clock()
                return seen

            return look

        backend.submit, backend.start_step = posting(backend.submit), posting(backend.start_step)
        backend.poll, backend.take_step = timed(backend.poll), timed(backend.take_step)


def split(begun: int, steps: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return the batch time, its parts and ``uneven``, all as in :class:`Timing`.

    Args:
        begun: When the caller started.
        steps: For each step, the times in nanoseconds when it was posted, when its end was seen,
            when each worker started it, and when each worker finished it.
    """
    rows = np.array(steps)
    posted, seen = rows[:, :1], rows[:, 1:2]
    began, ended = np.split(rows[:, 2:], 2, axis=1)
    last = ended.max(axis=1, keepdims=True)
    before = np.append(begun, seen[:-1])[:, None]
    spans = {
        "batch": seen - before,
        "waking": began - posted,
        "work": ended - began,
        "barrier": last - ended,
        "transport": seen - last,
        "caller": posted - before,
    }
    means = {name: float(span.mean()) / 1e3 for name, span in spans.items()}
    means["uneven"] = float(spans["work"].mean(axis=0).max()) / 1e3 - means["work"]
    return means


def per_batch(before: CoreUse | None, after: CoreUse | None, batches: int) -> CoreUse | None:
    """Return the use of the cores between two moments, per batch."""
    if before is None or after is None:
        return None
    return CoreUse(
        (after.running - before.running) / batches,
        (after.waiting - before.waiting) / batches,
        (after.switches - before.switches) / batches,
    )
