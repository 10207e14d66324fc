"""Calls of Gymnasium environments as the options of a fleet say: in turns, in threads of theirs.

A host has one of these only where an option of :class:`~agym.Fleet` is on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from agym.errors import UsageError
from agym.hosts.fleet.rate_limit import now
from agym.hosts.fleet.setup import FleetCounts, FleetSetup
from agym.hosts.gym.owner import OwnerThread


class FleetCalls(FleetCounts):
    """Calls the environments of one host as the fleet's options say.

    Attributes:
        owners: The thread of each environment, if they may change places; else empty.
        waited: For how long each environment's latest step waited for its turn, in nanoseconds.
    """

    def __init__(
        self,
        setup: FleetSetup,
        first: int,
        num_envs: int,
        closes_within: Callable[[float], bool] | None,
    ) -> None:
        """Keep the options.

        Args:
            setup: The options.
            first: Id of the host's first environment.
            num_envs: How many it has.
            closes_within: Sleeps for so many seconds, but only until the environments are to be
                closed; returns whether they are. ``None`` where nothing can ask for that meanwhile.
        """
        super().__init__(first)
        self._limiter = setup.limiter
        self._hedge = setup.hedge
        # Spares wait in threads of their own, until the host is being closed.
        self._closing = threading.Event()
        self._closes_within = closes_within or self._closing.wait
        self.owners: list[OwnerThread] = []
        self.waited = [0] * num_envs

    def check(self, env: Any) -> None:
        """Refuse to call an environment twice at the same time.

        Raises:
            UsageError: That was asked for.
        """
        if self._hedge is not None:
            raise UsageError(
                f"hedge= makes a step of {type(env).__name__} a second time while the first is"
                " under way, which only coroutine environments allow: give it `async def step`, or"
                " leave hedge= out"
            )

    def step(self, i: int, env: Any, action: Any) -> Any:
        """Step an environment when its turn has come, in its thread."""
        self.waited[i] = self.wait(i)
        if not self.owners:
            return env.step(action)
        return self.owners[i].call(partial(env.step, action))

    def wait(self, i: int, *, spare: bool = False) -> int:
        """Wait for an environment's turn, or for that of a spare that is reset for it.

        Returns:
            For how many nanoseconds.

        Raises:
            RuntimeError: The environments are being closed.
        """
        if self._limiter is None:
            return 0
        turn = self._limiter.reserve(self._first + i)
        self._arrays["rate_turn"][self._first + i] = turn
        begun = now()
        if turn <= begun:
            return 0
        closes_within = self._closing.wait if spare else self._closes_within
        if closes_within((turn - begun) / 1e9):
            raise RuntimeError("the environments were closed while it waited for its turn")
        waited = now() - begun
        self.count("rate_waited", i, waited)
        return waited

    def close(self) -> None:
        """End the waits of spares, and the threads when they have done what they were given."""
        self._closing.set()
        for owner in self.owners:
            owner.stop()
