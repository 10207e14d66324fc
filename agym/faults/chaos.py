"""Chaos: makes environments crash, hang, raise and stall at random, to test fault handling.

Faults are drawn before a step is sent. The hosts of the chosen environments then inject them, so
that a fault really happens where the environment runs::

    step(ids) --> draw a number per env --> "inject_fault" to env i --> the step itself

No fault is injected into a worker that another fault is about to stop, because it might not
happen. So :attr:`Chaos.injected` counts faults that did happen.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from agym import Hook, Tap, envs_of
from agym.core.engine.attached import Attached
from agym.core.protocol.arguments import Ids, is_number
from agym.errors import UsageError

KINDS = ("kill", "hang", "error", "delay")

# How a worker is killed: with SIGKILL, with SIGSEGV, or by a call of exit.
WAYS = ("kill", "segfault", "exit")


class Injection(NamedTuple):
    """One step that was made to fail.

    Attributes:
        env_id: The environment; in a group of ``split``, its id before the split.
        kind: ``"kill"``, ``"hang"``, ``"error"`` or ``"delay"``.
    """

    env_id: int
    kind: str


def chaos(
    envs: Any,
    *,
    kill: float = 0.0,
    hang: float = 0.0,
    error: float = 0.0,
    delay: float = 0.0,
    seed: int | None = 0,
    hang_seconds: float = 3600.0,
    delay_seconds: float = 0.1,
    ways: Sequence[str] = WAYS,
) -> Chaos:
    """Make steps fail at random, to test a trainer or the ``on_fault`` option.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4, on_fault="restart", output="array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.chaos(envs, error=0.5) as chaos:
        ...         results = [envs.step([0, 1, 0, 1]) for _ in range(5)]
        ...     faults = sum("fault" in info for result in results for info in result.infos)
        ...     faults == chaos.injected["error"] > 0
        True

    Each of the four rates is a probability per step of one environment. The same seed and the
    same steps result in the same faults. While a kill or a hang is in flight in a worker, its other
    environments get no faults. An environment that is being replaced gets none, either.

    Args:
        envs: Opened environments that agym runs, wrapped or not; for a group of ``split``, only
            this group gets faults.
        kill: The worker process is killed. Requires worker processes: ``backend="process"`` or
            ``"ray"``.
        hang: The step does not return. Requires ``timeout=`` and a backend that can interrupt it.
        error: The step raises.
        delay: The step takes ``delay_seconds`` longer.
        seed: Seed of the random draws; ``None`` for a random seed.
        hang_seconds: How long a hang lasts if nothing interrupts it. A thread can't be killed: it
            is abandoned, and runs for this long.
        delay_seconds: How much longer a delayed step takes.
        ways: How workers are killed, in turn: ``"kill"`` (SIGKILL), ``"segfault"``, ``"exit"``.

    Returns:
        A :class:`Chaos`, which counts the injected faults. It is active at once, until the end of
        its block or ``close()``.

    Raises:
        UsageError: An argument is invalid, or the backend does not support it.
        ClosedError: The environments are not open.
    """
    rates = {"kill": kill, "hang": hang, "error": error, "delay": delay}
    seconds = {"hang": hang_seconds, "delay": delay_seconds}
    for name, value in rates.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise UsageError(f"{name}={value!r} must be a probability per step, from 0 to 1")
    if sum(rates.values()) > 1 + 1e-9:
        raise UsageError(
            f"{', '.join(rates)} add up to {sum(rates.values()):g}: a step gets one fault at most,"
            " so the sum of the probabilities must be at most 1"
        )
    for name, value in seconds.items():
        if not is_number(value) or not 0 <= value < math.inf:
            raise UsageError(f"{name}_seconds={value!r} must be a number of seconds")
    if not ways or not set(ways) <= set(WAYS):
        raise UsageError(f"ways={ways!r} must be a sequence of one or more of {', '.join(WAYS)}")
    api = envs_of(envs, "agym.chaos")
    tap = api.tap
    _check_backend(tap, api.backend, rates)
    if any(isinstance(hook, Chaos) for hook in tap.hooks):
        raise UsageError("these environments already have an agym.chaos: close() it first")
    return Chaos(tap, api.env_ids, rates, seconds, ways, seed)


def _check_backend(tap: Tap, backend: str, rates: dict[str, float]) -> None:
    """Refuse faults that are impossible, or never end, with the backend."""
    if rates["kill"] and any(worker.pid == os.getpid() for worker in tap.stats().workers):
        raise UsageError(
            f"kill={rates['kill']:g} needs worker processes for all environments, and this program"
            " runs some of them itself: use backend='process'"
        )
    if rates["hang"]:
        if tap.timeout_ends is None:
            raise UsageError(
                f"hang={rates['hang']:g} doesn't work with backend={backend!r}, which can't"
                " interrupt a step that hangs: use backend='process' or 'thread', or delay="
            )
        if tap.timeout is None:
            raise UsageError(
                f"hang={rates['hang']:g} needs a deadline, or the first step that hangs never"
                " returns: pass timeout= when you make the environments"
            )


class Chaos(Attached, Hook):
    """Injects faults at random until it is closed; made by :func:`agym.chaos`.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4, on_fault="restart") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.chaos(envs, error=1.0) as chaos:
        ...         result = envs.step([0, 1, 0, 1])
        >>> chaos.injected["error"]
        4

    Attributes:
        injections: All injected faults so far, in order.
    """

    def __init__(
        self,
        tap: Tap,
        env_ids: Sequence[int],
        rates: dict[str, float],
        seconds: dict[str, float],
        ways: Sequence[str],
        seed: int | None,
    ) -> None:
        self.injections: list[Injection] = []
        self._tap = tap
        self._members = frozenset(env_ids)
        self._rng = np.random.default_rng(seed)
        # A number below the first bound kills, below the second hangs, and so on.
        self._bounds = np.cumsum([rates[kind] for kind in KINDS])
        self._seconds = seconds
        self._ways = cycle(ways)
        # Kinds that stop all environments of a worker: such a fault must be over before the next.
        self._worker_wide = {"kill"}
        if tap.timeout is not None and tap.timeout_ends != "env":
            self._worker_wide |= {"hang", "delay"}
        # Faults per worker that may still be in flight, and the environments whose fault was
        # injected for the step that is about to be sent.
        self._in_flight: dict[int, list[Injection]] = {}
        self._unsent: set[int] = set()
        # The first hook, before a recording sends renders: busy environments get no faults.
        tap.add_hook(self, first=True)

    @property
    def injected(self) -> dict[str, int]:
        """Number of injected faults so far, by kind."""
        counts = Counter(injection.kind for injection in self.injections)
        return {kind: counts[kind] for kind in KINDS}

    def _finish(self) -> None:
        self._tap.remove_hook(self)

    def before_step(self, ids: Ids) -> None:
        """Draw a number for each environment of a step that is about to be sent."""
        if len(self._members) < self._tap.num_envs:
            ids = tuple(i for i in ids if i in self._members)
        draws = self._rng.random(len(ids))
        chosen = np.flatnonzero(draws < self._bounds[-1])
        if not len(chosen):
            return
        self._unsent.clear()
        for k in chosen:
            kind = KINDS[int(np.searchsorted(self._bounds, draws[k], side="right"))]
            self._inject(Injection(ids[k], kind))

    def _inject(self, injection: Injection) -> None:
        """Inject a fault, unless this fault or another one might not happen then."""
        env_id, kind = injection
        # The fault might affect an earlier operation in flight, such as a reset, and not the step.
        if self._tap.is_busy(env_id):
            return
        worker = self._tap.worker_of(env_id)
        others = [other for other in self._in_flight.get(worker, ()) if self._is_under_way(other)]
        if others and (
            kind in self._worker_wide or any(other.kind in self._worker_wide for other in others)
        ):
            return
        self._in_flight[worker] = [*others, injection]
        self._unsent.add(env_id)
        name = next(self._ways) if kind == "kill" else kind
        self._tap.inject_fault(env_id, name, self._seconds.get(kind, 0.0))
        self.injections.append(injection)

    def _is_under_way(self, injection: Injection) -> bool:
        return injection.env_id in self._unsent or self._tap.is_busy(injection.env_id)
