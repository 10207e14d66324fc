"""Replays: an episode from how it began and its actions, where a state cannot be copied."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from typing import Any

import numpy as np

from agym.hosts.snapshots.states import Record
from agym.protocol.messages.resets import EpisodeStart
from agym.protocol.space_layout import Layout

# Actions of one episode that are kept at most.
MAX_ACTIONS = 10_000


UNRECORDED = (
    "Its episode could be replayed, but its actions were not recorded: they are from the next reset"
    " on, so reset it and try again; with on_fault='replay' they are from the start"
)
REMEDY = "Or give it get_state and set_state, or say how by agym.snapshots.register"
CUT_OFF = "it was replaced after a fault: step or reset it first"
OTHER_KIND = "it was taken of another kind of environment: {}"
OTHER_REPLAY = "its replay came to another observation"


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


def replay(env: Any, record: Record) -> Any:
    """Play an episode again; return its latest observation."""
    observation, _ = env.reset(**copy.deepcopy(restore_start(env, record.start)))
    for action in record.actions:
        result = env.step(action)
        observation = result[0]
        if result[2] or result[3]:
            break
    return observation


def same_observation(layout: Layout, one: Any, other: Any) -> bool:
    """Return whether two observations are equal, to the last bit."""
    return all(
        bool(mine == theirs) or pickle.dumps(mine) == pickle.dumps(theirs)
        if leaf.dtype is None
        else np.asarray(mine, leaf.dtype).tobytes() == np.asarray(theirs, leaf.dtype).tobytes()
        for leaf, mine, theirs in zip(
            layout.leaves, layout.flatten(one), layout.flatten(other), strict=True
        )
    )
