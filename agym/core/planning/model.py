"""Predicts the time of a batch on each backend. Nothing is measured or chosen here.

One environment is measured elsewhere (``planning/sampling.py``), and measurements of real runs
replace the prediction (``planning/caching.py``)::

    Profile + Requirements --> a candidate per backend, with predicted seconds --> the chosen one
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from agym.core._system.cpus import available_cores
from agym.core.backends.thread import MAX_THREADS

# The simplest first: without workers, with threads or a loop, with other processes.
BACKENDS = ("serial", "thread", "asyncio", "process")

# A step may block the caller's event loop for this long; the loop turns at least this often anyway.
BLOCKING_SECONDS = 1e-3

# Seconds that a backend costs per batch, and per worker and batch. Machines differ by a factor of
# two in both directions; if that matters, the simpler backend is chosen (``planning/choice.py``).
COSTS = {
    "serial": (0.0, 0.0), "thread": (0.0, 80e-6), "asyncio": (0.0, 0.0), "process": (50e-6, 10e-6),
}  # fmt: skip

# Seconds that the caller needs for each value of an info from another process.
INFO_VALUE = 1e-6

# Seconds that a batch in worker processes costs if they share cores with other work, because a
# worker that wakes up may have to wait for its core. Measured with two busy loops on two cores.
CROWDED_BATCH = 1e-3

# The smallest number of workers is used whose batches take at most this many times as long as the
# fastest.
FEW_WORKERS = 1.05


@dataclass(frozen=True)
class Profile:
    """The measurements of one environment.

    Attributes:
        name: Its name.
        construction: Seconds to construct it, once its modules are imported.
        reset: Seconds of a reset.
        step: Seconds of a step, with its share of the resets at the ends of episodes.
        waiting: The share of that time in which it waited instead of computing, 0 to 1.
        infos: Number of values in an info, on average.
        coroutine: Whether it has an ``async def step``.
    """

    name: str
    construction: float
    reset: float
    step: float
    waiting: float = 0.0
    infos: float = 0.0
    coroutine: bool = False


@dataclass(frozen=True)
class Requirements:
    """The caller's requirements.

    Attributes:
        num_envs: Number of environments.
        workers: Number of workers; ``None`` if ``auto`` chooses it.
        blocking: Whether the caller's thread runs no event loop while it waits.
        fault_tolerant: Whether hanging or crashing environments must be replaced automatically.
        cores: Cores that worker processes may use at the same time.
        others: How many of them other programs, and other threads of this program, keep busy.
        obstacle: Why worker processes cannot run the environments; empty if they can.
    """

    num_envs: int
    workers: int | None = None
    blocking: bool = True
    fault_tolerant: bool = False
    cores: int = field(default_factory=available_cores)
    others: int = 0
    obstacle: str = ""


@dataclass(frozen=True)
class Candidate:
    """A backend with a number of workers.

    Attributes:
        backend: Its name.
        workers: Threads, processes or loops; ``None`` if there are none.
        predicted: Seconds per batch; ``None`` if not predicted.
        remark: Why it cannot be chosen; empty if it can.
        measured: Seconds per batch, if measured.
    """

    backend: str
    workers: int | None
    predicted: float | None = None
    remark: str = ""
    measured: float | None = None

    @property
    def name(self) -> str:
        return self.backend if self.workers is None else f"{self.backend} ×{self.workers}"

    @property
    def seconds(self) -> float:
        """Seconds per batch, measured if possible, else predicted."""
        return self.measured or self.predicted or math.inf


def predict(profile: Profile, needs: Requirements, backend: str, workers: int | None) -> float:
    """Predict the time of a batch, in seconds.

    With ``n`` environments, each of which computes for ``c`` and waits for ``w`` seconds per step,
    on ``k`` workers and ``p`` cores, ``o`` of which are busy with other work::

        serial     n · c · s + n · w                              s = max(1, (1 + o) / p)
        thread     n · c · s + ⌈n / k⌉ · w + k · 80 µs
        asyncio    n · c · s + w
        process    ⌈n / k⌉ · c · t + ⌈n / k⌉ · w + 50 µs          t = ⌈(k + o) / p⌉
                   + k · 10 µs + n · i · 1 µs  (+ 1 ms if k + o > p and o > 0)

    The scheduler shares out the cores fairly. It moves a single thread to any core that is free,
    but a batch in worker processes lasts until the worker on the fullest core is done. ``i`` is the
    number of values in an info. Coroutine environments of a process wait concurrently, as with
    ``asyncio``.
    """
    n, k, cores, others = needs.num_envs, workers or 1, needs.cores, needs.others
    share = math.ceil(n / k)
    waits = profile.step * profile.waiting
    computes = profile.step - waits
    batch, worker = COSTS[backend]
    seconds = (waits if profile.coroutine else share * waits) + batch + k * worker
    if backend != "process":
        return seconds + n * computes * max(1.0, (1 + others) / cores)
    if others and k + others > cores:
        seconds += CROWDED_BATCH
    seconds += share * computes * math.ceil((k + others) / cores)
    return seconds + n * profile.infos * INFO_VALUE


def candidates(profile: Profile, needs: Requirements) -> list[Candidate]:
    """List the backends that could run the environments, the simplest first."""
    options = []
    for backend in BACKENDS:
        tried = [
            (predict(profile, needs, backend, k), k) for k in _workers(backend, profile, needs)
        ]
        if tried:
            enough = FEW_WORKERS * min(tried)[0]
            seconds, workers = next(trial for trial in tried if trial[0] <= enough)
            remark = _reason_unsupported(backend, seconds, profile, needs)
            options.append(Candidate(backend, workers, seconds, remark))
    return options


def _workers(backend: str, profile: Profile, needs: Requirements) -> Iterator[int | None]:
    """Yield the numbers of workers to consider for a backend, the fewest first."""
    if backend in ("serial", "asyncio"):
        if profile.coroutine is (backend == "asyncio"):
            yield None
    elif backend == "thread" and profile.coroutine:
        return
    elif needs.workers is not None:
        yield min(needs.workers, needs.num_envs)
    else:
        most = min(needs.cores, needs.num_envs)
        free = max(1, min(most, needs.cores - needs.others))
        if backend == "thread":
            # More threads help only if they wait; threads that compute just take turns.
            most = free = min(MAX_THREADS, needs.num_envs) if profile.waiting > 0.0 else 1
        yield from sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), free, most})


def _reason_unsupported(backend: str, seconds: float, profile: Profile, needs: Requirements) -> str:
    """Return why a backend cannot be chosen; empty if it can."""
    if backend == "process":
        return needs.obstacle
    if backend == "serial" and needs.workers is not None:
        return "has no workers"
    if backend == "serial" and not needs.blocking and seconds + profile.reset > BLOCKING_SECONDS:
        return "would block the event loop"
    return ""
