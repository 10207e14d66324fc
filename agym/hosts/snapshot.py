"""Luggage: an environment on its way from one host to another, in the midst of its life.

It is pickled whole, so that it goes on as if nothing had happened. Where a pickle would not hold
all of it, it stays where it is: what cannot be pickled at all, and whatever is an ``EzPickle``
of Gymnasium's, which is made anew from its constructor's arguments instead
(https://gymnasium.farama.org/api/utils/#gymnasium.utils.EzPickle). That some of its state is not in
it at all, such as a simulator of which it has the number, cannot be seen here.
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
from agym.protocol.messages import EpisodeStart
from agym.protocol.space_layout import Layout


class Snapshot(NamedTuple):
    """An environment, and what its host knew of it.

    Attributes:
        env: The environment, pickled.
        seed: Seed of the last explicit reset.
        options: Options for every automatic reset.
        reseed: Seed for its next reset, if it has to have one.
        episode: Episodes begun so far.
        age: Steps of its episode.
        over: The episode is over, and its next step is none.
        held: What that step gives, if it holds still.
        tally: What is counted of its episode.
    """

    env: bytes
    seed: int | None
    options: dict[str, Any] | None
    reseed: int | None
    episode: int
    age: int
    over: bool
    held: Any
    tally: Any


class _Whole(ByValuePickler):
    """Pickles whole objects or none."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse what leaves its state behind."""
        if isinstance(obj, EzPickle):
            raise pickle.PicklingError(f"{type(obj).__name__} is not pickled with its state")
        return super().reducer_override(obj)


def pack_env(env: Any) -> bytes:
    """Pickle an environment with all of its state.

    Raises:
        Exception: That cannot be done.
    """
    file = io.BytesIO()
    _Whole(file, pickle.HIGHEST_PROTOCOL).dump(env)
    return file.getvalue()


def unpack_env(packed: bytes) -> Any:
    """Bring it back to life."""
    return pickle.loads(packed)


def note_start(env: Any, arguments: dict[str, Any]) -> EpisodeStart:
    """Note down how an episode is about to begin, from the arguments of its reset."""
    seed = arguments.get("seed")
    rng = None
    if seed is None:
        with suppress(Exception):  # a coroutine environment need not have any
            rng = env.unwrapped.np_random.bit_generator.state
    return EpisodeStart(seed, rng, arguments.get("options"))


def restore_start(env: Any, start: EpisodeStart) -> dict[str, Any]:
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
