"""The host base class: makes and describes the environments of one range; subclasses run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
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

# The id of the running environment plus one, else 0. Other threads or processes read the memory.
RunningSlot = memoryview | list[int]


@dataclass(eq=False, repr=False)
class Host:
    """The base class of hosts that call the environments ``first:stop`` one by one.

    Attributes:
        factories: One factory per environment.
        first: Id of the first environment.
        autoreset: Behavior at an episode's end.
        catch: The exceptions of an environment that do not end the host: ``Exception`` if the
            caller's Ctrl-C can arrive inside a step, else ``BaseException``.
        log: Report how each episode starts.
        marker: ``marker[0]`` is the id of the running environment plus one, else 0.
        guard: Entered while rows of the table are written.
        infos: The infos to return.
        limiter: Limits the rate of calls.
        closes_within: Waits for a turn; see :class:`~agym.core.hosts.rate_limit.Turns`.
        table: The table whose rows the host fills, once it is attached.
        description: The description of the first environment, once it is made; the others must fit.
        shared: The data that the environments have in common, and their slots.
    """

    # Whether this host runs coroutine environments; it refuses other environments then.
    coroutines: ClassVar[bool] = False

    factories: Sequence[Factory]
    first: int
    autoreset: AutoresetMode
    catch: type[BaseException] = Exception
    _: KW_ONLY
    log: bool = False
    marker: RunningSlot | None = None
    guard: AbstractContextManager[None] | None = None
    infos: InfoPolicy = ALL_INFOS
    limiter: RateLimiter | None = None
    closes_within: Callable[[float], bool] | None = None
    table: SlotTable = field(init=False)
    description: Description | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.stop = self.first + len(self.factories)
        self.shared = Shared(
            EpisodeRule(self.autoreset),
            InfoFilter(self.infos, len(self.factories)),
            Exception if self.coroutines else self.catch,  # other exceptions must end the loop
            self._make_another,
            self._discard,
            log=self.log,
            recording=self.log,
            coroutines=self.coroutines,
        )

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        """Construct the environments, one after another.

        Returns:
            The description of the first environment and of each that differs from the previous
            one; and the failure, if any: a constructor raised, an environment is of the wrong
            kind, or its spaces differ from those of the first.
        """
        described: dict[int, Description] = {}
        latest = None
        for i, factory in enumerate(self.factories):
            env_id = self.first + i
            try:
                env = factory()
                check_made(env)
                self.shared.slots.append(Slot(env_id, i, env, factory, self.shared))
                description = self._describe(env)
                if latest is None or not latest.reads_as(description):
                    described[env_id] = latest = description
            except self.catch as exception:
                # The other environments would probably fail, too, and are no longer needed.
                return described, [Failure.of(exception, env_id, "make")]
        return described, []

    def _describe(self, env: Any) -> Description:
        """Describe a new environment; refuse the wrong kind, or other spaces than the first has."""
        if is_coroutine_env(env) is not self.coroutines:
            raise UsageError(_wrong_kind(env))
        description = Description(
            _space(env, "observation_space"),
            _space(env, "action_space"),
            dict(getattr(env, "metadata", None) or {}),
            getattr(env, "spec", None),
            getattr(env, "render_mode", None),
            cancellable=self.coroutines,
            exact=not getattr(self.factories[0], "loose_spaces", False),
        )
        if self.description is None:
            self.description = description
        elif (mismatch := self.description.mismatch(description)) is not None:
            raise mismatch
        return description

    def _make_another(self, slot: Slot) -> Any:
        """Make another environment for a slot."""
        env = slot.factory()
        check_made(env)
        self._describe(env)
        return env

    def _discard(self, env: Any) -> None:
        """Close an environment that was replaced, and ignore its exceptions."""
        raise NotImplementedError

    def attach(self, table: SlotTable) -> None:
        """Use the table whose rows this host fills."""
        self.table = table
        self.shared.meter = Meter(table.gauges, self.first)
        self.shared.results = Results(table, self.first, self.stop, self.guard)
        if self.limiter is not None:
            turns = LoopTurns if self.coroutines else Turns
            self.shared.turns = turns(self.limiter, self.first, table.gauges, self.closes_within)

    def _failure(self, error: BaseException, slot: Slot, operation: str, action: Any) -> Failure:
        """Return the failure of an environment that raised, in a reset if one was running."""
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
