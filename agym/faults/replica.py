"""Replica: the environment of a capsule, driven by the same code as in the hosts.

Gymnasium and coroutine environments use the same coroutines, which never suspend for Gymnasium's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from gymnasium.spaces import Discrete

from agym.core.engine.faults.capsule import Capsule
from agym.core.hosts.async_env import AnySpace
from agym.core.hosts.base import ALL_INFOS
from agym.core.hosts.episode import EpisodeRule, Phase, parse_mode
from agym.core.hosts.factories import is_coroutine_env
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
