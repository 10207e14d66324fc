"""Host base class: makes and describes the environments of one range; subclasses run them."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from gymnasium.vector import AutoresetMode

from agym.errors import UsageError
from agym.hosts.async_env import AnySpace
from agym.hosts.episode import Episode, EpisodeRule
from agym.hosts.fleet.seeding import following
from agym.hosts.fleet.spares import Beginning
from agym.hosts.rows import Rows
from agym.hosts.snapshots.replaying import note_start, restore_start
from agym.hosts.snapshots.states import Copy, EnvState
from agym.protocol.arguments import check_made
from agym.protocol.frames import Frames, OwnFrames
from agym.protocol.infos.policy import InfoFilter, InfoPolicy
from agym.protocol.infos.table import InfoWriter
from agym.protocol.messages.completions import Description
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.resets import EpisodeStart, RestoreSpec
from agym.protocol.metrics.gauges import Meter
from agym.protocol.space_layout import Layout
from agym.protocol.table import SlotTable
from agym.protocol.typing import Info
from agym.protocol.value_copies import copy_info

# Makes a ``gymnasium.Env`` or an ``agym.AsyncEnv``.
Factory = Callable[[], Any]

ALL_INFOS = InfoPolicy()

# Messages of asyncio, sniffio and anyio for a missing event loop.
NO_LOOP = (
    "no running event loop",
    "not in async context",
    "Not currently running on any asynchronous event loop",
)


class Host:
    """The environments ``first:stop``, made and described; subclasses run them.

    Attributes:
        frames: Transfers rendered frames to the caller.
    """

    frames: Frames = OwnFrames()

    # Whether this host runs coroutine environments; it refuses the other kind.
    coroutines: ClassVar[bool] = False

    # Spares that are reset ahead, if this host has any.
    _spares: object | None = None

    def __init__(
        self,
        factories: Sequence[Factory],
        first: int,
        autoreset: AutoresetMode,
        catch: type[BaseException] = Exception,
        *,
        log: bool = False,
        infos: InfoPolicy = ALL_INFOS,
    ) -> None:
        """Store the arguments; :meth:`make` makes the environments.

        Args:
            factories: One per environment.
            first: Id of the first environment.
            autoreset: Behavior at an episode's end.
            catch: What an environment may raise without ending the host: ``Exception`` where the
                caller's own Ctrl-C can arrive inside a step, else ``BaseException``.
            log: Report how each episode begins.
            infos: Which infos to return.
        """
        self.first = first
        self.stop = first + len(factories)
        self._factories = factories
        self._exact = not getattr(factories[0], "loose_spaces", False)
        self._rule = EpisodeRule(autoreset)
        self._catch = catch
        self._log = log
        self._envs: list[Any] = []
        n = len(factories)
        self._filter = InfoFilter(infos, n)
        self._episodes = [Episode() for _ in range(n)]
        # Of the latest rows, for snapshots: their infos, and the object leaves of observations.
        self._infos: list[Info] = [{}] * n
        self._objects: dict[int, list[Any]] = {}

    def make(self) -> tuple[dict[int, Description], list[Failure]]:
        """Construct the environments, one after the other.

        Returns:
            The description of the first environment and of each that differs from the one before
            it; and the failure, if any: a constructor that raised, an environment of the wrong
            kind, or one whose spaces differ from the first's.
        """
        described: dict[int, Description] = {}
        latest = None
        for env_id, factory in enumerate(self._factories, self.first):
            try:
                env = self._construct(factory)
                check_made(env)
                self._envs.append(env)
                found = self._look_at(env)
                if not described:
                    self._description = found
                mismatch = described[self.first].mismatch(found) if described else None
                if mismatch is not None:
                    raise mismatch
                if latest is None or not latest.reads_as(found):
                    described[env_id] = latest = found
            except self._catch as exception:
                # The other environments would probably fail too, and are no longer needed.
                return described, [Failure.of(exception, env_id, "make")]
        return described, []

    def _construct(self, factory: Factory) -> Any:
        """Make one of the first environments."""
        return factory()

    def _look_at(self, env: Any) -> Description:
        """Describe a new environment; refuse one of the wrong kind."""
        if is_coroutine_env(env) is not self.coroutines:
            raise UsageError(_wrong_kind(env))
        return replace(_describe(env), exact=self._exact)

    def _make_again(self, i: int) -> Any:
        """Make a replacement for an environment."""
        return self._make_spare(self._factories[i])

    def _make_spare(self, factory: Factory) -> Any:
        """Make an environment beside the first ones, which must be like them."""
        env = factory()
        check_made(env)
        mismatch = self._description.mismatch(self._look_at(env))
        if mismatch is not None:
            raise mismatch
        return env

    def _beginning(self, i: int, seed: int | None, options: dict[str, Any] | None) -> Beginning:
        """Return how an episode begins, where environments have spares.

        Args:
            i: The environment.
            seed: Of the reset, if it has one.
            options: Of the reset.
        """
        episode = self._episodes[i]
        if seed is None and episode.retry is not None and episode.retry.lineage is not None:
            return Beginning(episode.retry.lineage, options or episode.retry.options)
        given = episode.reseed if seed is None else seed
        lineage = following(episode.lineage) if given is None else (given, 0)
        return Beginning(lineage, options)

    def _next_beginning(self, i: int) -> Beginning:
        """Return how the next episode begins, unless the caller says otherwise."""
        return self._beginning(i, None, self._episodes[i].options)

    def _import_env(self, i: int, restore: RestoreSpec) -> None:
        """Continue the episode count, seeds and options of the replaced environment."""
        self._episodes[i] = Episode(
            number=restore.episode,
            seed=restore.seed,
            options=restore.options,
            reseed=restore.reseed,
            retry=restore.retry,
        )

    def _seeded(self, i: int, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a replacement's first reset.

        Unless it has a seed, it begins as the failed episode that is tried again, or gets the
        replacement's seed.
        """
        episode = self._episodes[i]
        seed, episode.reseed = episode.reseed, None
        retry, episode.retry = episode.retry, None
        if arguments.get("seed") is not None:
            return arguments
        if retry is not None:
            given = {} if arguments.get("options") is None else {"options": arguments["options"]}
            arguments = {**copy.deepcopy(restore_start(self._envs[i], retry)), **given}
            if retry.seed is not None or retry.rng is not None:
                return arguments
        return arguments if seed is None else {**arguments, "seed": seed}

    def _next_start(self, i: int) -> EpisodeStart:
        """Return how an environment's next episode begins, if no argument of its reset says so."""
        episode = self._episodes[i]
        if episode.retry is not None:
            return episode.retry
        if self._spares is not None:
            beginning = self._next_beginning(i)
            start = note_start(self._envs[i], beginning.arguments())
            return start._replace(lineage=beginning.lineage)
        return note_start(self._envs[i], {"seed": episode.reseed, "options": episode.options})

    def _state(self, i: int, copied: Copy, steps: int, plane: int) -> EnvState:
        """Return the state of an environment, whose latest row is in a plane of the table.

        Args:
            i: Its index.
            copied: What was copied of the environment itself.
            steps: Steps of its episode.
            plane: The plane.
        """
        slot = self.first + i
        row = self._rows.plane(plane, slot, slot + 1)
        return EnvState(
            *copied,
            self._episodes[i].copy(),
            steps,
            self._filter.statistics(i),
            self.table.one(row.observations, self._objects.get(slot, [])),
            copy_info(self._infos[i]),
            (bool(row.terminated[0]), bool(row.truncated[0])),
        )

    def layouts(self) -> tuple[Layout, Layout]:
        """Return the layouts of observations and actions, as the engine derives them."""
        description = _describe(self._envs[0])
        return Layout(description.observation_space), Layout(description.action_space)

    def attach(self, table: SlotTable) -> None:
        """Use the table whose rows this host fills."""
        self.table = table
        self._layout = table.observation
        self._meter = Meter(table.gauges, self.first)
        self._rows = Rows(table, self.first, self.stop)
        self._writer = InfoWriter()

    def _failure(
        self, error: BaseException, slot: int, operation: str, step: int, action: Any
    ) -> Failure:
        """Record an exception of an environment."""
        i = slot - self.first
        return Failure.of(
            error,
            slot,
            operation,
            seed=self._episodes[i].seed,
            episode=self._episodes[i].number,
            step=step,
            action=action,
        )


