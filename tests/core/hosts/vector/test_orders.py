"""Steps and resets of some, sent before others are awaited: programs do them one by one."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import agym
from tests.core.hosts.vector.test_refusals import sync

ENVS = 6


def sequence(seed: int) -> list[tuple[str, Any]]:
    """Calls in an order drawn at random."""
    rng = random.Random(seed)
    calls: list[tuple[str, Any]] = [("reset", range(ENVS))]
    for _ in range(40):
        some = sorted(rng.sample(range(ENVS), rng.randint(1, 3)))
        actions = [rng.randrange(2) for _ in range(ENVS)]
        kinds = [("reset", some), ("reset", range(ENVS)), ("step", actions), ("wait", None)]
        calls.append(rng.choice(kinds))
    return [*calls, ("step", [1] * ENVS)]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_random_orders(seed: int, workers: int) -> None:
    make = partial(sync, autoreset_mode=AutoresetMode.DISABLED)
    calls = sequence(seed)

    async def sent() -> list[Any]:
        vector: dict[str, Any] = {"backend": "vector", "workers": workers}
        async with agym.make_async(make, ENVS, autoreset="disabled", **vector) as envs:
            pending: list[Any] = []
            steps: list[Any] = []
            for k, (kind, what) in enumerate(calls):
                if kind == "reset":
                    pending.append(envs.reset(seed=k, env_ids=what))
                elif kind == "wait":
                    await pending[-1]
                else:
                    if steps:  # two steps of an environment in flight are refused
                        await steps[-1]
                    pending.append(envs.step(what))
                    steps.append(pending[-1])
            return [await one for one in steps]

    def plainly() -> list[Any]:
        with agym.make("CartPole-v1", ENVS, backend="serial", output="array") as envs:
            steps: list[Any] = []
            for k, (kind, what) in enumerate(calls):
                if kind == "reset":
                    envs.reset(seed=k, env_ids=what)
                elif kind == "step":
                    steps.append(envs.step(what))
            return steps

    for mine, theirs in zip(asyncio.run(sent()), plainly(), strict=True):
        for one, other in zip(mine[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one, other)
