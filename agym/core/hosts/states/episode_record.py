"""Records of episodes: the start and the actions, so that an episode can be replayed."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any, NamedTuple

from agym.core.protocol.messages.resets import EpisodeStart

# Maximum number of recorded actions of one episode.
MAX_ACTIONS = 10_000


class Record(NamedTuple):
    """The record of an episode for a replay: its start, and its actions."""

    start: EpisodeStart
    actions: list[Any]

    def copy(self) -> Record:
        """Return a copy, which further actions do not change."""
        return Record(self.start, [*self.actions])


def note_start(env: Any, arguments: dict[str, Any]) -> EpisodeStart:
    """Record how an episode is about to start, from the arguments of its reset."""
    seed = arguments.get("seed")
    rng = None
    if seed is None:
        with suppress(Exception):  # coroutine environments may have no generator
            rng = env.unwrapped.np_random.bit_generator.state
    return EpisodeStart(seed, rng, arguments.get("options"))


def restore_start(env: Any, start: EpisodeStart) -> dict[str, Any]:
    """Restore the random numbers of a recorded reset; return the arguments of that reset."""
    if start.rng is not None:
        env.unwrapped.np_random.bit_generator.state = start.rng
    arguments = {"seed": start.seed, "options": copy.deepcopy(start.options)}
    return {name: value for name, value in arguments.items() if value is not None}


def replay(env: Any, record: Record) -> Any:
    """Replay an episode; return its last observation."""
    observation, _ = env.reset(**restore_start(env, record.start))
    for action in record.actions:
        result = env.step(action)
        observation = result[0]
        if result[2] or result[3]:
            break
    return observation
