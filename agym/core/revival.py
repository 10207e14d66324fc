"""Revival: bringing an environment back to where another one was.

The random numbers of an environment of Gymnasium's are ``np_random`` of the innermost one
(https://gymnasium.farama.org/api/env/#gymnasium.Env.np_random). With their state from before a
reset, or with the seed of it, and the actions since, another environment gets to the same place,
if it is a function of these alone; whether it did is seen by a digest of the last observation.
"""

from __future__ import annotations

import hashlib
import pickle
from contextlib import suppress
from typing import Any

import numpy as np

from agym.core.layout import Layout
from agym.core.operations import Start


def note_start(env: Any, arguments: dict[str, Any]) -> Start:
    """Note down how an episode is about to begin, from the arguments of its reset."""
    seed = arguments.get("seed")
    rng = None
    if seed is None:
        with suppress(Exception):  # a coroutine environment need not have any
            rng = env.unwrapped.np_random.bit_generator.state
    return Start(seed, rng, arguments.get("options"))


def restore_start(env: Any, start: Start) -> dict[str, Any]:
    """Make an environment ready for a reset as it was; gives the arguments of that reset."""
    if start.rng is not None:
        env.unwrapped.np_random.bit_generator.state = start.rng
    arguments: dict[str, Any] = {} if start.seed is None else {"seed": start.seed}
    return arguments if start.options is None else {**arguments, "options": start.options}


def same_observation(layout: Layout, one: Any, other: Any) -> bool:
    """Whether two observations are the same, to the last bit."""
    return _digest(layout, one) == _digest(layout, other)


def _digest(layout: Layout, observation: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    values = layout.flatten(observation)
    for value, leaf in zip(values, layout.leaves, strict=True):
        if leaf.dtype is None:
            digest.update(pickle.dumps(value))
        else:
            digest.update(np.asarray(value, leaf.dtype).tobytes())
    return digest.digest()
