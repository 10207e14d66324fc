"""Steps and resets of some, sent before others are awaited: programs do them one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agym.testing import World

ENVS = 6


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_random_orders(seed: int, workers: int) -> None:
    rng = random.Random(seed)
    episodes, now = [1] * ENVS, [0] * ENVS
    world = World("vector", "async", "disabled", kind="vector", workers=workers)

    async def run(envs: Any) -> None:
        await envs.reset()
        pending: list[tuple[Any, list[int], list[list[int]]]] = []
        step: Any = None
        for _ in range(40):
            kind = rng.choice(["reset some", "reset all", "step", "wait"])
            ids = [*range(ENVS)]
            if kind == "wait":
                if pending:
                    await pending[-1][0]
                continue
            if kind == "step":
                if step is not None:  # two steps of an environment in flight are refused
                    await step
                result = step = envs.step([7] * ENVS)
                now[:] = [one + 1 for one in now]
            else:
                if kind == "reset some":
                    ids = sorted(rng.sample(ids, rng.randint(1, 3)))
                result = envs.reset(env_ids=ids)
                for i in ids:
                    episodes[i], now[i] = episodes[i] + 1, 0
            pending.append((result, ids, [[episodes[i], now[i]] for i in ids]))
        for result, ids, rows in pending:
            assert (await result).observations[ids, 1:3].tolist() == rows

    with world.open(ENVS, length=10**6) as player:
        player.run(run(player.envs))
