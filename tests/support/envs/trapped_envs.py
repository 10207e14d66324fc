"""Environments that go wrong when a test says so, once: a file is the trap, and they step in it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.faulty_envs import ABRUPT, EXCEPTIONS
from tests.support.envs.plain_envs import Result, Tally

# How each worker process ends that steps into a trap, and the exit code that tells it.
DEATHS = {
    "kill": -signal.SIGKILL,
    "segv": -signal.SIGSEGV,
    "abort": -signal.SIGABRT,
    "exit": 3,
}


class Traps:
    """A folder of traps; a trap's name is the environment's number and the operation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, env_id: int, where: str, what: str, *, always: bool = False) -> None:
        """Lay a trap; it is gone when it was stepped in, unless it is for ``always``."""
        self._path(env_id, where).write_text(f"{what}{'!' if always else ''}")

    def clear(self, env_id: int, where: str) -> None:
        self._path(env_id, where).unlink()

    def is_set(self, env_id: int, where: str) -> bool:
        return self._path(env_id, where).exists()

    def release(self) -> None:
        """Let everything go on that is held."""
        (self.folder / "released").touch()

    def hold(self) -> None:
        """What hangs from now on is held again."""
        (self.folder / "released").unlink()

    def _path(self, env_id: int, where: str) -> Path:
        return self.folder / f"{env_id}.{where}"

    def factories(
        self, count: int, *, coroutines: bool = False, **keywords: Any
    ) -> list[Callable[[], Any]]:
        kind: Any = AsyncTrapped if coroutines else Trapped
        return [partial(kind, str(self.folder), i, **keywords) for i in range(count)]


def _take(folder: str, env_id: int, where: str) -> str | None:
    path = Path(folder, f"{env_id}.{where}")
    try:
        what = path.read_text()
    except FileNotFoundError:
        return None
    if what.endswith("!"):
        return what[:-1]
    count, _, later = what.rpartition(":")
    if count and int(count):  # it is to be passed so many times before
        path.write_text(f"{int(count) - 1}:{later}")
        return None
    path.unlink()
    return later


def _strike(folder: str, what: str) -> None:
    """Go wrong; a hang that is let go comes back."""
    if what in ("kill", "segv", "abort"):
        faulthandler.disable()  # this death is intended: no traceback is of use
        os.kill(os.getpid(), -DEATHS[what])
        time.sleep(60)
    elif what == "exit":
        os._exit(DEATHS[what])
    elif what == "hang":
        while not Path(folder, "released").exists():
            time.sleep(0.005)
    elif what == "hang-in-c":
        ctypes.PyDLL(None).sleep(3600)
    else:
        error = {**EXCEPTIONS, **ABRUPT}[what]()
        raise error


class Trapped(Tally):
    """Looks for a trap in all that it does; it is a function of seed and actions alone.

    It observes (a random draw of its reset, step, action).
    """

    def __init__(self, folder: str, env_id: int, length: int = 5) -> None:
        self._folder, self._id = folder, env_id
        self._look("make")
        super().__init__(length=length)
        with (Path(folder) / f"{env_id}.made").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def _look(self, where: str) -> None:
        what = _take(self._folder, self._id, where)
        if what is not None:
            _strike(self._folder, what)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._look("reset")
        return self._draw(super().reset(seed=seed, options=options))

    def _draw(self, beginning: Any) -> Any:
        """Have the random draw of the reset in place of the episode's number in what follows."""
        observation, info = beginning
        self.episode = 100 * info["draw"]
        observation[0] = self.episode
        return observation, info

    def step(self, action: Any) -> Result:
        self._look("step")
        return super().step(action)

    def render(self) -> Any:
        self._look("render")
        return super().render()

    def add(self, a: float, b: float = 0) -> float:
        self._look("call")
        return super().add(a, b)

    def close(self) -> None:
        self._look("close")

    def pid(self) -> int:
        return os.getpid()


def _released(folder: str) -> asyncio.Future[None]:
    """Done once what hangs is let go.

    A thread looks for that: a coroutine that looked itself would be running whenever it looks, and
    if its deadline passes just then, it is taken for one that never awaits. On a crowded machine it
    often is.
    """
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    def look() -> None:
        while not Path(folder, "released").exists():
            time.sleep(0.005)
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=look, daemon=True).start()
    return future


class AsyncTrapped(AsyncTally):
    """The same as a coroutine environment; it hangs without holding its loop up."""

    def __init__(self, folder: str, env_id: int, length: int = 5) -> None:
        super().__init__(Trapped, folder, env_id, length)

    async def _look(self, where: str) -> None:
        folder = self.inner._folder
        what = _take(folder, self.inner._id, where)
        if what == "hang":
            await _released(folder)
        elif what == "never":
            await asyncio.get_running_loop().create_future()
        elif what == "stubborn":
            released = _released(folder)
            while not released.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([released])
        elif what is not None:
            _strike(folder, what)

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        await self._look("reset")
        return self.inner._draw(Tally.reset(self.inner, seed=seed, options=options))

    async def step(self, action: Any) -> Result:
        await self._look("step")
        return Tally.step(self.inner, action)

    async def render(self) -> Any:
        await self._look("render")
        return Tally.render(self.inner)

    async def add(self, a: float, b: float = 0) -> float:
        await self._look("call")
        return Tally.add(self.inner, a, b)

    async def close(self) -> None:
        await self._look("close")
