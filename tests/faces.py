"""Both faces behind one blocking API, so that one test can say the same of both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
import uvloop

import agym

FACES = ("sync", "async")

# Both places to live, for pytest.mark.parametrize("place", PLACES).
PLACES = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": "process", "workers": 2, "start_method": "fork"}, id="process"),
]


class Blocking:
    """An async face whose awaitables are awaited at once."""

    def __init__(self, envs: agym.AsyncEnvs, runner: asyncio.Runner) -> None:
        self.envs = envs
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.envs, name)
        return self._blocking(found) if callable(found) else found

    def _blocking(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            results = []

            async def wait() -> None:
                # Not returned: the runner would build the repr of a task's result each time.
                results.append(await method(*args, **kwargs))

            self._runner.run(wait())
            return results[0]

        return call

    def close(self) -> None:
        self.aclose()

    def __len__(self) -> int:
        return len(self.envs)


@contextmanager
def opened(face: str, *args: Any, **options: Any) -> Iterator[Any]:
    """Open environments behind either face, with the sync face's defaults."""
    if face == "sync":
        with agym.make(*args, **options) as envs:
            yield envs
        return
    options = {"autoreset": "disabled", "output": "list", **options}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        envs = Blocking(agym.make_async(*args, **options), runner)
        try:
            runner.run(_open(envs.envs))
            yield envs
        finally:
            envs.aclose()


async def _open(envs: agym.AsyncEnvs) -> None:
    await envs
