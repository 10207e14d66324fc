"""The ``fleet`` option."""

from __future__ import annotations

from dataclasses import dataclass

from agym.errors import UsageError
from agym.protocol.arguments import check_count, check_seconds


@dataclass(frozen=True)
class Fleet:
    """How environments that are slow, rationed or uneven are treated.

    Example:
        >>> import agym
        >>> fleet = agym.Fleet(spares=1, rate_limit=1000)
        >>> with agym.make("CartPole-v1", 2, autoreset="next_step", fleet=fleet) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     for _ in range(30):
        ...         result = envs.step([1, 1])
        ...     envs.stats().fleet.spares_used > 0
        True

    Pass it to :func:`agym.make` as ``fleet=``.

    Attributes:
        spares: Environments that each worker has beside its own, and resets ahead: one whose
            episode ends is replaced at once by one that was reset meanwhile. 0 for none. A reset
            without a seed then has one of its own, derived from the latest seed, so that
            a run does not depend on which environment was ready first. What ``set_attr`` and
            ``call`` change in an environment is not in its spare.
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

    spares: int = 0
    rate_limit: float | None = None
    hedge: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spares", check_count("spares", self.spares, least=0))
        if self.rate_limit is not None:
            check_seconds("rate_limit", self.rate_limit, "calls per second", ", or None")
        # ``False == 0`` would make each step twice, of all things.
        if self.hedge is not None and (self.hedge != 0 or isinstance(self.hedge, bool)):
            check_seconds("hedge", self.hedge, other=", 0 for at once, or None")

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the options that are on."""
        on = {
            "spares": self.spares > 0,
            "rate_limit": self.rate_limit is not None,
            "hedge": self.hedge is not None,
        }
        return tuple(name for name, is_on in on.items() if is_on)


def parse_fleet(fleet: Fleet | None) -> Fleet:
    """Parse ``fleet``.

    Raises:
        UsageError: It is no :class:`Fleet`.
    """
    if fleet is None:
        return Fleet()
    if isinstance(fleet, Fleet):
        return fleet
    raise UsageError(f"fleet={fleet!r} must be an agym.Fleet: agym.Fleet(spares=2)")
