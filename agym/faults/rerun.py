"""Reruns the operations of a capsule, with one environment, in this process.

The same code drives both kinds of environments: Gymnasium's without an event loop, and coroutine
environments on one::

    factory() -> reset(seed, options) -> step(action), step(action), ... -> failed operation

The environment is driven by the same coroutines as in the hosts, which never suspend for
Gymnasium's.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from gymnasium.spaces import Discrete

from agym.api.run import run, run_now
from agym.core._system.watchdog import Hang, deadline
from agym.core.engine.faults.capsule import Capsule
from agym.core.hosts.async_env import AnySpace
from agym.core.hosts.base import ALL_INFOS
from agym.core.hosts.episode import EpisodeRule, Phase, parse_mode
from agym.core.hosts.factories import innermost, is_coroutine_env
from agym.core.hosts.rows import Results
from agym.core.hosts.slot import PROGRAMS, Program, Shared, Slot, Stopped, T
from agym.core.protocol.infos.policy import InfoFilter
from agym.core.protocol.messages.operations import (
    Call,
    CloseEnv,
    GetAttr,
    Message,
    Render,
    Reset,
    SetAttr,
)
from agym.core.protocol.metrics.gauges import Meter
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.table import SlotTable


@dataclass(frozen=True)
class Ending:
    """Result of a rerun.

    Attributes:
        error: The environment's exception, a :class:`Hang`, or ``None``.
        operation: The last operation.
        steps: Number of recorded actions before it.
        last: Whether it was the capsule's last operation, which failed in the recording.
    """

    error: BaseException | None
    operation: str
    steps: int
    last: bool


@dataclass(frozen=True)
class Watch:
    """Callbacks and the timeout of a rerun.

    Attributes:
        after_step: Called after each action, with the number of actions so far.
        last: Called before the failed operation, in the frame that calls the environment.
        ended: Called at the end, before the environment is closed.
        stuck: Called if the environment hangs and cannot be interrupted, with the operation and
            its frame; in another thread, right before the process ends.
        seconds: How long the failed operation may take, if it hung in the recording.
    """

    after_step: Callable[[int], None]
    last: Callable[[], None]
    ended: Callable[[Ending], None]
    stuck: Callable[[str, FrameType], None]
    seconds: float


def rerun(capsule: Capsule, watch: Watch) -> Ending:
    """Repeat everything that a capsule recorded.

    Raises:
        KeyboardInterrupt: The user, not the environment, stopped the rerun.
    """
    on_loop = is_coroutine_env(innermost(capsule.factory))
    replica = Replica(capsule, watch.last, on_loop=on_loop)
    play = _Play(capsule, watch, replica).run
    if not replica.on_loop:
        with suppress(NeedsLoop):
            return run_now(play())
        replica.on_loop = True
    return run(play())


@dataclass
class _Play:
    """A rerun in progress."""

    _capsule: Capsule
    _watch: Watch
    _replica: Replica
    _steps: int = 0

    async def run(self) -> Ending:
        replica = self._replica
        error: BaseException | None = None
        try:
            await self._all()
        except NeedsLoop:
            raise
        except Stopped as stopped:
            error = stopped.error
        except BaseException as raised:
            if self._is_interrupt(raised):
                raise
            error = raised
        ending = Ending(error, replica.doing, self._steps, replica.last)
        self._watch.ended(ending)
        if replica.env is not None and replica.doing != "close" and not isinstance(error, Hang):
            with suppress(Exception):
                closing = replica.env.close()
                if replica.on_loop and inspect.isawaitable(closing):
                    await closing
        return ending

    def _is_interrupt(self, error: BaseException) -> bool:
        """Return whether the user stopped the rerun."""
        if isinstance(error, asyncio.CancelledError) and self._replica.on_loop:
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
        ctrl_c = isinstance(error, KeyboardInterrupt)
        return ctrl_c and not self._capsule.fault.error.startswith("KeyboardInterrupt")

    async def _all(self) -> None:
        capsule, replica = self._capsule, self._replica
        if capsule.fault.operation == "make":
            return await self._run_last(replica.make)
        await replica.make()
        actions = list(capsule.actions)
        if capsule.fault.operation == "reset" and not actions:
            return await self._run_last(replica.reset)
        await replica.reset()
        last = replica.last_operation(actions)
        for action in actions:
            await replica.step(action)
            self._steps += 1
            self._watch.after_step(self._steps)
        return await self._run_last(last)

    async def _run_last(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._replica.last = True
        if self._capsule.fault.kind != "timeout":
            await function()
            return
        on_loop = self._replica.on_loop
        with deadline(self._watch.seconds, self._stuck, interrupt=not on_loop):
            if not on_loop:
                await function()
                return
            try:
                async with asyncio.timeout(self._watch.seconds) as scope:
                    await function()
            except TimeoutError as error:
                if not scope.expired():
                    raise
                cancelled = error.__cause__ or error
                raise Hang().with_traceback(cancelled.__traceback__) from None

    def _stuck(self, frame: FrameType) -> None:
        self._watch.stuck(self._replica.doing, frame)


# The messages that call an environment, made from the arguments in a capsule.
MESSAGES: dict[str, Callable[..., Message]] = {
    "render": Render,
    "close": CloseEnv,
    "call": Call,
    "get_attr": GetAttr,
    "set_attr": lambda name, value: SetAttr(name, [value]),
}


class NeedsLoop(Exception):
    """The environment is a coroutine environment, but there is no event loop."""


class Replica:
    """The environment of a capsule; made by :meth:`make`.

    Attributes:
        env: The environment, ``None`` before it is made.
        on_loop: Whether there is an event loop.
        last: Whether the current operation is the one that failed.
    """

    def __init__(self, capsule: Capsule, before_last: Callable[[], None], *, on_loop: bool) -> None:
        """Prepare; ``before_last`` is called right before the failed operation."""
        self.env: Any = None
        self.on_loop = on_loop
        self.last = False
        self._capsule = capsule
        self._before_last = before_last
        self._paused = False
        self._name = capsule.fault.operation

    @property
    def doing(self) -> str:
        """Name of the current operation."""
        return "reset" if self.env is not None and self._slot.resetting else self._name

    async def make(self) -> None:
        if self.env is None:
            try:
                self.env = await self._drive("make", self._make())
            except RuntimeError as error:
                if "no running event loop" in str(error) and not self.on_loop:
                    raise NeedsLoop from error
                raise
        if is_coroutine_env(self.env) and not self.on_loop:
            raise NeedsLoop

    def _make(self) -> Program[Any]:
        factory = self._capsule.factory
        assert factory is not None
        env = yield factory
        rule = EpisodeRule(parse_mode(self._capsule.autoreset))
        space = Layout(getattr(env, "observation_space", AnySpace()))
        table = SlotTable(space, Layout(Discrete(1)), 1, final=rule.resets_now)
        shared = Shared(rule, InfoFilter(ALL_INFOS, 1), BaseException, _keep, _keep)
        shared.coroutines = self.on_loop
        shared.results = Results(table, 0, 1)
        shared.meter = Meter(table.gauges, 0)
        self._slot = Slot(0, 0, env, factory, shared)
        return env

    async def reset(self) -> None:
        """Start the episode as it was started in the recording."""
        start = self._capsule.start
        self._slot.episode.retry = start
        await self._run(Reset(0, None, start.options))

    async def step(self, action: Any) -> None:
        slot = self._slot
        slot.count_step()
        result = await self._drive("step", slot.step(action))
        slot.extra.made = None
        slot.shared.results.put(0, 0, result, slot.extra)
        if result[2] or result[3]:
            program = slot.end(result, result[4], 0)
            if program is not None:
                await self._drive("step", program)

    def last_operation(self, actions: list[Any]) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Return the operation that failed; remove its action from ``actions`` if it is there."""
        fault, arguments = self._capsule.fault, self._capsule.arguments
        name = fault.operation
        if name == "step":
            return partial(self.step, fault.action)
        if name == "reset":  # an automatic reset
            if not self._slot.shared.rule.resets_now:
                return self._reset_again
            if fault.action is not None:
                actions.append(fault.action)
            return partial(self.step, actions.pop())
        if name in ("render", "close") or (name in MESSAGES and arguments):
            return partial(self._run, MESSAGES[name](*arguments))
        return partial(self._drive, name, _nothing())  # its arguments could not be recorded

    async def _reset_again(self) -> None:
        self._slot.episode.phase = Phase.DUE
        await self.step(None)

    async def _run(self, message: Message) -> Any:
        return await self._drive(message.name, PROGRAMS[type(message)](self._slot, message, 0))

    async def _drive(self, name: str, program: Program[T]) -> T:
        """Run a program of an operation, and pause right before the first call of the last one."""
        self._name = name
        try:
            function = next(program)
            while True:
                try:
                    if self.last and not self._paused:
                        self._paused = True
                        self._before_last()
                    answer = function()
                    if self.on_loop and inspect.isawaitable(answer):
                        answer = await answer
                except StopIteration as error:
                    function = program.throw(Stopped(error))
                except BaseException as error:
                    function = program.throw(error)
                else:
                    function = program.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value


def _nothing() -> Program[None]:
    yield lambda: None


def _keep(env: Any) -> Any:
    """Fail: a rerun has one environment, which is never replaced."""
    raise AssertionError
