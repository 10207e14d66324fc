"""The host base class: makes and describes the environments of one range; subclasses run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from gymnasium.vector import AutoresetMode

from agym.core.hosts.async_env import AnySpace
from agym.core.hosts.episode import EpisodeRule
from agym.core.hosts.factories import Factory, is_coroutine_env
from agym.core.hosts.rate_limit import LoopTurns, RateLimiter, Turns
from agym.core.hosts.rows import Results
from agym.core.hosts.slot import Shared, Slot
from agym.core.protocol.arguments import check_made
from agym.core.protocol.infos.policy import InfoFilter, InfoPolicy
from agym.core.protocol.messages.completions import Description
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.metrics.gauges import Meter
from agym.core.protocol.table import SlotTable
from agym.errors import UsageError

ALL_INFOS = InfoPolicy()

# The id of the running environment plus one, else 0: in memory that others read.
RunningSlot = memoryview | list[int]


class Host:
    """The base class of hosts that call each of the environments ``first:stop`` separately.

    Attributes:
        shared: What the environments have in common, and their slots.
        table: The table whose rows the host fills, once it is attached.
        description: Describes the first environment, once it is made. All others must fit it.
    """

    # Whether this host runs coroutine environments; it refuses the other kind.
    coroutines: ClassVar[bool] = False

    table: SlotTable
    description: Description | None = None

    def __init__(
        self,
        factories: Sequence[Factory],
        first: int,
        autoreset: AutoresetMode,
        catch: type[BaseException] = Exception,
        *,
        log: bool = False,
        marker: RunningSlot | None = None,
        guard: AbstractContextManager[None] | None = None,
        infos: InfoPolicy = ALL_INFOS,
        limiter: RateLimiter | None = None,
        closes_within: Callable[[float], bool] | None = None,
    ) -> None:
        """Store the arguments; :meth:`make` makes the environments.

        Args:
            factories: One per environment.
            first: Id of the first environment.
            autoreset: Behavior at an episode's end.
            catch: What an environment may raise without ending the host: ``Exception`` where the
                caller's own Ctrl-C can arrive inside a step, else ``BaseException``.
            log: Report how each episode begins.
            marker: ``marker[0]`` is the id of the running environment plus one, else 0.
            guard: Held while rows of the table are written.
            infos: Which infos to return.
            limiter: Limits the rate of calls.
            closes_within: Waits for a turn; see :class:`~agym.core.hosts.rate_limit.Turns`.
        """
        self.first = first
        self.stop = first + len(factories)
        self._factories = factories
        self._catch = catch
        self._exact = not getattr(factories[0], "loose_spaces", False)
        self._marker = marker
        self._guard = guard
        self._limiter = limiter
        self._closes_within = closes_within
        self.shared = Shared(
            EpisodeRule(autoreset),
            InfoFilter(infos, len(factories)),
            Exception if self.coroutines else catch,  # a loop is ended by others
            self._make_another,
            self._discard,
            log=log,
            recording=log,
            coroutines=self.coroutines,
        )

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        """Construct the environments, one after the other.

        Returns:
            The description of the first environment and of each that differs from the one before
            it; and the failure, if any: a constructor that raised, an environment of the wrong
            kind, or one whose spaces differ from the first's.
        """
        described: dict[int, Description] = {}
        latest = None
        for i, factory in enumerate(self._factories):
            env_id = self.first + i
            try:
                env = factory()
                check_made(env)
                self.shared.slots.append(Slot(env_id, i, env, factory, self.shared))
                found = self._look_at(env)
                if latest is None or not latest.reads_as(found):
                    described[env_id] = latest = found
            except self._catch as exception:
                # The other environments would probably fail too, and are no longer needed.
                return described, [Failure.of(exception, env_id, "make")]
        return described, []

    def _look_at(self, env: Any) -> Description:
        """Describe a new environment; refuse one of the wrong kind, or unlike the first."""
        if is_coroutine_env(env) is not self.coroutines:
            raise UsageError(_wrong_kind(env))
        found = Description(
            _space(env, "observation_space"),
            _space(env, "action_space"),
            dict(getattr(env, "metadata", None) or {}),
            getattr(env, "spec", None),
            getattr(env, "render_mode", None),
            cancellable=self.coroutines,
            exact=self._exact,
        )
        if self.description is None:
            self.description = found
        elif (mismatch := self.description.mismatch(found)) is not None:
            raise mismatch
        return found

    def _make_another(self, slot: Slot) -> Any:
        """Make another environment for a slot."""
        env = slot.factory()
        check_made(env)
        self._look_at(env)
        return env

    def _discard(self, env: Any) -> None:
        """Close an environment that was replaced, whatever that raises."""
        raise NotImplementedError

    def attach(self, table: SlotTable) -> None:
        """Use the table whose rows this host fills."""
        self.table = table
        self.shared.meter = Meter(table.gauges, self.first)
        self.shared.results = Results(table, self.first, self.stop, self._guard)
        if self._limiter is not None:
            turns = LoopTurns if self.coroutines else Turns
            self.shared.turns = turns(self._limiter, self.first, table.gauges, self._closes_within)

    def _failure(self, error: BaseException, slot: Slot, operation: str, action: Any) -> Failure:
        """Return the failure of an environment that raised; during a reset it is the reset's."""
        if slot.resetting:
            operation, slot.resetting = "reset", False
        return Failure.of(
            error,
            slot.id,
            operation,
            seed=slot.episode.seed,
            episode=slot.episode.number,
            step=slot.steps,
            action=action,
        )


def _wrong_kind(env: Any) -> str:
    name = type(env).__name__
    if is_coroutine_env(env):
        return (
            f"{name} is a coroutine environment (`async def step`): use backend='asyncio',"
            " or backend='process' for event loops in worker processes"
        )
    return (
        f"{name} has no `async def step`, so it would block the event loop: use"
        " backend='thread' if it waits, backend='process' if it computes"
    )


def _space(env: Any, name: str) -> Any:
    """Return a space, which is optional for coroutine environments."""
    return getattr(env, name, AnySpace()) if is_coroutine_env(env) else getattr(env, name)
