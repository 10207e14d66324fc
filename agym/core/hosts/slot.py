"""The operations on one environment, written once for hosts that call and for hosts that await.

A program is a generator. It yields functions to call, and receives their results::

    program --> env.reset --> sync_host.py: answer = call()         --> program continues with it
                              loop_host.py: answer = await call()

Everything except the plain step of a running environment is a program. Hosts call plain steps
directly, because a generator would take longer than a fast environment.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from agym.core._system.pickling import dumps_by_value
from agym.core.hosts.episode import Episode, EpisodeRule, Phase
from agym.core.hosts.factories import Factory
from agym.core.hosts.fault_injection import InjectedFault
from agym.core.hosts.rate_limit import LoopTurns, Turns
from agym.core.hosts.rows import Extra, Results, StepResult
from agym.core.hosts.states import by_attributes
from agym.core.hosts.states.codecs import learn
from agym.core.hosts.states.env_state import (
    CUT_OFF,
    MAX_ACTIONS,
    OTHER_KIND,
    Copy,
    EnvState,
    Record,
    note_start,
    restore_start,
)
from agym.core.hosts.states.ways import Proof, copy_attributes, copy_env, kind_of, prove
from agym.core.protocol.attributes import assign, look_up, peek
from agym.core.protocol.infos.policy import InfoFilter
from agym.core.protocol.messages import operations as ops
from agym.core.protocol.messages.resets import EpisodeStart, as_keywords, lasting
from agym.core.protocol.metrics.gauges import Meter
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.typing import Info
from agym.core.protocol.value_copies import copy_info, copy_value
from agym.errors import SnapshotError

T = TypeVar("T")
Program = Generator[Callable[[], Any], Any, T]

# Why there is no state, and what may help.
NOT_OVER = "its episode is not over"
UNRECORDED = (
    "Its episode could be replayed, but its actions were not recorded. They are recorded from the"
    " next reset on: reset it and try again, or use on_fault='replay' to record all of them"
)
REMEDY = "Or add get_state and set_state methods, or register a codec with agym.snapshot_codecs"

OTHER_REPLAY = "its replay led to a different observation"


class Stopped(Exception):
    """Wraps a ``StopIteration``, which generators and coroutines cannot raise unchanged."""

    def __init__(self, error: StopIteration) -> None:
        super().__init__()
        self.error = error


@dataclass(slots=True, eq=False)
class Shared:
    """The data that the environments of one host have in common.

    Attributes:
        rule: What follows an episode's end.
        filter: Selects infos.
        catch: The exceptions of an environment that are handled while a state is loaded.
        remake: Makes a replacement for an environment.
        discard: Closes a replaced environment, and ignores its exceptions.
        log: Whether to report how episodes start.
        coroutines: Whether they are coroutine environments.
        turns: Waits for turns by the rate limit.
        recording: Whether to keep how episodes start, and their actions.
        rounds: Number of steps of all environments together.
        slots: The environments.
        keep_frame: Copies a frame, so that the environment can no longer change it.
        results: Writes rows.
        meter: Updates the gauges.
    """

    rule: EpisodeRule
    filter: InfoFilter
    catch: type[BaseException]
    remake: Callable[[Slot], Any]
    discard: Callable[[Any], None]
    log: bool = False
    coroutines: bool = False
    turns: Turns | LoopTurns | None = None
    recording: bool = False
    rounds: int = 0
    slots: list[Slot] = field(default_factory=list)
    keep_frame: Callable[[Any], Any] = copy_value
    results: Results = field(init=False)
    meter: Meter = field(init=False)


@dataclass(slots=True, eq=False)
class Slot:
    """One environment and its host's record of it. Its generator methods are the programs.

    Attributes:
        id: The environment's id.
        i: Its index in the host.
        env: The environment.
        factory: The factory that made it.
        shared: The data that it shares with the other environments.
        extra: Receives the parts of results that do not fit into its row.
        episode: Its episode.
        step_offset: How far ``shared.rounds`` is ahead of the steps of the episode.
        record: How the episode started and its actions, if recorded.
        fault: A fault to inject into the next step.
        resetting: Whether a reset is running, so that an exception is reported as the reset's.
        closed: Whether it was closed for good.
        waited: How long its latest step waited for its turn, in nanoseconds.
    """

    id: int
    i: int
    env: Any
    factory: Factory
    shared: Shared
    extra: Extra = field(default_factory=Extra)
    episode: Episode = field(default_factory=Episode)
    step_offset: int = 0
    record: Record | None = None
    fault: InjectedFault | None = None
    resetting: bool = False
    closed: bool = False
    waited: int = 0
    _kind: Any = None

    @property
    def steps(self) -> int:
        """Number of steps in its episode."""
        return self.shared.rounds - self.step_offset

    def count_step(self) -> None:
        """Count a step of this environment alone; a step of all is counted in ``shared.rounds``."""
        self.step_offset -= 1

    @property
    def kind(self) -> Any:
        """The key that it shares with environments that are copied in the same way."""
        if self._kind is None:
            self._kind = kind_of(self.env, self.factory)
        return self._kind

    # ---------------------------------------------------------------- episodes

    def reset(self, message: ops.Reset, k: int) -> Program[None]:
        """Start an episode at the caller's request."""
        seed = None if message.seeds is None else message.seeds[k]
        if seed is not None:
            self.episode.seed = seed
        self.episode.options = lasting(message.options)
        keywords = copy.deepcopy(as_keywords(message.options, self.id))
        row = self.started((yield self._start_episode({"seed": seed, **keywords})))
        self.shared.results.put(message.plane, self.id, row, self.extra)

    def restart_episode(self) -> Callable[[], Any]:
        """Return the call of an automatic reset: without a seed, the random stream continues."""
        options = self.episode.options
        if options is None:
            return self._start_episode({})
        return self._start_episode({"options": copy.deepcopy(options)})

    def _start_episode(self, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return the call of the reset that starts the next episode, for :meth:`started`.

        Without a seed, it starts like the episode that is retried, or uses a replacement's seed.
        """
        shared, episode = self.shared, self.episode
        if episode.retry is not None or episode.reseed is not None:
            arguments = self._seeded(arguments)
        episode.start()
        shared.meter.count_episode(self.id)
        return self._reset_call(arguments, report=shared.log)

    def started(self, result: tuple[Any, Info]) -> StepResult:
        """Return the row of a reset, with the info that the caller gets."""
        shared = self.shared
        observation, info = result
        self.resetting = False
        if info:
            shared.meter.spent(self.id, info)
        if shared.filter.active:
            shared.filter.start(self.i)
            (info,) = shared.filter.running([info])
        return observation, 0.0, False, False, info

    def _seeded(self, arguments: dict[str, Any]) -> dict[str, Any]:
        episode = self.episode
        reseed, episode.reseed = episode.reseed, None
        retry, episode.retry = episode.retry, None
        if arguments.get("seed") is not None:
            return arguments
        if retry is not None:
            options = {} if arguments.get("options") is None else {"options": arguments["options"]}
            arguments = {**restore_start(self.env, retry), **options}
            if retry.seed is not None or retry.rng is not None:
                return arguments
        return arguments if reseed is None else {**arguments, "seed": reseed}

    def _reset_call(self, arguments: dict[str, Any], *, report: bool = False) -> Callable[[], Any]:
        """Return the call that resets the environment; record how its episode starts."""
        shared = self.shared
        self.resetting = True
        self.step_offset = shared.rounds
        if shared.recording:
            start = note_start(self.env, arguments)
            self.record = Record(start, [])
            if report:
                self.extra.payload.starts[self.id] = start
        call = partial(self.env.reset, **arguments) if arguments else self.env.reset
        return call if shared.turns is None else partial(shared.turns.call, self.i, call)

    def next_start(self) -> EpisodeStart:
        """Return how the next episode starts, unless an argument of its reset decides that."""
        episode = self.episode
        if episode.retry is not None:
            return episode.retry
        return note_start(self.env, {"seed": episode.reseed, "options": episode.options})

    # ---------------------------------------------------------------- steps

    def step(self, action: Any) -> Program[StepResult]:
        """Do what the phase of the episode says instead of a plain step."""
        shared, episode = self.shared, self.episode
        if self.fault is not None:
            fault, self.fault = self.fault, None
            yield fault.trigger_async if shared.coroutines else fault.trigger
        if episode.phase is Phase.RUNNING:
            return (yield from self._call_step(action))
        if episode.phase is Phase.DUE:
            return self.started((yield self.restart_episode()))
        if episode.phase is Phase.HELD:
            self.step_offset += 1  # not a step of the episode
        return episode.known_row()

    def _call_step(self, action: Any) -> Program[StepResult]:
        if self.shared.turns is not None:
            self.waited = yield partial(self.shared.turns.wait, self.i)
        result: StepResult = yield partial(self.env.step, action)
        return result

    def record_action(self, action: Any) -> None:
        """Record the action of a plain step; drop the record of an episode that is too long."""
        record = self.record
        if record is not None and self.episode.phase is Phase.RUNNING:
            record.actions.append(action)
            if len(record.actions) > MAX_ACTIONS:
                self.record = None

    def select_info(self, result: StepResult) -> Info:
        """Return the info that the caller gets for a step whose reward is not yet counted."""
        _, reward, terminated, truncated, info = result
        shared = self.shared
        if (terminated or truncated) and self.episode.phase is not Phase.HELD:
            return shared.filter.ended(self.i, info or {}, reward, self.steps)
        return shared.filter.running([info])[0]

    def end(self, result: StepResult, info: Info, plane: int) -> Program[None] | None:
        """Note a row that ended the episode; return the program that must run at once, if any."""
        shared = self.shared
        if self.episode.phase is Phase.HELD:
            return None
        if shared.rule.resets_now:
            return self._reset_now(result, info, plane)
        self.episode.wait(shared.rule.over, result)
        if shared.log:
            self.extra.payload.nexts[self.id] = self.next_start()
        return None

    def _reset_now(self, result: StepResult, info: Info, plane: int) -> Program[None]:
        results = self.shared.results
        final = results.put_final(plane, self.id, result[0], info, self.extra)
        observation, *_, info = self.started((yield self.restart_episode()))
        results.put(plane, self.id, (observation, *result[1:4], info), self.extra, final)

    # ---------------------------------------------------------------- calls

    def render(self, message: ops.Render, k: int) -> Program[Any]:
        """Return a frame."""
        frame = yield partial(call_method, self.env, "render", (), {})
        return self.shared.keep_frame(frame)

    def call(self, message: ops.Call, k: int) -> Program[Any]:
        """Call a method, or read an attribute."""
        return (yield partial(call_method, self.env, *message.arguments(k)))

    def get_attr(self, message: ops.GetAttr, k: int) -> Program[Any]:
        """Read an attribute."""
        # In a tuple, so that a host does not await a value that happens to be awaitable.
        (value,) = yield lambda: (peek(self.env, message.attribute),)
        return value

    def set_attr(self, message: ops.SetAttr, k: int) -> Program[Any]:
        """Set an attribute."""
        return (yield partial(assign, self.env, *message.arguments(k), create=message.create))

    def close(self, message: ops.CloseEnv | None = None, k: int = 0) -> Program[Any]:
        """Close the environment for good. Idempotent."""
        if self.closed:
            return None
        self.closed = True
        return (yield from close_env(self.env))

    def inject(self, message: ops.InjectFault, k: int) -> Program[None]:
        """Let the next step fail."""
        self.fault = message.faults[k]
        return
        yield

    # ---------------------------------------------------------------- states

    def save(self, message: ops.Save, k: int) -> Program[EnvState | str]:
        """Return the environment's state, or why it is not available."""
        if self.episode.phase is Phase.CUT:
            return CUT_OFF
        learn(message.codecs)
        plane = message.planes[k]
        copied: Copy | str = ""
        if not isinstance(message, ops.Export):
            copied = yield from self._copy()
        elif message.proof is not None:
            copied = copy_attributes(self.env, message.proof)
        if isinstance(copied, Copy):
            statistics = self.shared.filter.statistics(self.i)
            return self._state(plane, copied=copied, steps=self.steps, statistics=statistics)
        return self._between_episodes(plane) if message.moves else copied

    def _copy(self) -> Program[Copy | str]:
        if not self.shared.coroutines:
            make = partial(self.shared.remake, self)
            copied = copy_env(self.env, self.kind, make, self._envs, self.record)
            if isinstance(copied, Copy):
                return copied
            remedy = REMEDY
        else:
            name = type(self.env).__name__
            methods = [getattr(self.env, method, None) for method in ("snapshot", "restore")]
            if all(map(callable, methods)):
                detail = f"the result of {name}.snapshot"
                data = yield self.env.snapshot
                try:  # a pickle, which the environment cannot change later
                    return Copy("methods", detail, dumps_by_value(data))
                except (TypeError, pickle.PicklingError) as error:
                    return f"{detail} can't be pickled: {error}"
            copied = f"{name} has no `async def snapshot(self)` and `restore(self, state)`"
            if self.record is not None:
                return Copy("actions", f"its actions, because {copied}", self.record.copy())
            remedy = ""
        if self.record is None:
            self.shared.recording = True
            copied = f"{copied}. {UNRECORDED}"
        return f"{copied}. {remedy}" if remedy else copied

    def prove(self) -> Proof:
        """Prove how to copy the environment by its attributes."""
        return prove("attributes", self.env, self.kind, self.factory, self._envs)

    def _envs(self) -> list[Any]:
        return [slot.env for slot in self.shared.slots]

    def _state(self, plane: int, **more: Any) -> EnvState:
        """Return the environment's state, whose latest row is in a plane of the table."""
        results = self.shared.results
        objects = results.objects.get(self.id, [])
        observation, flags = results.table.row(plane, self.id, objects)
        info = copy_info(results.infos[self.i])
        return EnvState(self.episode.copy(), observation, info, flags, **more)

    def _between_episodes(self, plane: int) -> EnvState | str:
        """Return a state from which another host can start the next, or restart this, episode."""
        state = self._state(plane)
        if self.shared.rule.resets_now:
            if self.steps or self.record is None:
                return NOT_OVER
            return state._replace(copied=Copy("actions", "", Record(self.record.start, [])))
        if self.episode.phase not in (Phase.DUE, Phase.HELD):
            return NOT_OVER
        state.episode.retry = self.next_start()
        return state

    def load(self, message: ops.Load, k: int) -> Program[str | None]:
        """Bring the environment, or its replacement, to a state; see :class:`Load`."""
        state: EnvState = message.states[k]
        shared = self.shared
        learn(message.codecs)
        if message.plane is not None:
            yield from self._apply(state)
            (info,) = shared.filter.running([state.info])
            row = (state.observation, 0.0, *state.flags, info)
            shared.results.put(message.plane, self.id, row, self.extra)
            return None
        if isinstance(message, ops.Replace) and not message.fresh:
            shared.discard(self.env)
            self.env = yield partial(shared.remake, self)
        self.record, self.fault, self.resetting = None, None, False
        lost = ""
        if state.continues:
            try:
                yield from self._apply(state)
                self._number()
                return None
            except shared.catch as error:
                self.resetting = False
                cause = error.error if isinstance(error, Stopped) else error
                lost = f"its replay raised {type(cause).__name__}"
                if isinstance(error, SnapshotError):
                    lost = str(error)
        otherwise = state.otherwise or state
        self.episode = otherwise.episode.copy()
        self.episode.cut_off(otherwise.observation)
        self.record, self.step_offset = None, shared.rounds
        shared.filter.cut(self.i)
        self._number()
        return lost

    def _number(self) -> None:
        """Number an episode whose state has no number, because it did not come from a host."""
        self.episode.number = self.episode.number or self.shared.meter.episodes(self.id)

    def _apply(self, state: EnvState) -> Program[None]:
        """Set the state of the environment, and its record.

        Raises:
            SnapshotError: The state is of another kind of environment, or its replay differs.
        """
        shared, copied, flags = self.shared, state.unpacked().copied, state.flags
        episode = shared.rule.restored(state.episode, state.observation, flags)
        if copied is None:  # the state only says how the next episode starts
            self.episode = episode
            return
        actions = state.actions
        if copied.way == "actions":
            shared.recording, self.episode = True, Episode()
            call = self._reset_call(restore_start(self.env, copied.data.start))
            observation = self.started((yield call))[0]
            actions = [*copied.data.actions, *actions]
        else:
            yield from self._put(copied)
            self.record, self.step_offset = None, shared.rounds - state.steps
            observation = state.observation
            shared.filter.resume(self.i, state.statistics)
            self.episode = episode
            if episode.phase is Phase.HELD:
                actions = ()  # an environment on hold has ignored them
        ended = None
        for action in actions:
            self.record_action(action)
            result = yield from self._call_step(action)
            self.count_step()
            shared.filter.add(self.i, result[1:2])
            observation = result[0]
            if result[2] or result[3]:
                ended = result
                break
        if observation is not state.observation and not same_observation(
            shared.results.table.observation, observation, state.observation
        ):
            raise SnapshotError(OTHER_REPLAY)
        self.episode = episode
        if ended is not None and episode.phase is Phase.RUNNING:
            episode.wait(shared.rule.over, ended)

    def _put(self, copied: Copy) -> Program[None]:
        if self.shared.coroutines and copied.way == "methods" and isinstance(copied.data, bytes):
            yield partial(self.env.restore, pickle.loads(copied.data))
        elif not self.shared.coroutines and copied.way == "attributes":
            by_attributes.put(self.env, copied.data)
        else:
            raise SnapshotError(OTHER_KIND.format(copied.detail))


def same_observation(layout: Layout, first: Any, second: Any) -> bool:
    """Return whether two observations are equal, to the last bit."""
    return all(
        _same_object(a, b)
        if leaf.dtype is None
        else np.asarray(a, leaf.dtype).tobytes() == np.asarray(b, leaf.dtype).tobytes()
        for leaf, a, b in zip(
            layout.leaves, layout.flatten(first), layout.flatten(second), strict=True
        )
    )


def _same_object(first: Any, second: Any) -> bool:
    # Some classes cannot be compared at all, or only by their pickles.
    with suppress(Exception):
        if data_equivalence(first, second, exact=True):
            return True
    with suppress(Exception):
        return dumps_by_value(first) == dumps_by_value(second)
    return False


def call_method(
    env: Any, method: Any, positional: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """Call a method, or read an attribute."""
    value = look_up(env, method)
    return value(*positional, **keywords) if callable(value) else value


def close_env(env: Any) -> Program[Any]:
    """Close an environment, if it has a ``close`` method."""
    method = getattr(env, "close", None)  # coroutine environments need not have one
    return None if method is None else (yield method)


# The program of each message.
PROGRAMS: Final[Mapping[type[ops.Message], Callable[..., Program[Any]]]] = {
    ops.Reset: Slot.reset,
    ops.Render: Slot.render,
    ops.Call: Slot.call,
    ops.GetAttr: Slot.get_attr,
    ops.SetAttr: Slot.set_attr,
    ops.CloseEnv: Slot.close,
    ops.InjectFault: Slot.inject,
    ops.Save: Slot.save,
    ops.Export: Slot.save,
    ops.Load: Slot.load,
    ops.Import: Slot.load,
    ops.Replace: Slot.load,
}
