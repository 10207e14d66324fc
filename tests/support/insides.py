"""What tests look at that users do not: all in one place, so that it is seen how much that is."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from agym.core.protocol.metrics.gauges import Gauges, gauge_fields
from tests.support.patience import patience


def gauges_of(num_envs: int) -> Gauges:
    """Gauges in memory of their own."""
    fields = gauge_fields(num_envs)
    return Gauges({name: np.zeros(shape, dtype) for name, (dtype, shape) in fields.items()})


def engine_of(envs: Any) -> Any:
    """The engine under environments, of either API."""
    return envs._engine


def leases_of(envs: Any) -> Any:
    """The planes that the caller of open environments may lease."""
    return envs._engine._rows.opened.batches.leases


def backend_of(envs: Any) -> Any:
    """The backend under environments."""
    return envs._backend


def workers_of(envs: Any) -> list[Any]:
    """The ports of a backend, one per worker."""
    workers: list[Any] = envs._backend._ports
    return workers


def hub_of(page: Any) -> Any:
    """What a live page is made of."""
    return page._hub


def is_held(page: Any) -> bool:
    """Whether a paused page holds a step back at this moment: its caller waits."""
    return holds_somebody(hub_of(page).throttle)


def holds_somebody(throttle: Any) -> bool:
    """Whether a paused throttle holds a step back at this moment: its caller waits."""
    waits = throttle._sleepers or throttle._changed._waiters
    return bool(waits and throttle.paused and throttle._dispatched > throttle._granted)


def painted(page: Any) -> int:
    """How many pictures a page has painted, those included that were rendered before this call."""
    hub = hub_of(page)

    async def count() -> int:
        while hub._painting is not None and not hub._painting.done():
            await asyncio.wait([hub._painting])
        return int(hub._shown)

    return asyncio.run_coroutine_threadsafe(count(), hub._loop).result(patience())
