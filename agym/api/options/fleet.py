"""The ``fleet`` option: which backends follow it, and what hosts need of it."""

from __future__ import annotations

from collections.abc import Sequence

from agym.backends.options import BackendSpec
from agym.errors import UsageError
from agym.hosts.base import Factory
from agym.hosts.fleet.options import Fleet
from agym.hosts.fleet.rate_limit import RateLimiter, number_kinds
from agym.hosts.fleet.setup import FleetSetup

_HOSTS = "take backend='process', 'thread' or 'serial', or 'asyncio' for coroutine environments"

# The backends that follow each option, and what to do with others.
FOLLOWED_BY = {
    "spares": (("serial", "thread", "asyncio", "process", "ray"), _HOSTS),
    "rate_limit": (("serial", "thread", "asyncio", "process"), _HOSTS),
    "hedge": (
        ("asyncio", "process", "ray"),
        "take backend='asyncio' or 'process', and environments with `async def step`",
    ),
}


def setup_fleet(fleet: Fleet, spec: BackendSpec, factories: Sequence[Factory]) -> FleetSetup | None:
    """Return what hosts need, ``None`` if no option is on.

    Raises:
        UsageError: The backend does not follow an option.
    """
    for name in fleet.active:
        backends, remedy = FOLLOWED_BY[name]
        if spec.name not in backends:
            raise UsageError(
                f"fleet=agym.Fleet({name}=...) is not for backend={spec.name!r}: {remedy}"
            )
    if fleet.spares and getattr(spec, "recycle", None) is not None:
        raise UsageError(
            "fleet=agym.Fleet(spares=...) exchanges environments, and recycle= moves them to other"
            " workers: leave one of them out"
        )
    if not fleet.active:
        return None
    rate = fleet.rate_limit
    limiter = None if rate is None else RateLimiter(rate, number_kinds(factories))
    return FleetSetup(fleet.spares, limiter, fleet.hedge)
