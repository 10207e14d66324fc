"""Compares twins with their originals, bit for bit, before they are used.

Both play the same random actions, some of them out of bounds, from the same seeds, under each
autoreset mode, through the ends of episodes, a small limit of steps, and resets of some
environments.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

PARTS = ("observations", "rewards", "terminated", "truncated", "infos")

# The chance of a reset of some environments after a step, and of each environment in it.
RESET_CHANCE, RESET_ENV_CHANCE = 0.02, 0.4

# Infos that depend on the time.
TIMES = ("t", "_t")


def difference(
    make_original: Callable[[], gymnasium.Env[Any, Any]],
    make_twin: Callable[[int, AutoresetMode], VectorEnv[Any, Any, Any]],
    steps: int,
    num_envs: int = 8,
    progress: Callable[[int], object] = lambda steps: None,
) -> str:
    """Return the first difference between a twin and its originals, ``""`` if there is none.

    Args:
        make_original: Makes one environment.
        make_twin: Makes the twin of a number of environments, given the autoreset mode.
        steps: Steps of each environment.
        num_envs: Number of environments.
        progress: Called with the number of steps of each environment, after each step.
    """
    done = 0
    for number, mode in enumerate(AutoresetMode):
        originals = SyncVectorEnv([make_original] * num_envs, autoreset_mode=mode)
        twin = make_twin(num_envs, mode)
        try:
            share = steps // 3 + (number < steps % 3)
            for where, expected, actual in played(originals, twin, share):
                if plain(expected) != plain(actual):
                    where += f" under autoreset={mode.name.lower()!r}"
                    return f"{where}: {first_of(expected, actual)}"
                done += where.startswith("step")
                progress(done)
        finally:
            originals.close()
            twin.close()
    return ""


def played(originals: Any, twin: Any, steps: int) -> Iterator[tuple[str, Any, Any]]:
    """Play both in the same way; yield what was done, and both results."""
    rng, count = np.random.default_rng(0), originals.num_envs
    space = originals.action_space
    space.seed(0)

    def reset(seed: int | None, mask: Any = None) -> tuple[Any, Any]:
        options = [None if mask is None else {"reset_mask": mask.copy()} for _ in range(2)]
        return originals.reset(seed=seed, options=options[0]), twin.reset(
            seed=seed, options=options[1]
        )

    yield "reset", *reset(5)
    over = np.zeros(count, bool)
    for k in range(steps):
        mask = over.copy()
        if originals.autoreset_mode is not AutoresetMode.DISABLED:
            mask[:] = rng.random() < RESET_CHANCE and rng.random(count) < RESET_ENV_CHANCE
        if mask.any():
            seed = None if rng.random() < 0.5 else int(rng.integers(2**31))
            yield f"reset before step {k}", *reset(seed, mask)
        actions = space.sample()
        if k % 4 > 1 and actions.dtype.kind == "f":
            actions *= 2  # beyond the bounds, as unclipped policies do
        if k % 4 > 2 and actions.dtype == np.float32:
            actions = actions.astype(np.float64) * rng.uniform(0.4, 1.0)
        expected = originals.step(actions)
        yield f"step {k}", expected, twin.step(actions)
        over = expected[2] | expected[3]


def plain(value: Any) -> Any:
    """Replace numbers and arrays by their types and bytes, so that NaN equals itself."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return value.shape, *map(plain, value.tolist())
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [type(value), *map(plain, value)]
    return pickle.dumps(value)


def first_of(expected: Any, actual: Any, name: str = "") -> str:
    """Describe the first difference of two results."""
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        names = PARTS if len(expected) == 5 else (PARTS[0], PARTS[-1])
        pairs = list(zip(names, expected, actual, strict=True))
    elif isinstance(expected, dict) and isinstance(actual, dict):
        keys = [*expected, *(key for key in actual if key not in expected)]
        pairs = [(f"{name}[{key!r}]", expected.get(key), actual.get(key)) for key in keys]
    elif np.shape(expected) == np.shape(actual) and np.ndim(expected):
        pairs = [(f"{name}[{i}]", expected[i], actual[i]) for i in range(len(expected))]
    else:
        return f"{name} is {actual!r}, where the original has {expected!r}"
    for part, one, other in pairs:
        if plain(one) != plain(other):
            return first_of(one, other, part)
    return f"{name} is {actual!r}, where the original has {expected!r}"
