"""Batches of games side by side, held against plain Python; a game and random numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

import agym
from agym.rules.contract import RuleBook
from agym.rules.records import Record, Table
from agym.rules.rng import Rng, key_of
from agym.rules.vector_env import RulesVectorEnv
from tests.support.equality import same


def blank(rules: Any, **parameters: Any) -> Record:
    """Return a game that was never reset."""
    record: Record = Table(RuleBook.of(rules).blanks(1, parameters))[0]
    return record


def rng_of(seed: int) -> Rng:
    """Return the random numbers of a game."""
    return Rng(SimpleNamespace(key=key_of(seed), draws=0))


def side_by_side(
    rules: Any, engines: Sequence[str], num_envs: int, mode: AutoresetMode, **options: Any
) -> list[RulesVectorEnv]:
    """Make the same games, in plain Python first, then by other engines."""
    return [
        agym.vectorize(rules, num_envs, engine=engine, autoreset_mode=mode, **options)
        for engine in ("python", *engines)
    ]


def play_same(
    envs: Sequence[RulesVectorEnv], seed: Any, steps: int, resets: int = 0
) -> tuple[Any, int]:
    """Play all alike, and see to it that they are, bit for bit, with all that they return.

    Args:
        envs: As made above; they are closed.
        seed: For the first reset.
        steps: Number of steps.
        resets: After so many steps every third game is reset, with seeds for some.

    Returns:
        The last result, and how many episodes ended.
    """
    ended, n, mode = 0, envs[0].num_envs, envs[0].metadata["autoreset_mode"]
    space = envs[0].action_space
    space.seed(7)
    last = check([env.reset(seed=seed) for env in envs])
    for k in range(1, steps + 1):
        actions = space.sample()
        last = check([env.step(actions) for env in envs])
        over = last[2] | last[3]
        ended += int(over.sum())
        mask = over if mode is AutoresetMode.DISABLED else np.zeros(n, bool)
        if resets and k % resets == 0:
            mask = mask | (np.arange(n) % 3 == 0)
        if mask.any():
            seeds = [k + i if i % 2 and not over[i] else None for i in range(n)]
            check([env.reset(seed=seeds, options={"reset_mask": mask}) for env in envs])
    check([list(map(np.asarray, records(env))) for env in envs])
    for env in envs:
        env.close()
    return last, ended


def records(env: RulesVectorEnv) -> list[Any]:
    """Return the fields of all games, without the gaps between them."""
    states = env.states if isinstance(env.states, np.ndarray) else env.states.copy_to_host()
    return [states[name].copy() for name in states.dtype.names]


def check(results: list[Any]) -> Any:
    """Compare all results with the first."""
    for result in results[1:]:
        assert same(list(result), list(results[0]))
    return results[0]