def is_coroutine_env(env: Any) -> bool:
    """Return whether an environment, or a class of such, has an ``async def step``."""
    return inspect.iscoroutinefunction(getattr(env, "step", None))


def innermost(factory: Any) -> Any:
    """Unwrap ``partial`` objects."""
    while isinstance(factory, partial):
        factory = factory.func
    return factory


def describe_first(factories: Sequence[Factory]) -> tuple[bool, list[Factory]]:
    """Make the first environment without an event loop, to find out the kind of all of them.

    A constructor that requires a running loop is assumed to be that of a coroutine environment, and
    is called again on the loop when the others are made.

    Returns:
        Whether they are coroutine environments; and the factories, the first of which now returns
        the environment that was made, or raises what its constructor raised.
    """
    first, *others = factories
    if is_coroutine_env(innermost(first)):
        return True, [*factories]
    with warnings.catch_warnings():
        # Coroutines that a constructor could not run without a loop.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            env = first()
        except BaseException as error:
            if needs_loop(error):
                on_loop = partial(_make_on_loop, first, error.with_traceback(None))
                return True, [OneShotFactory(on_loop, first), *others]
            return False, [partial(reraise, error), *others]
    return is_coroutine_env(env), [OneShotFactory(lambda: env, first), *others]


def make_elsewhere(factories: list[Factory]) -> list[Factory]:
    """Close what :func:`describe_first` made in this thread, so that another thread makes it."""
    first = factories[0]
    if not isinstance(first, OneShotFactory):
        return factories  # its constructor raises
    with suppress(Exception):
        first().close()
    return [first.factory, *factories[1:]]


