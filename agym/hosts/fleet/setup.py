"""What hosts need of the ``fleet`` option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agym.errors import UsageError
from agym.hosts.fleet.rate_limit import RateLimiter


@dataclass(frozen=True)
class FleetSetup:
    """The options that are on, for all hosts of one ``make``.

    Attributes:
        limiter: Gives turns; ``None`` for no limit.
        hedge: Seconds until a step is made a second time; ``None`` for never.
    """

    limiter: RateLimiter | None = None
    hedge: float | None = None

    def check_hedge(self, env: Any, *, coroutine: bool) -> None:
        """Refuse to call an environment twice that does not say that this is harmless.

        Raises:
            UsageError: It does not.
        """
        if self.hedge is None or (coroutine and is_idempotent(env)):
            return
        name = type(env).__name__
        if coroutine:
            raise UsageError(
                f"hedge= makes a step of {name} a second time, and {name} does not declare that"
                " this is harmless: give it `idempotent = True` if it is, or leave hedge= out"
            )
        raise UsageError(
            f"hedge= makes a step of {name} a second time while the first is under way, which only"
            " coroutine environments allow: give it `async def step`, or leave hedge= out"
        )


def is_idempotent(env: Any) -> bool:
    """Whether an environment declares that a step made twice is as good as one."""
    metadata = getattr(env, "metadata", None) or {}
    return getattr(env, "idempotent", metadata.get("idempotent", False)) is True
