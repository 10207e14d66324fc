"""Environments that use asyncio by themselves, inside calls that are not coroutines."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Result, Tally
from tests.support.patience import patience


async def answer(value: Any) -> Any:
    """Give a value after the loop has turned, by a task of its own."""
    task = asyncio.create_task(asyncio.sleep(0, value))
    return await asyncio.wait_for(task, patience())


def by_run(value: Any) -> Any:
    return asyncio.run(answer(value))


def by_own_loop(value: Any) -> Any:
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(answer(value))
    finally:
        loop.close()


def by_uvloop(value: Any) -> Any:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(answer(value))


WAYS: dict[str, Callable[[Any], Any]] = {"run": by_run, "own": by_own_loop, "uvloop": by_uvloop}


class Looping(Tally):
    """Does everything through an event loop, made by one of :data:`WAYS`."""

    def __init__(self, way: str = "run", length: int = 3) -> None:
        self.use = WAYS[way]
        super().__init__(self.use(length))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.use(super().reset(seed=seed, options=options))

    def step(self, action: Any) -> Result:
        result: Result = self.use(super().step(action))
        return result

    def render(self) -> Any:
        return self.use(super().render())

    def close(self) -> None:
        self.use(None)

    def ask(self, value: Any) -> Any:
        return self.use(value)


class KeepsLoop(Tally):
    """Has one loop for its whole life, which it closes in the end."""

    def __init__(self, length: int = 3) -> None:
        super().__init__(length)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(answer(None))

    def step(self, action: Any) -> Result:
        result: Result = self.loop.run_until_complete(answer(super().step(action)))
        return result

    def close(self) -> None:
        self.loop.run_until_complete(answer(None))
        self.loop.close()


class CurrentLoop(Tally):
    """Uses the thread's current loop, as old code does, which a main thread always has one of."""

    def step(self, action: Any) -> Result:
        loop = asyncio.get_event_loop()
        result: Result = loop.run_until_complete(answer(super().step(action)))
        return result


class Spawning(Tally):
    """Starts a program with asyncio in each step, as an environment over a simulator does."""

    def step(self, action: Any) -> Result:
        assert asyncio.run(self._talk()) == b"hello\n"
        return super().step(action)

    async def _talk(self) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", "print('hello')", stdout=subprocess.PIPE
        )
        out, _ = await process.communicate()
        return out


class WantsLoop(AsyncTally):
    """A coroutine environment that can only be made on the loop that it lives on."""

    def __init__(self, *args: Any) -> None:
        self._home = asyncio.get_running_loop()
        self._beats = asyncio.create_task(self._beat())
        super().__init__(*args)

    async def _beat(self) -> None:
        await asyncio.sleep(3600)

    async def step(self, action: Any) -> Result:
        assert asyncio.get_running_loop() is self._home
        return await super().step(action)

    async def close(self) -> None:
        self._beats.cancel()
        await super().close()