def needs_loop(error: BaseException) -> bool:
    """Return whether an exception was raised because no event loop runs."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in NO_LOOP)


def _make_on_loop(factory: Factory, error: BaseException) -> Any:
    """Make a coroutine environment; raise the earlier error if it is a plain one."""
    env = factory()
    if not is_coroutine_env(env):
        raise error
    return env


class LooseSpaceFactory:
    """A factory whose environments may differ in the bounds of their observations."""

    loose_spaces = True

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def __call__(self) -> Any:
        return self._factory()


class OneShotFactory:
    """A factory that returns an existing environment once, and makes others afterwards.

    Attributes:
        factory: Makes the others.
    """

    def __init__(self, first: Factory, factory: Factory) -> None:
        """Call ``first`` once, whether it returns or raises, then ``factory``."""
        self._first = [first]
        self.factory = factory
        self.loose_spaces = getattr(factory, "loose_spaces", False)

    def __call__(self) -> Any:
        return self._first.pop()() if self._first else self.factory()


def reraise(error: BaseException) -> Any:
    """Raise what a constructor raised."""
    raise error


def _wrong_kind(env: Any) -> str:
    name = type(env).__name__
    if is_coroutine_env(env):
        return (
            f"{name} is a coroutine environment (`async def step`): take backend='asyncio',"
            " or backend='process' for event loops in worker processes"
        )
    return (
        f"{name} has no `async def step`, so it would block the event loop: take"
        " backend='thread' if it waits, backend='process' if it computes"
    )


def _describe(env: Any) -> Description:
    return Description(
        _space(env, "observation_space"),
        _space(env, "action_space"),
        dict(getattr(env, "metadata", None) or {}),
        getattr(env, "spec", None),
        getattr(env, "render_mode", None),
        cancellable=is_coroutine_env(env),
        movable=not is_coroutine_env(env),
    )


def _space(env: Any, name: str) -> Any:
    """Return a space, which is optional for coroutine environments."""
    return getattr(env, name, AnySpace()) if is_coroutine_env(env) else getattr(env, name)
