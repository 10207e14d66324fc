"""The records of a state: what hosts return, keep, send to other processes and restore."""

from __future__ import annotations

import pickle
from typing import Any, Literal, NamedTuple

from agym._system.pickling import dumps
from agym.hosts.episode import Episode
from agym.protocol.messages.resets import EpisodeStart

WayName = Literal["attributes", "methods", "actions"]


class Packed(NamedTuple):
    """The data of a state between two processes, which only hosts need understand."""

    pickled: bytes


class EnvState(NamedTuple):
    """The state of one environment between two steps, with its host's record of it.

    Attributes:
        way: How it was taken: as the attributes of its layers, by the methods of a coroutine
            environment or a ``VectorEnv``, or as the actions of its episode.
        detail: What was copied how, in a few words.
        data: The state of the environment itself, as the way has it.
        episode: Its episode: phase, number, seed, options.
        steps: Steps of this episode so far.
        statistics: The episode's statistics so far.
        observation: The last one.
        info: That of the same row.
        flags: Whether it was terminated, and truncated.
    """

    way: WayName
    detail: str
    data: Any
    episode: Episode
    steps: int
    statistics: Any
    observation: Any
    info: dict[str, Any]
    flags: tuple[bool, bool]

    def packed(self) -> EnvState:
        """Return it with its data pickled, for another process.

        Raises:
            Exception: They cannot be pickled.
        """
        if isinstance(self.data, Packed):
            return self
        return self._replace(data=Packed(dumps(self.data)))

    def unpacked(self) -> EnvState:
        """Return it with its data as they were taken."""
        if not isinstance(self.data, Packed):
            return self
        return self._replace(data=pickle.loads(self.data.pickled))


class Copy(NamedTuple):
    """A copy of an environment; the first fields of :class:`EnvState`."""

    way: WayName
    detail: str
    data: Any


class Record(NamedTuple):
    """An episode as it can be replayed: how it began, and its actions."""

    start: EpisodeStart
    actions: list[Any]
