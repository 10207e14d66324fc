"""Batches of games side by side, held against plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.envs.pong.vector import ManyGames, PongRallyVectorEnv, PongVectorEnv
from tests.support.equality import same

GAMES = {"Pong": PongVectorEnv, "PongRally": PongRallyVectorEnv}


def actions_of(name: str, num_envs: int, steps: int, seed: int) -> Any:
    """Random actions, a batch for each step."""
    shape = (steps, num_envs) if name == "Pong" else (steps, num_envs, 2)
    return np.random.default_rng(seed).integers(0, 3, shape)


def side_by_side(
    name: str, engines: Sequence[str], num_envs: int, mode: AutoresetMode, **keywords: Any
) -> list[ManyGames]:
    """The same games, in plain Python first, then by other engines."""
    return [
        GAMES[name](num_envs, engine=engine, autoreset_mode=mode, **keywords)
        for engine in ("scalar", *engines)
    ]


def play_same(
    envs: Sequence[ManyGames], seed: Any, batches: Iterable[Any], resets: int = 0
) -> tuple[int, int]:
    """Play all alike, and see to it that they are, bit for bit.

    Args:
        envs: As made above.
        seed: For the first reset.
        batches: Actions.
        resets: After so many steps every third game is reset, with seeds for some.

    Returns:
        How many points were made, and how many episodes ended.
    """
    points = ended = 0
    n, mode = envs[0].num_envs, envs[0].metadata["autoreset_mode"]
    check([env.reset(seed=seed) for env in envs])
    for k, actions in enumerate(batches, 1):
        first = check([env.step(actions) for env in envs])
        points += int((first[1] != envs[0]._players - 1).sum())
        over = first[2] | first[3]
        ended += int(over.sum())
        mask = over if mode is AutoresetMode.DISABLED else np.zeros(n, bool)
        if resets and k % resets == 0:
            mask = mask | (np.arange(n) % 3 == 0)
        if mask.any():
            seeds = [k + i if i % 2 and not over[i] else None for i in range(n)]
            options = {"reset_mask": mask}
            check([env.reset(seed=seeds, options=options) for env in envs])
    for env in envs:
        env.close()
    return points, ended


def check(results: list[Any]) -> Any:
    """Compare all results with the first."""
    for result in results[1:]:
        assert same(list(result), list(results[0]))
    return results[0]
