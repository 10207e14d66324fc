"""The ``fleet`` option: its record, which backends follow it, and what hosts need of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agym.backends.options import BackendSpec
from agym.errors import UsageError
from agym.hosts.factories import Factory, innermost
from agym.hosts.fleet.rate_limit import RateLimiter
from agym.hosts.fleet.setup import FleetSetup
from agym.protocol.arguments import check_seconds

_HOSTS = "take backend='process', 'thread' or 'serial', or 'asyncio' for coroutine environments"

# The backends that follow each option, and what to do with others.
FOLLOWED_BY = {
    "rate_limit": (("serial", "thread", "asyncio", "process"), _HOSTS),
    "hedge": (
        ("asyncio", "process", "ray"),
        "take backend='asyncio' or 'process', and environments with `async def step`",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """How environments that are rationed or sometimes slow are called.

    Example:
        >>> import agym
        >>> fleet = agym.Fleet(rate_limit=1000)
        >>> with agym.make("CartPole-v1", 2, autoreset="next_step", fleet=fleet) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     result = envs.step([1, 1])
        ...     envs.stats().fleet.rate_waited > 0
        True

    Pass it to :func:`agym.make` as ``fleet=``.

    Attributes:
        rate_limit: Calls of ``step`` and ``reset`` per second, over all environments of one kind
            (an id, a class, a factory) and all workers. A call beyond that waits for its turn,
            which does not count against ``timeout``. ``None`` for no limit.
        hedge: Make a step that has not returned after so many seconds a second time, at the same
            time; the first to return counts, and the other is cancelled. ``0`` makes each step
            twice at once, ``None`` none. Only for coroutine environments that declare, by a class
            attribute ``idempotent = True`` or in ``metadata``, that a step made twice is as good
            as one, and that two may run at the same time.

    Raises:
        UsageError: A value is invalid.
    """

    rate_limit: float | None = None
    hedge: float | None = None

    def __post_init__(self) -> None:
        if self.rate_limit is not None:
            check_seconds("rate_limit", self.rate_limit, "calls per second", ", or None")
        # ``False == 0`` would make each step twice.
        if self.hedge is not None and (self.hedge != 0 or isinstance(self.hedge, bool)):
            check_seconds("hedge", self.hedge, other=", 0 for at once, or None")

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the options that are on."""
        return tuple(name for name, value in vars(self).items() if value is not None)


def parse_fleet(fleet: Fleet | None) -> Fleet:
    """Parse ``fleet``.

    Raises:
        UsageError: It is no :class:`Fleet`.
    """
    if fleet is None:
        return Fleet()
    if isinstance(fleet, Fleet):
        return fleet
    raise UsageError(f"fleet={fleet!r} must be an agym.Fleet: agym.Fleet(rate_limit=10)")


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
    if not fleet.active:
        return None
    rate = fleet.rate_limit
    limiter = None if rate is None else RateLimiter(rate, number_kinds(factories))
    return FleetSetup(limiter, fleet.hedge)


def number_kinds(factories: Sequence[Factory]) -> list[int]:
    """Number the kinds of environments that factories make, from 0."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(_kind(factory), len(numbers)) for factory in factories]


def _kind(factory: Any) -> Hashable:
    """Return what factories of the same kind have in common: an id, a class, or their code."""
    made = innermost(factory)
    while isinstance(factory, partial):
        for given in factory.args:
            env_id = getattr(given, "id", given)
            if isinstance(env_id, str) and getattr(made, "__module__", "").startswith("gymnasium"):
                return env_id
        factory = factory.func
    return getattr(made, "__code__", None) or id(made)
