"""The state of one environment as a value, and the record of its episode, which can be replayed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from agym.core._system.pickling import dumps
from agym.core.hosts.episode import Episode
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


WayName = Literal["attributes", "methods", "actions"]

# Why there is no state, and why a state does not fit.
CUT_OFF = "it was replaced after a fault: step or reset it first"
OTHER_KIND = "it was taken from another kind of environment: {}"


class Copy(NamedTuple):
    """The copy of an environment itself.

    Attributes:
        way: How it was copied: by attributes; by methods of a coroutine environment or a
            ``VectorEnv``; or by actions.
        detail: What was copied and how, in a few words.
        data: The copied data; a ``Record`` for actions.
    """

    way: WayName
    detail: str
    data: Any


class Packed(NamedTuple):
    """The data of a copy on its way between two processes, which only hosts unpickle."""

    pickled: bytes


class EnvState(NamedTuple):
    """The state of an environment between two steps.

    ::

        copied   the environment is in the state of the copy, plus some later actions
        over     its episode ended at the observation, with these flags
        cut off  its episode was lost after the observation
        fresh    it was not reset: there is no observation

    Attributes:
        episode: Its episode: phase, number, seed, options, and how the next episode starts.
        observation: The last observation.
        info: The info of the same row.
        flags: Whether the same row was terminated, and truncated.
        copied: The copy of the environment itself.
        actions: The actions since the copy.
        steps: Steps of the episode until the copy.
        statistics: The episode's statistics until the copy.
        otherwise: The state if the copy cannot be loaded, for a replacement after a fault.
    """

    episode: Episode
    observation: Any = None
    info: dict[str, Any] = {}  # noqa: RUF012 - never changed
    flags: tuple[bool, bool] = (False, False)
    copied: Copy | None = None
    actions: Sequence[Any] = ()
    steps: int = 0
    statistics: Any = None
    otherwise: EnvState | None = None

    @property
    def way(self) -> str:
        """How it was copied, ``""`` if there is no copy."""
        return "" if self.copied is None else self.copied.way

    @property
    def detail(self) -> str:
        """What was copied and how, in a few words."""
        return "" if self.copied is None else self.copied.detail

    @property
    def continues(self) -> bool:
        """Whether nothing of its episode is lost."""
        return self.copied is not None or any(self.flags)

    def packed(self) -> EnvState:
        """Return this state with its copy pickled, for another process.

        Raises:
            Exception: The copy cannot be pickled.
        """
        copied = self.copied
        if copied is None or isinstance(copied.data, Packed):
            return self
        return self._replace(copied=copied._replace(data=Packed(dumps(copied.data))))

    def unpacked(self) -> EnvState:
        """Return this state with its copy unpickled."""
        copied = self.copied
        if copied is None or not isinstance(copied.data, Packed):
            return self
        return self._replace(copied=copied._replace(data=pickle.loads(copied.data.pickled)))
