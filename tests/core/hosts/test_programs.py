"""What programs promise, whatever the environment does: errors as they are, and replacements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import agym


class Exhausted(gymnasium.Env[Any, Any]):
    """Draws from an iterator that has ended, except in resets with a seed."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(2)

    @property
    def attribute(self) -> Any:
        return next(iter(()))

    def method(self) -> Any:
        return next(iter(()))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is None:
            next(iter(()))
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, self.steps > 1, False, {}


CALLS: dict[str, Callable[[agym.Envs], object]] = {
    "reset": lambda envs: envs.reset(),
    "autoreset": lambda envs: [envs.step([0]) for _ in range(3)],
    "call": lambda envs: envs.call("method"),
    "attribute": lambda envs: envs.get_attr("attribute"),
    "attribute by call": lambda envs: envs.call("attribute"),
}


@pytest.mark.parametrize("backend", ["serial", "thread"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("call", CALLS)
def test_a_stop_iteration_is_reported_as_it_is(backend: Any, autoreset: str, call: str) -> None:
    """Python turns one into a RuntimeError where it leaves a generator."""
    with agym.make(Exhausted, 1, backend=backend, autoreset=autoreset) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.EnvError, match="StopIteration") as caught:
            CALLS[call](envs)
    assert isinstance(caught.value.exception, StopIteration)


class Deaf:
    """Hangs in its first render, and ignores its cancellation for a while."""

    made = 0

    def __init__(self) -> None:
        self.number = Deaf.made
        Deaf.made += 1
        self.lock = asyncio.Lock()

    async def render(self) -> Any:
        async with self.lock:
            if self.number == 0:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    await asyncio.sleep(1)
            return self.number

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        async with self.lock:
            return self.number, {}

    async def step(self, action: Any) -> Any:
        return self.number, 0.0, False, False, {}

    async def close(self) -> None:
        pass


def test_an_environment_that_was_given_up_is_not_used_again() -> None:
    Deaf.made = 0
    with agym.make(Deaf, 2, backend="asyncio", timeout=0.3) as envs:
        with pytest.raises(agym.StepTimeout):
            envs.render()
        assert envs.render() == [2, 1]
        assert list(envs.reset()[0]) == [2, 1]
