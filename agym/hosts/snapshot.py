"""Snapshots: an environment with its state, in transfer from one host to another.

The environment is pickled whole, so it continues where it was. It is not moved if a pickle would
lose state: if it cannot be pickled, or if any part is an ``EzPickle`` of Gymnasium's, which is
unpickled from its constructor's arguments
(https://gymnasium.farama.org/api/utils/#gymnasium.utils.EzPickle). State outside of the object,
such as a simulator to which it has only a handle, cannot be detected.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils import EzPickle

from agym._system.pickling import ByValuePickler
from agym.hosts.episode import Episode
from agym.protocol.messages.resets import EpisodeStart
from agym.protocol.space_layout import Layout


class Snapshot(NamedTuple):
    """A pickled environment, and its host's record of it.

    Attributes:
        episode: Its episode.
        age: Steps of its episode.
        tally: The episode's statistics so far.
    """

    env: bytes
    episode: Episode
    age: int
    tally: Any


class _Whole(ByValuePickler):
    """Refuses objects that are pickled without their state."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, EzPickle):
            raise pickle.PicklingError(f"{type(obj).__name__} is not pickled with its state")
        return super().reducer_override(obj)


def pack_env(env: Any) -> bytes:
    """Pickle an environment with all of its state.

    Raises:
        Exception: It cannot be pickled, or would lose state.
    """
    file = io.BytesIO()
    _Whole(file, pickle.HIGHEST_PROTOCOL).dump(env)
    return file.getvalue()


def unpack_env(packed: bytes) -> Any:
    """Restore an environment from :func:`pack_env`."""
    return pickle.loads(packed)


def note_start(env: Any, arguments: dict[str, Any]) -> EpisodeStart:
    """Record how an episode is about to begin, from the arguments of its reset."""
    seed = arguments.get("seed")
    rng = None
    if seed is None:
        with suppress(Exception):  # coroutine environments may have none
            rng = env.unwrapped.np_random.bit_generator.state
    return EpisodeStart(seed, rng, arguments.get("options"))


def restore_start(env: Any, start: EpisodeStart) -> dict[str, Any]:
    """Restore random numbers for a reset as recorded; return the arguments of that reset."""
    if start.rng is not None:
        env.unwrapped.np_random.bit_generator.state = start.rng
    arguments: dict[str, Any] = {} if start.seed is None else {"seed": start.seed}
    return arguments if start.options is None else {**arguments, "options": start.options}


def same_observation(layout: Layout, one: Any, other: Any) -> bool:
    """Return whether two observations are equal, to the last bit."""
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
