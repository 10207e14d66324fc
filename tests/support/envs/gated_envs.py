"""Gates: a test holds environments in the middle of a step, and lets them go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Probe, Result, Tally
from tests.support.patience import patience


class Gates:
    """A named pipe per environment."""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [str(folder / f"gate{i}") for i in range(count)]
        for path in self.paths:
            os.mkfifo(path)

    @property
    def factories(self) -> list[Callable[[], Gated]]:
        return [partial(Gated, path) for path in self.paths]

    def open(self, i: int, word: str = "") -> None:
        """Wait until environment ``i`` stands at its gate, then let it through."""
        with os.fdopen(self._writer(i), "w") as pipe:
            pipe.write(word)

    def _writer(self, i: int) -> int:
        """The writing end of a gate, which there is once an environment reads from the other."""
        end = time.monotonic() + patience()
        while True:
            try:
                return os.open(self.paths[i], os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                assert time.monotonic() < end, f"environment {i} does not come to its gate"
                time.sleep(0.001)

    @contextmanager
    def ctrl_c(self, i: int) -> Iterator[None]:
        """Break the block off, by Ctrl-C, once environment ``i`` is at its gate; then open it."""
        over = threading.Event()

        def interrupt() -> None:
            gate = self._writer(i)
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(patience())
            os.close(gate)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            yield
        over.set()
        thread.join()


class Gated(Probe):
    """Waits in a step with action 1, and in ``wait``, until somebody opens its named pipe."""

    def __init__(self, path: str, length: int = 1000) -> None:
        super().__init__(length=length)
        self._path = path

    def step(self, action: Any) -> Result:
        if action == 1:
            self.wait()
        return super().step(action)

    def wait(self) -> str:
        """Wait for the pipe's writer to come and go."""
        with Path(self._path).open() as pipe:
            return pipe.read()


class AsyncGated(AsyncTally):
    """The coroutine environment that waits as :class:`Gated` does, and turns its loop meanwhile."""

    def __init__(self, path: str, length: int = 1000) -> None:
        super().__init__(Gated, path, length)

    async def step(self, action: Any) -> Result:
        if action == 1:
            await self.wait()
        return Tally.step(self.inner, action)

    async def wait(self) -> str:
        """Wait for the pipe's writer to come and go."""
        loop = asyncio.get_running_loop()
        descriptor = os.open(self.inner._path, os.O_RDONLY | os.O_NONBLOCK)
        gone = loop.create_future()
        loop.add_reader(descriptor, lambda: gone.done() or gone.set_result(None))
        try:
            await gone
            return os.read(descriptor, 1000).decode()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def try_gate(path: str) -> bool:
    """Let an environment through its gate, if it stands at it."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return True
    return False


@asynccontextmanager
async def gated(gates: Gates) -> AsyncIterator[agym.AsyncEnvs]:
    """Open them in two workers, and reset them."""
    async with agym.make_async(
        gates.factories, backend=FORK, workers=2, autoreset="disabled"
    ) as envs:
        await envs.reset()
        yield envs
