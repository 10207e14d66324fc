"""The proof that a way to copy environments is exact, with two environments made for it.

One is played to some point of an episode and copied to the other. Then both take the same actions,
through ends of episodes and resets without a seed, and must do the same, bit for bit.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from agym.hosts.snapshots.attributes import layers

# Steps of the original before it is copied, of the other before it is overwritten, and of both
# together afterwards.
ORIGINAL_STEPS, SHADOW_STEPS, COMPARED_STEPS = 23, 9, 50


def refute(
    take: Callable[[Any], Any],
    put: Callable[[Any, Any], Any],
    make: Callable[[], Any],
    used: Sequence[Any],
) -> str:
    """Return why a way is not exact, ``""`` if it is.

    Args:
        take: Returns the state of an environment.
        put: Sets the state of an environment, and returns it, or another in its place.
        make: Makes an environment.
        used: Environments in use, which must not be touched.
    """
    made: list[Any] = []
    drawn = random.getstate(), np.random.get_state()  # noqa: NPY002 - environments may use it
    mine = {id(layer) for env in used for layer in layers(env)}
    try:
        for _ in range(2):
            env = make()
            if mine.intersection(map(id, layers(env))):
                return "its factory returns an environment that is in use, and makes no other"
            mine.update(map(id, layers(env)))
            made.append(env)
        return _difference(take, put, made)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])  # noqa: NPY002
        for env in made:
            with suppress(Exception):
                env.close()


def _difference(take: Callable[[Any], Any], put: Callable[[Any, Any], Any], made: list[Any]) -> str:
    original, shadow = made
    _play(original, 1, ORIGINAL_STEPS)
    _play(shadow, 2, SHADOW_STEPS)
    state = pickle.loads(pickle.dumps(take(original)))
    made[1] = shadow = put(shadow, state)
    for step in range(COMPARED_STEPS):
        action = original.action_space.sample()
        one, other = original.step(action), shadow.step(action)
        if not _same(one[:4], other[:4]):
            return f"a copy went another way in step {step + 1} after it was made"
        begins = one[2] or one[3] or step == COMPARED_STEPS // 2
        if begins and not _same(original.reset()[0], shadow.reset()[0]):
            return "a copy began its next episode otherwise"
    return ""


def _play(env: Any, seed: int, steps: int) -> None:
    env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(steps):
        result = env.step(env.action_space.sample())
        if result[2] or result[3]:
            env.reset()


def _same(one: Any, other: Any) -> bool:
    """Return whether two results are equal to the last bit."""
    return pickle.dumps(_plain(one)) == pickle.dumps(_plain(other))


def _plain(value: Any) -> Any:
    """Return arrays as their bytes, so that equal values have equal pickles."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist() if value.dtype.hasobject else (value.dtype.str, value.tobytes())
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
