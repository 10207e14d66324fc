"""Planning: predicts how long a batch takes on each backend, and chooses. Nothing is measured here.

What one environment is like is a :class:`Profile`, what this machine costs a :class:`Transport`;
both are measured elsewhere (``profiling.py``, ``transport.py``)::

    Profile + Transport + Ask --> candidates, each with predicted seconds --> the one chosen
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

# A simpler place is preferred to one that is quicker by less than this share.
MARGIN = 0.05

# Threads beyond this are not tried.
MAX_THREADS = 256

# From the simplest on: without anything started, in this process, in others.
BACKENDS = ("serial", "thread", "asyncio", "process")

# What blocks the caller's event loop may do so for this long: so often the loop turns in any case.
BLOCKING_SECONDS = 1e-3


@dataclass(frozen=True)
class Profile:
    """What one environment is like.

    Attributes:
        name: What it is called.
        construction: Seconds to construct it, once its modules are imported.
        reset: Seconds of a reset.
        step: Seconds of a step, with its share of the resets at the ends of episodes.
        waiting: Share of these in which it waited instead of computing, 0 to 1.
        parallel: Threads compute it at the same time, since it releases the GIL.
        observation_bytes: Size of an observation.
        info_bytes: Size of an info, pickled, on average of those that travel as messages; 0 where
            they are empty, or numbers, which travel in the table.
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
        batch: A batch, whatever is in it.
        worker: Each worker of a batch.
        wake: A batch that takes longer than the caller watches, so that it sleeps.
        host: Each environment, where it lives.
        byte: Each byte of observations, on its way to the caller.
        info: Each info that is a message, on its way to the caller.
        info_byte: Each byte of these.
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
        watch: Seconds for which a caller watches before it sleeps.
        costs: By backend.
    """

    cores: int
    watch: float
    costs: dict[str, Cost]


@dataclass(frozen=True)
class Requirements:
    """What the caller wants.

    Attributes:
        num_envs: How many environments.
        workers: How many workers; ``None`` to have them chosen.
        blocking: The caller's thread runs no event loop while it waits.
        endable: What hangs or breaks has to be ended and replaced by itself.
        max_concurrency: How many coroutine environments of a loop may be busy at once.
        obstacle: Why no worker processes can run them; empty if they can.
    """

    num_envs: int
    workers: int | None = None
    blocking: bool = True
    endable: bool = False
    max_concurrency: int | None = None
    obstacle: str = ""


@dataclass(frozen=True)
class Candidate:
    """A place to live.

    Attributes:
        backend: Its name.
        workers: Threads, processes or loops; ``None`` where there are none.
        predicted: Seconds per batch; ``None`` if that is not predicted.
        remark: Why it cannot be chosen; empty if it can.
        measured: Seconds per batch, if it was tried.
    """

    backend: str
    workers: int | None
    predicted: float | None
    remark: str = ""
    measured: float | None = None

    @property
    def name(self) -> str:
        """Backend and workers."""
        return self.backend if self.workers is None else f"{self.backend} ×{self.workers}"


def predict(
    profile: Profile, transport: Transport, ask: Requirements, backend: str, workers: int | None
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
    ``B``                   s        what the busiest worker, or the cores together, need
    ``batch``, ``worker``,  s        this machine's costs of the backend, see :class:`Cost`
    ``wake``, ``host``,
    ``info``
    ``byte``, ``info_byte`` s/byte   likewise
    ======================  =======  =======================================================

    Each environment on a loop is a worker of ``B`` (up to ``max_concurrency``), but costs none.

    Its special case with one worker that only computes (``k = p = 1``, ``w = 0``) is the
    efficiency of the literature on batched environments, ``E = N·t_env / (N·t_env + t_os)``, where
    ``t_os`` is all that ``T`` has beside ``n · t``: :func:`efficiency`.
    """
    n, k = ask.num_envs, workers or 1
    cost = transport.costs[backend]
    at_once, cores = k, min(k, transport.cores)
    if profile.coroutine:
        share = math.ceil(n / k)
        at_once = k * min(share, ask.max_concurrency or share)
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
    """The literature's ``E = N·t_env / (N·t_env + t_os)``: see :func:`predict`.

    Args:
        num_envs: ``N``, or the environments of one core where several have a share.
        step: ``t_env``, in seconds.
        overhead: ``t_os``, in seconds per batch.
    """
    return num_envs * step / (num_envs * step + overhead)


def candidates(profile: Profile, transport: Transport, ask: Requirements) -> list[Candidate]:
    """List where the environments could live, the simplest first."""
    found = []
    for backend in BACKENDS:
        for workers in _workers(backend, profile, transport, ask):
            seconds = predict(profile, transport, ask, backend, workers)
            remark = _reason_unsupported(backend, seconds, profile, ask)
            found.append(Candidate(backend, workers, seconds, remark))
    return found


def _workers(
    backend: str, profile: Profile, transport: Transport, ask: Requirements
) -> Iterator[int | None]:
    """The numbers of workers to consider for a backend."""
    if backend in ("serial", "asyncio"):
        if profile.coroutine is (backend == "asyncio"):
            yield None
        return
    if backend == "thread":
        if profile.coroutine:
            return
        # Threads that only take turns gain nothing by being many.
        helps = profile.waiting > 0.0 or profile.parallel
        most = MAX_THREADS if profile.waiting > 0.0 else transport.cores
        most = min(most, ask.num_envs) if helps else 1
    else:
        most = min(transport.cores, ask.num_envs)
    if ask.workers is not None:
        yield min(ask.workers, ask.num_envs)
        return
    yield from sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})


def _reason_unsupported(backend: str, seconds: float, profile: Profile, ask: Requirements) -> str:
    """Say why a backend cannot be chosen."""
    if ask.endable and backend == "serial":
        return "cannot end what hangs"
    if backend == "process" and ask.obstacle:
        return ask.obstacle
    if backend == "serial" and ask.workers is not None:
        return "has no workers"
    if backend == "serial" and not ask.blocking and seconds + profile.reset > BLOCKING_SECONDS:
        return "would block the event loop"
    return ""


def choose(found: list[Candidate]) -> Candidate | None:
    """Choose the quickest that can be chosen, or one nearly as quick that is simpler."""
    able = [one for one in found if not one.remark and one.predicted is not None]
    if not able:
        return None
    best = min(one.predicted or 0.0 for one in able)
    return next(one for one in able if (one.predicted or 0.0) <= best * (1 + MARGIN))
