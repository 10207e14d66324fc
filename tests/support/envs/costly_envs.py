"""Environments that compute, wait, or write down what is done to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agym.core._system.cpus import available_cores
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Counted, Result

needs_cores = pytest.mark.skipif(available_cores() < 2, reason="one core gains nothing")


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Costly(Counted):
    """Takes its time to be stepped, and disturbs everybody's random numbers."""

    def __init__(self, path: str, computes: float = 0.0, sleeps: float = 0.0) -> None:
        super().__init__(path)
        self._computes = computes
        self._sleeps = sleeps

    def step(self, action: Any) -> Result:
        random.random()
        np.random.rand()  # noqa: NPY002
        compute(self._computes)
        if self._sleeps:
            time.sleep(self._sleeps)
        return super().step(action)


class Recorded(Counted):
    """Writes resets and steps down as well, and calls a function in one of its operations."""

    def __init__(
        self, path: str = "diary", when: str = "", then: Callable[[], Any] | None = None
    ) -> None:
        self._when, self._then = when, then
        super().__init__(path)

    def _log(self, what: str) -> None:
        super()._log(what)
        if what == self._when and self._then is not None:
            self._then()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._log("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Result:
        self._log("step")
        return super().step(action)


class AsyncCostly(AsyncTally):
    """A coroutine environment that waits."""

    def __init__(self, path: str, sleeps: float) -> None:
        super().__init__(Counted, path)
        self._sleeps = sleeps

    async def step(self, action: Any) -> Result:
        await asyncio.sleep(self._sleeps)
        return await super().step(action)
