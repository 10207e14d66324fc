"""Small coroutine environments that do one thing each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.envs.plain_envs import Result, Tally


class AsyncTally:
    """The coroutine environment that does what :class:`Tally`, or another like it, does."""

    def __init__(self, inner: Callable[..., Any] = Tally, *args: Any, **keywords: Any) -> None:
        self.inner = inner(*args, **keywords)

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        await asyncio.sleep(0)
        return self.inner.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Result:
        await asyncio.sleep(0)
        result: Result = self.inner.step(action)
        return result

    async def render(self) -> Any:
        await asyncio.sleep(0)
        return self.inner.render()

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "get_wrapper_attr", "set_wrapper_attr"}:
            raise AttributeError(name)  # it is no wrapper of Gymnasium's
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        inner = vars(self).get("inner")
        if name not in vars(self) and inner is not None and name in vars(inner):
            setattr(inner, name, value)
        else:
            super().__setattr__(name, value)


class Parrot:
    """Without spaces, ``render`` or ``close``: observes the last action, whatever that is."""

    def __init__(self, first: Any = "") -> None:
        self.first = first
        self.heard: list[Any] = []

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.first, {"options": options} if options else {}

    async def step(self, action: Any) -> Any:
        await asyncio.sleep(0)
        self.heard.append(action)
        over = isinstance(action, str) and action == "bye"
        return action, 0.5, over, False, {"heard": action}

    async def recall(self) -> list[Any]:
        await asyncio.sleep(0)
        return self.heard

    def count(self, more: int = 0) -> int:
        return len(self.heard) + more


class Gives(AsyncTally):
    """Raises CancelledError by itself in a step with action 9, as a cancelled library call does."""

    async def step(self, action: Any) -> Result:
        if action == 9:
            task = asyncio.ensure_future(asyncio.sleep(3600))
            asyncio.get_running_loop().call_soon(task.cancel)
            await task
        return await super().step(action)


class CancelsItself(AsyncTally):
    """Cancels its own task in a step with action 9, as a library may."""

    async def step(self, action: Any) -> Result:
        if action == 9:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return await super().step(action)
