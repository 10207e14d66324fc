"""Predicts how long a batch takes on each backend. Nothing is measured or chosen here.

A :class:`Profile` describes one environment, a :class:`Machine` the costs of this machine. Both
are measured elsewhere (``planning/profiling.py``, ``api/auto/machine.py``)::

    Profile + Machine + Requirements --> candidates with predicted seconds --> the chosen one
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agym.backends.thread import MAX_THREADS

# The simplest first: starts nothing, threads or a loop in this process, other processes.
BACKENDS = ("serial", "thread", "asyncio", "process")

# A step may block the caller's event loop for this long: the loop turns this often in any case.
BLOCKING_SECONDS = 1e-3


@dataclass(frozen=True)
class Profile:
    """What one environment is like.

    Attributes:
        name: Its name.
        construction: Seconds to construct it, once its modules are imported.
        reset: Seconds of a reset.
        step: Seconds of a step, with its share of the resets at the ends of episodes.
        waiting: Share of these in which it waited instead of computing, 0 to 1.
        observation_bytes: Size of an observation.
        info_bytes: Pickled bytes per info that are sent as messages, on average. Empty and numeric
            infos count as 0: the latter are sent in the table.
        coroutine: It has an ``async def step``.
        table_infos: Share of steps whose info is sent in the table, 0 to 1.
    """

    name: str
    construction: float
    reset: float
    step: float
    waiting: float = 0.0
    observation_bytes: int = 0
    info_bytes: int = 0
    coroutine: bool = False
    table_infos: float = 0.0

    @property
    def computing(self) -> float:
        """Seconds of a step in which it computes."""
        return self.step * (1.0 - self.waiting)


@dataclass(frozen=True)
class Cost:
    """What a backend costs beside the environments, in seconds.

    Attributes:
        batch: Per batch.
        worker: Per worker and batch.
        host: Per environment, on its worker.
        byte: Per byte of observations, on its way to the caller.
        info: Per info that is a message, on its way to the caller.
        info_byte: Per byte of these.
    """

    batch: float = 0.0
    worker: float = 0.0
    host: float = 0.0
    byte: float = 0.0
    info: float = 0.0
    info_byte: float = 0.0


class Span(NamedTuple):
    """A predicted duration in seconds: the mean, and the pessimistic end."""

    usual: float
    worst: float

    def longer(self, seconds: float) -> Span:
        """Return the same with both ends later."""
        return Span(self.usual + seconds, self.worst + seconds)


@dataclass(frozen=True)
class Curve:
    """How long a batch takes while all workers compute at the same time, by the work of each.

    It contains what the cores cost one another (hyper-threads, quotas, other programs), waking,
    the wait for the slowest worker, and the caller's own work.

    Attributes:
        work: Seconds of work of each worker per batch, as one core does it alone; ascending.
        usual: Seconds that a batch takes, the mean without the slowest measurement.
        worst: The same and its standard error.
    """

    work: tuple[float, ...]
    usual: tuple[float, ...]
    worst: tuple[float, ...]

    def at(self, work: float) -> Span:
        """Interpolate; beyond the ends, the overhead or the slowdown is that of the end."""
        return Span(self._value(work, self.usual), self._value(work, self.worst))

    def _value(self, work: float, seconds: tuple[float, ...]) -> float:
        if work <= self.work[0]:
            return max(work, work + seconds[0] - self.work[0])
        if work >= self.work[-1]:
            return work * max(1.0, seconds[-1] / self.work[-1])
        return float(np.interp(work, self.work, seconds))


@dataclass(frozen=True)
class Machine:
    """What this machine costs.

    Attributes:
        cores: Cores that this process may use.
        costs: By backend.
        curves: Of worker processes, by their number.
        starts: Seconds to start worker processes, by their number.
        load: How many of the cores other programs kept busy when this was measured; ``None`` if
            this was not measured.
        measured: When it was measured last, in seconds since the epoch.
        times: How often it was measured; the best is kept.
    """

    cores: int
    costs: Mapping[str, Cost]
    curves: Mapping[int, Curve] = field(default_factory=dict)
    starts: Mapping[int, float] = field(default_factory=dict)
    load: float | None = None
    measured: float = 0.0
    times: int = 1

    @property
    def slowdown(self) -> float:
        """How many times longer than alone workers take at most, at the longest measured work."""
        return max((curve.worst[-1] / curve.work[-1] for curve in self.curves.values()), default=1)

    def curve(self, workers: int) -> tuple[int, Curve]:
        """Return the curve of the largest measured number of workers up to this one."""
        number = max((k for k in self.curves if k <= workers), default=min(self.curves))
        return number, self.curves[number]

    def start(self, backend: str, workers: int | None) -> float:
        """Return how many seconds the workers of a backend take to start."""
        if backend != "process" or not self.starts:
            return 0.0
        number = max((k for k in self.starts if k <= (workers or 1)), default=min(self.starts))
        return self.starts[number] * max(1.0, (workers or 1) / number)


@dataclass(frozen=True)
class Requirements:
    """What the caller requires.

    Attributes:
        num_envs: Number of environments.
        workers: Number of workers; ``None`` to choose it.
        blocking: The caller's thread runs no event loop while it waits.
        fault_tolerant: Environments that hang or crash must be ended and replaced automatically.
        max_concurrency: How many coroutine environments of a loop may be busy at once.
        overlap: Seconds for which the caller computes between a step's dispatch and its result.
        obstacle: Why no worker processes can run them; empty if they can.
    """

    num_envs: int
    workers: int | None = None
    blocking: bool = True
    fault_tolerant: bool = False
    max_concurrency: int | None = None
    overlap: float = 0.0
    obstacle: str = ""

    @property
    def usual(self) -> bool:
        """Whether batches take as long as for other callers, so that times may be shared."""
        return not self.overlap and self.max_concurrency is None


@dataclass(frozen=True)
class Candidate:
    """A backend with a number of workers.

    Attributes:
        backend: Its name.
        workers: Threads, processes or loops; ``None`` where there are none.
        predicted: Seconds per batch; ``None`` if not predicted.
        worst: The pessimistic end of the prediction.
        start: Seconds until the environments can be stepped.
        remark: Why it cannot be chosen; empty if it can.
        measured: Seconds per batch, if measured.
    """

    backend: str
    workers: int | None
    predicted: float | None = None
    worst: float | None = None
    start: float = 0.0
    remark: str = ""
    measured: float | None = None

    @property
    def name(self) -> str:
        return self.backend if self.workers is None else f"{self.backend} ×{self.workers}"

    @property
    def usual(self) -> float:
        """Seconds per batch, as measured, or else as predicted."""
        return self.measured or self.predicted or math.inf

    @property
    def pessimistic(self) -> float:
        """The same at the pessimistic end."""
        return self.measured or self.worst or math.inf


def predict(
    profile: Profile, machine: Machine, needs: Requirements, backend: str, workers: int | None
) -> Span:
    """Predict how long a batch takes, in seconds.

    With ``n`` environments on ``k`` workers::

        T = batch + k · worker + B + n · C       in this process, and on a cluster
        T = curve_k(W) + (B - W) + n · C         on worker processes
        C = byte · O + [I > 0] · (info + info_byte · I) + R · info / 2
        W = max( ⌈n / k⌉, n / p ) · (t · (1 - w) + host)
        B = max( ⌈n / k⌉ · (t + host), W )

    ======================  =======  =======================================================
    term                    unit     meaning
    ======================  =======  =======================================================
    ``t``                   s        a step of the environment, resets at ends included
    ``w``                   1        the share of it spent waiting
    ``O``, ``I``            bytes    an observation; an info that is a message, pickled
    ``R``                   1        the share of infos in the table, 0 for ``serial``
    ``p``                   1        workers that compute at once: 1 in this process, else
                                     ``min(k, cores)``
    ``W``                   s        what the busiest worker computes
    ``B``                   s        what it needs, with the time that it waits
    ``curve_k``             s        what a batch takes while ``k`` processes compute ``W``
                                     each at the same time, see :class:`Curve`
    ``batch``, ``worker``,  s        this machine's costs of the backend, see :class:`Cost`
    ``host``, ``info``
    ``byte``, ``info_byte`` s/byte   likewise
    ======================  =======  =======================================================

    Each environment on a loop is a worker for ``B`` (up to ``max_concurrency``), but costs nothing.

    Where the caller computes for ``overlap`` seconds meanwhile, the batch and that take as long as
    the longer of both, or as all cores need for their sum; in the caller's thread, their sum.

    Its special case with one worker that only computes (``k = p = 1``, ``w = 0``) is the
    efficiency of the literature on batched environments, ``E = N·t_env / (N·t_env + t_os)``, where
    ``t_os`` is all that ``T`` has beside ``n · t``: :func:`efficiency`.

    Returns:
        ``T``, and its pessimistic end: the curve's, or with twice the cost of the batch and the
        workers. That of ``serial``, with which others are compared, is ``T`` itself.
    """
    n, k = needs.num_envs, workers or 1
    cost = machine.costs[backend]
    computing = profile.computing + cost.host
    at_once = k
    if profile.coroutine:
        share = math.ceil(n / k)
        at_once = k * min(share, needs.max_concurrency or share)
    here = backend in ("serial", "asyncio", "thread")
    cores = 1 if here else min(k, machine.cores)
    work = n * computing if here else max(math.ceil(n / k), n / cores) * computing
    busy = max(math.ceil(n / at_once) * (profile.step + cost.host), work)
    each = cost.byte * profile.observation_bytes
    if profile.info_bytes:
        each += cost.info + cost.info_byte * profile.info_bytes
    if backend != "serial":
        # The caller makes a dict of each row, which takes half as long as a message and its dict.
        each += profile.table_infos * machine.costs["process"].info / 2
    if backend == "process" and machine.curves:
        number, curve = machine.curve(k)
        work = max(work, n / number * computing)
        span = curve.at(work).longer(max(busy, work) - work + n * each)
    else:
        overhead = cost.batch + k * cost.worker
        seconds = overhead + busy + n * each
        span = Span(seconds, seconds if backend == "serial" else seconds + overhead)
    if needs.overlap:
        own = n * computing if here else 0.0
        least = max(needs.overlap + own, (n * computing + needs.overlap) / machine.cores)
        if backend == "serial":
            span = span.longer(needs.overlap)
        else:
            span = Span(*(max(seconds, least) for seconds in span))
    return span


def efficiency(num_envs: float, step: float, overhead: float) -> float:
    """Return the literature's ``E = N·t_env / (N·t_env + t_os)``: see :func:`predict`.

    Args:
        num_envs: ``N``, or the environments of one core where several have a share.
        step: ``t_env``, in seconds.
        overhead: ``t_os``, in seconds per batch.
    """
    return num_envs * step / (num_envs * step + overhead)


def candidates(profile: Profile, machine: Machine, needs: Requirements) -> list[Candidate]:
    """List the backends that could run the environments, the simplest first."""
    found = []
    for backend in BACKENDS:
        for workers in _workers(backend, profile, machine, needs):
            span = predict(profile, machine, needs, backend, workers)
            per_worker = math.ceil(needs.num_envs / (workers or 1))
            start = machine.start(backend, workers) + per_worker * profile.construction
            remark = _reason_unsupported(backend, span.usual - needs.overlap, profile, needs)
            found.append(Candidate(backend, workers, *span, start, remark))
    return found


def _workers(
    backend: str, profile: Profile, machine: Machine, needs: Requirements
) -> Iterator[int | None]:
    """Yield the numbers of workers to consider for a backend."""
    if backend in ("serial", "asyncio"):
        if profile.coroutine is (backend == "asyncio"):
            yield None
        return
    if backend == "thread":
        if profile.coroutine:
            return
        # Threads that only take turns gain nothing from their number.
        most = min(MAX_THREADS, needs.num_envs) if profile.waiting > 0.0 else 1
    else:
        most = min(machine.cores, needs.num_envs)
    if needs.workers is not None:
        yield min(needs.workers, needs.num_envs)
        return
    yield from worker_counts(most)


def worker_counts(most: int) -> list[int]:
    """Return the numbers of workers to consider: the powers of two below the most, and that."""
    return sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})


def _reason_unsupported(backend: str, seconds: float, profile: Profile, needs: Requirements) -> str:
    """Return why a backend cannot be chosen; empty if it can."""
    if needs.fault_tolerant and backend == "serial":
        return "cannot end what hangs"
    if backend == "process" and needs.obstacle:
        return needs.obstacle
    if backend == "serial" and needs.workers is not None:
        return "has no workers"
    if backend == "serial" and not needs.blocking and seconds + profile.reset > BLOCKING_SECONDS:
        return "would block the event loop"
    return ""
