"""Predicts how long a batch takes on each backend, and chooses one. Nothing is measured here.

A :class:`Profile` describes one environment, a :class:`Transport` the costs of this machine. Both
are measured elsewhere (``planning/profiling.py``, ``api/auto/transport.py``)::

    Profile + Transport + Requirements --> candidates with predicted seconds --> the chosen one
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from agym.backends.thread import MAX_THREADS

# A simpler backend is preferred to one that is faster by less than this share.
MARGIN = 0.05

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
        parallel: Threads compute it at the same time, since it releases the GIL.
        observation_bytes: Size of an observation.
        info_bytes: Pickled bytes per info that are sent as messages, on average. Empty and numeric
            infos count as 0: the latter are sent in the table.
        coroutine: It has an ``async def step``.
    """

    name: str
    construction: float
    reset: float
    step: float
    waiting: float = 0.0
    parallel: bool = False
    observation_bytes: int = 0
    info_bytes: int = 0
    coroutine: bool = False

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
        wake: Per batch that takes longer than the caller spins, so that it sleeps.
        host: Per environment, on its worker.
        byte: Per byte of observations, on its way to the caller.
        info: Per info that is a message, on its way to the caller.
        info_byte: Per byte of these.
    """

    batch: float
    worker: float = 0.0
    wake: float = 0.0
    host: float = 0.0
    byte: float = 0.0
    info: float = 0.0
    info_byte: float = 0.0


@dataclass(frozen=True)
class Transport:
    """What this machine costs.

    Attributes:
        cores: Cores that this process may use.
        watch: Seconds for which a caller spins before it sleeps.
        costs: By backend.
    """

    cores: int
    watch: float
    costs: dict[str, Cost]


@dataclass(frozen=True)
class Requirements:
    """What the caller requires.

    Attributes:
        num_envs: Number of environments.
        workers: Number of workers; ``None`` to choose it.
        blocking: The caller's thread runs no event loop while it waits.
        fault_tolerant: Environments that hang or crash must be ended and replaced automatically.
        max_concurrency: How many coroutine environments of a loop may be busy at once.
        obstacle: Why no worker processes can run them; empty if they can.
    """

    num_envs: int
    workers: int | None = None
    blocking: bool = True
    fault_tolerant: bool = False
    max_concurrency: int | None = None
    obstacle: str = ""


@dataclass(frozen=True)
class Candidate:
    """A backend with a number of workers.

    Attributes:
        backend: Its name.
        workers: Threads, processes or loops; ``None`` where there are none.
        predicted: Seconds per batch; ``None`` if not predicted.
        remark: Why it cannot be chosen; empty if it can.
        measured: Seconds per batch, if measured.
    """

    backend: str
    workers: int | None
    predicted: float | None
    remark: str = ""
    measured: float | None = None

    @property
    def name(self) -> str:
        return self.backend if self.workers is None else f"{self.backend} ×{self.workers}"


def predict(
    profile: Profile, transport: Transport, needs: Requirements, backend: str, workers: int | None
) -> float:
    """Predict how long a batch takes, in seconds.

    With ``n`` environments on ``k`` workers::

        T = batch + k · worker + [B > watch] · wake + B + n · C
        C = byte · O + [I > 0] · (info + info_byte · I)
        B = max( ⌈n / k⌉ · (t + host),  n · (t · (1 - w) + host) / p )

    ======================  =======  =======================================================
    term                    unit     meaning
    ======================  =======  =======================================================
    ``t``                   s        a step of the environment, resets at ends included
    ``w``                   1        the share of it spent waiting
    ``O``, ``I``            bytes    an observation; an info that is a message, pickled
    ``p``                   1        workers that compute at once: 1 in this process unless
                                     the environment releases the GIL, else ``min(k, cores)``
    ``B``                   s        what the busiest worker, or all cores together, need
    ``batch``, ``worker``,  s        this machine's costs of the backend, see :class:`Cost`
    ``wake``, ``host``,
    ``info``
    ``byte``, ``info_byte`` s/byte   likewise
    ======================  =======  =======================================================

    Each environment on a loop is a worker for ``B`` (up to ``max_concurrency``), but costs nothing.

    Its special case with one worker that only computes (``k = p = 1``, ``w = 0``) is the
    efficiency of the literature on batched environments, ``E = N·t_env / (N·t_env + t_os)``, where
    ``t_os`` is all that ``T`` has beside ``n · t``: :func:`efficiency`.
    """
    n, k = needs.num_envs, workers or 1
    cost = transport.costs[backend]
    at_once, cores = k, min(k, transport.cores)
    if profile.coroutine:
        share = math.ceil(n / k)
        at_once = k * min(share, needs.max_concurrency or share)
    if backend in ("serial", "asyncio") or (backend == "thread" and not profile.parallel):
        cores = 1
    busy = max(
        math.ceil(n / at_once) * (profile.step + cost.host),
        n * (profile.computing + cost.host) / cores,
    )
    each = cost.byte * profile.observation_bytes
    if profile.info_bytes:
        each += cost.info + cost.info_byte * profile.info_bytes
    wake = cost.wake if busy > transport.watch else 0.0
    return cost.batch + k * cost.worker + wake + busy + n * each


def efficiency(num_envs: float, step: float, overhead: float) -> float:
    """Return the literature's ``E = N·t_env / (N·t_env + t_os)``: see :func:`predict`.

    Args:
        num_envs: ``N``, or the environments of one core where several have a share.
        step: ``t_env``, in seconds.
        overhead: ``t_os``, in seconds per batch.
    """
    return num_envs * step / (num_envs * step + overhead)


def candidates(profile: Profile, transport: Transport, needs: Requirements) -> list[Candidate]:
    """List the backends that could run the environments, the simplest first."""
    found = []
    for backend in BACKENDS:
        for workers in _workers(backend, profile, transport, needs):
            seconds = predict(profile, transport, needs, backend, workers)
            remark = _reason_unsupported(backend, seconds, profile, needs)
            found.append(Candidate(backend, workers, seconds, remark))
    return found


def _workers(
    backend: str, profile: Profile, transport: Transport, needs: Requirements
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
        helps = profile.waiting > 0.0 or profile.parallel
        most = MAX_THREADS if profile.waiting > 0.0 else transport.cores
        most = min(most, needs.num_envs) if helps else 1
    else:
        most = min(transport.cores, needs.num_envs)
    if needs.workers is not None:
        yield min(needs.workers, needs.num_envs)
        return
    yield from sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})


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


def choose(found: list[Candidate]) -> Candidate | None:
    """Return the simplest candidate within ``MARGIN`` of the fastest, ``None`` if none is able."""
    able = [one for one in found if not one.remark and one.predicted is not None]
    if not able:
        return None
    best = min(one.predicted or 0.0 for one in able)
    return next(one for one in able if (one.predicted or 0.0) <= best * (1 + MARGIN))
