"""Drivers: both APIs, over every backend, behind one blocking API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import uvloop

import agym
from agym.testing import worlds
from tests.support.backends import FORK, name_of
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Tally

APIS = ("sync", "async")

# Two backends are enough if the backend can't matter.
SETUPS = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": FORK, "workers": 2}, id="process"),
]

FORKED: dict[str, Any] = {"backend": FORK}


class Setup:
    """A backend, and the kind of environments it takes; the second runs each on its own."""

    def __init__(self, name: str, coroutines: bool, options: dict[str, Any]) -> None:
        self.name = name
        self.coroutines = coroutines
        self.options = options
        self.backend = name_of(options)

    def adapt(self, factory: Callable[[], Any]) -> Callable[[], Any]:
        """Return a factory of the backend's kind for ordinary environments."""
        return partial(AsyncTally, factory) if self.coroutines else factory

    def of(self, count: int, **keywords: Any) -> list[Callable[[], Any]]:
        return [self.adapt(partial(Tally, **keywords))] * count


SERIAL = Setup("serial", False, {"backend": "serial"})
APART = [
    Setup("thread", False, {"backend": "thread"}),
    Setup("process", False, {**FORKED, "workers": 3}),
    Setup("asyncio", True, {"backend": "asyncio"}),
    Setup("process-coroutines", True, {**FORKED, "workers": 2}),
]


def _over(setups: list[Setup]) -> Any:
    return pytest.mark.parametrize("setup", setups, ids=lambda setup: setup.name)


# ``apart``: where environments wait without holding each other up.
everywhere, apart = _over([SERIAL, *APART]), _over(APART)
each_setup = pytest.mark.parametrize("setup", SETUPS)
each_api = pytest.mark.parametrize("api", APIS)
each_mode = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])


class Player(worlds.Player):
    """Either API, blocking: what has to be awaited is awaited at once, and inside its loop."""

    def __len__(self) -> int:
        return len(self.envs)


@contextmanager
def opened(api: str, *args: Any, **options: Any) -> Iterator[Any]:
    """Open environments behind either API, with the sync API's defaults."""
    options = {"output": "list", "autoreset": "disabled", **options}
    if api == "sync":
        with agym.make(*args, **options) as envs:
            yield envs
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        player = Player(agym.make_async(*args, **options), runner)
        try:
            player.__aenter__()
            yield player
        finally:
            player.close()


@contextmanager
def played(api: str, *args: Any, **options: Any) -> Iterator[Player]:
    """Open environments behind either API, which give arrays and can be let through gates."""
    with opened(api, *args, **{"output": "array", **options}) as envs:
        yield Player(envs, None) if api == "sync" else envs


@contextmanager
def attached(envs: Any, attach: Callable[[Any], Any]) -> Iterator[Any]:
    """Attach something to environments of :func:`opened`, by ``with`` or ``async with``."""
    if not isinstance(envs, Player):
        with attach(envs) as thing:
            yield thing
        return
    assert envs.runner is not None
    stack = contextlib.AsyncExitStack()

    async def enter() -> Any:
        return await stack.enter_async_context(attach(envs.envs))

    thing = envs.runner.run(enter())
    try:
        yield thing
    except BaseException as error:
        envs.runner.run(_exit(stack, error))
        raise
    envs.runner.run(stack.aclose())


async def _exit(stack: contextlib.AsyncExitStack, error: BaseException) -> None:
    await stack.__aexit__(type(error), error, error.__traceback__)


def rows(batch: agym.Batch) -> list[list[float]]:
    """Environment, step and action of each row."""
    columns = batch.observations[:, 1:]
    return [[i, *row] for i, row in zip(batch.env_ids.tolist(), columns.tolist(), strict=True)]
