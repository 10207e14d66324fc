"""Gates: a test holds environments of class Gated in the middle of a step, and lets them go on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import agym
from tests.support.envs.plain_envs import Gated


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
        with Path(self.paths[i]).open("w") as pipe:
            pipe.write(word)


@asynccontextmanager
async def gated(gates: Gates) -> AsyncIterator[agym.AsyncEnvs]:
    """Open them in two workers, and reset them."""
    async with agym.make_async(
        gates.factories, backend="process", start_method="fork", workers=2, autoreset="disabled"
    ) as envs:
        await envs.reset()
        yield envs
