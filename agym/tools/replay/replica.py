"""Replica: one environment of a capsule, called as its host called it.

Gymnasium and coroutine environments use the same coroutines, which never wait for the former.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from gymnasium.spaces import Discrete

from agym.engine.faults.capsule import Capsule
from agym.hosts.async_env import AnySpace
from agym.hosts.episode import EpisodeRule, Phase, parse_mode
from agym.hosts.factories import is_coroutine_env
from agym.hosts.rows import Rows
from agym.hosts.slot import Stopped
from agym.hosts.snapshots.replaying import restore_start
from agym.protocol.attributes import assign, look_up, peek
from agym.protocol.space_layout import Layout
from agym.protocol.table import SlotTable
from agym.protocol.value_copies import copy_info

ReplayCall = tuple[Callable[..., Coroutine[Any, Any, Any]], tuple[Any, ...]]


class NeedsLoop(Exception):
    """The environment is a coroutine environment, and there is no event loop."""


class Replica:
    """The environment of a capsule; made by :meth:`make`.

    Attributes:
        env: The environment, ``None`` before it is made.
        on_loop: Whether there is an event loop.
        doing: Name of the current operation.
        last: Whether the current operation is the one that failed; its result is checked, too.
    """

    def __init__(self, capsule: Capsule, before_last: Callable[[], None], *, on_loop: bool) -> None:
        """Make nothing yet; ``before_last`` is called right before the failed operation."""
        self.env: Any = None
        self.on_loop = on_loop
        self.doing = capsule.fault.operation
        self.last = False
        self._capsule = capsule
        self._before_last = before_last
        self._rule = EpisodeRule(parse_mode(capsule.autoreset))
        self._phase = Phase.RUNNING
        self._armed = True

    def failed_call(self, sent: list[Any]) -> ReplayCall:
        """Return the operation that failed; removes its action from ``sent`` if it is there."""
        capsule, env = self._capsule, self.env
        name, arguments = capsule.fault.operation, capsule.arguments
        if name == "step":
            return self.step, (capsule.fault.action,)
        if name == "reset":
            if not self._rule.resets_now:
                return self._reset_again, ()
            if capsule.fault.action is not None:
                sent.append(capsule.fault.action)
            return self.step, (sent.pop(),)  # under SAME_STEP, the step resets
        if name in ("render", "close"):
            return self._do, (name, getattr(env, name))
        if name == "call" and arguments:
            return self._do, (name, partial(self._call, *arguments))
        if name == "get_attr" and arguments:
            return self._do, (name, peek, env, *arguments)
        if name == "set_attr" and arguments:
            return self._do, (name, assign, env, *arguments)
        return self._do, (name, lambda: None)

    async def make(self) -> None:
        if self.env is None:
            try:
                assert self._capsule.factory is not None
                self.env = await self._do("make", self._capsule.factory)
            except RuntimeError as error:
                if "no running event loop" in str(error) and not self.on_loop:
                    raise NeedsLoop from error
                raise
        if is_coroutine_env(self.env) and not self.on_loop:
            raise NeedsLoop

    async def reset(self) -> None:
        start = self._capsule.start
        start = start._replace(options=copy.deepcopy(start.options))
        keywords = restore_start(self.env, start)
        self._fit_reset(await self._do("reset", self.env.reset, **keywords))

    async def _reset_again(self) -> None:
        """Reset as autoreset does: without a seed, with the same options."""
        options = self._capsule.start.options
        keywords = {} if options is None else {"options": copy.deepcopy(options)}
        self._phase = Phase.RUNNING
        self._fit_reset(await self._do("reset", self.env.reset, **keywords))

    async def step(self, action: Any) -> None:
        if self._phase is Phase.DUE:
            return await self._reset_again()
        if self._phase is Phase.HELD:
            return None
        result = await self._do("step", self.env.step, action)
        self._fit_step(result)
        ended = bool(result[2] or result[3])
        self._phase = self._rule.after(self._phase, ended=ended)
        if ended and self._rule.resets_now:
            await self._reset_again()
        return None

    def _call(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        value = look_up(self.env, name)
        return value(*arguments, **keywords) if callable(value) else value

    # ---------------------------------------------------------------- results

    def _fit_step(self, result: Any) -> None:
        """Raise the host's error, if the environment's result caused it."""
        if self.last:
            if not self.on_loop:
                _, _, _, _, _ = result
            *row, info = result
            self._rows().store(0, 0, *row)
            if info:
                copy_info(info)

    def _fit_reset(self, result: Any) -> None:
        if self.last:
            observation, info = result
            self._rows().store(0, 0, observation, 0.0, False, False)
            if info:
                copy_info(info)

    def _rows(self) -> Rows:
        space = getattr(self.env, "observation_space", AnySpace())
        table = SlotTable(Layout(space), Layout(Discrete(1)), 1, final=False)
        return Rows(table, 0, 1)

    async def _do(
        self, operation: str, function: Callable[..., Any], *arguments: Any, **keywords: Any
    ) -> Any:
        self.doing = operation
        try:
            if self.last and self._armed:
                self._armed = False
                self._before_last()
            value = function(*arguments, **keywords)
        except StopIteration as error:
            if self.on_loop:
                raise
            raise Stopped(error) from error
        return await value if self.on_loop and inspect.isawaitable(value) else value
