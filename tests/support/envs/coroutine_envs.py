"""Small coroutine environments that do one thing each, and ways for a test to hold them still."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from tests.support.envs.plain_envs import Result, Tally


class AsyncTally:
    """The coroutine environment that does what :class:`Tally`, or another like it, does."""

    def __init__(self, inner: Callable[..., Any] = Tally, *args: Any, **keywords: Any) -> None:
        self.inner = inner(*args, **keywords)
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space
        self.metadata = self.inner.metadata
        self.render_mode = self.inner.render_mode

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


class Keeper:
    """Holds environments of this process in the middle of what they do, until a test lets them go.

    Attributes:
        envs: The environments, by number.
        waiting: Those that are held, each with what will let it go.
    """

    def __init__(self) -> None:
        self.envs: dict[int, Kept] = {}
        self.waiting: dict[int, asyncio.Future[None]] = {}

    def factories(self, count: int, **keywords: Any) -> list[Callable[[], Kept]]:
        return [lambda i=i: Kept(self, i, **keywords) for i in range(count)]  # type: ignore[misc]

    async def hold(self, number: int) -> None:
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            del self.waiting[number]

    async def let(self, *numbers: int) -> None:
        """Let environments go on, one after the other, each once it is held; then turn the loop."""
        for number in numbers:
            for _ in range(10_000):
                if number in self.waiting:
                    break
                await asyncio.sleep(0)
            future = self.waiting[number]  # KeyError: it never came
            future.set_result(None)
            while self.waiting.get(number) is future:  # noqa: ASYNC110
                await asyncio.sleep(0)


class Kept(AsyncTally):
    """Is held in every step, and where ``where`` says so; it logs what it does.

    Attributes:
        total: Steps in all episodes.
        log: What was begun and what ended.
    """

    def __init__(
        self, keeper: Keeper, number: int, length: int = 10**6, where: tuple[str, ...] = ("step",)
    ) -> None:
        super().__init__(Tally, length)
        self.keeper = keeper
        self.number = number
        self.where = where
        self.total = 0
        self.log: list[str] = []
        keeper.envs[number] = self

    async def _hold(self, what: str) -> None:
        self.log.append(what)
        if what in self.where:
            try:
                await self.keeper.hold(self.number)
            except asyncio.CancelledError:
                self.log.append(f"{what} cancelled")
                raise

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        await self._hold("reset")
        return self.inner.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Result:
        await self._hold("step")
        self.total += 1
        result: Result = self.inner.step(action)
        return result

    async def render(self) -> Any:
        await self._hold("render")
        return self.inner.render()

    async def close(self) -> None:
        await self._hold("close")


class Parrot:
    """Without spaces, ``render`` or ``close``: observes the last action, whatever that is."""

    def __init__(self, first: Any = "") -> None:
        self.first = first
        self.heard: list[Any] = []

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.first, {}

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


class Where(AsyncTally):
    """Tells on which loop and in which thread it was made, reset, stepped, rendered and closed."""

    def __init__(self, places: list[tuple[str, int, int]]) -> None:
        super().__init__(Tally, 1000)
        self.places = places
        self._note("made")

    def _note(self, what: str) -> None:
        loop = asyncio.get_running_loop()
        self.places.append((what, id(loop), threading.get_ident()))

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._note("reset")
        return await super().reset(seed=seed, options=options)

    async def step(self, action: Any) -> Result:
        self._note("step")
        return await super().step(action)

    async def render(self) -> Any:
        self._note("render")
        return await super().render()

    async def close(self) -> None:
        self._note("close")


class Crowd:
    """Counts how many environments are busy at the same time, and the most there ever were."""

    def __init__(self) -> None:
        self.busy = 0
        self.most = 0


class Busy(AsyncTally):
    """Is busy for some turns of the loop in every step; ``most`` is the crowd's."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(Tally, 1000)
        self.crowd = crowd

    async def step(self, action: Any) -> Result:
        self.crowd.busy += 1
        self.crowd.most = max(self.crowd.most, self.crowd.busy)
        for _ in range(5):
            await asyncio.sleep(0)
        self.crowd.busy -= 1
        result: Result = self.inner.step(action)
        return result

    def most(self) -> int:
        return self.crowd.most


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


class Stubborn(AsyncTally):
    """Will not be cancelled in a step with action 1 before it is let go."""

    def __init__(self, let_go: threading.Event) -> None:
        super().__init__(Tally, 1000)
        self._release = let_go

    async def step(self, action: Any) -> Result:
        while action == 1 and not self._release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return await super().step(action)
