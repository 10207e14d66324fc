"""The state of one environment: the one description of where it is."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from agym.core._system.pickling import dumps
from agym.core.hosts.episode import Episode

WayName = Literal["attributes", "methods", "actions"]

# Why there is no state, and why one does not fit.
CUT_OFF = "it was replaced after a fault: step or reset it first"
OTHER_KIND = "it was taken of another kind of environment: {}"


class Copy(NamedTuple):
    """What was copied of an environment itself.

    Attributes:
        way: How: its attributes; by its own methods, of a coroutine environment or a
            ``VectorEnv``; or its actions.
        detail: What was copied how, in a few words.
        data: What the way has taken; a ``Record`` if these are its actions.
    """

    way: WayName
    detail: str
    data: Any


class Packed(NamedTuple):
    """The data of a copy between two processes, which only hosts need understand."""

    pickled: bytes


class EnvState(NamedTuple):
    """Where an environment is between two steps.

    ::

        copied   it is the copy, after some actions that follow
        over     its episode ended at the observation, with these flags
        cut off  its episode was lost after the observation
        fresh    it was not reset: there is no observation

    Attributes:
        episode: Its episode: phase, number, seed, options, and how the next one begins.
        observation: The last one.
        info: That of the same row.
        flags: Whether the same row was terminated, and truncated.
        copied: What was copied of the environment itself.
        actions: The actions since the copy.
        steps: Steps of the episode until the copy.
        statistics: The episode's statistics until the copy.
        otherwise: Where it is if the copy cannot be followed, for a replacement after a fault.
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
        """How it was copied, ``""`` if it is no copy."""
        return "" if self.copied is None else self.copied.way

    @property
    def detail(self) -> str:
        """What was copied how, in a few words."""
        return "" if self.copied is None else self.copied.detail

    @property
    def continues(self) -> bool:
        """Whether nothing of its episode is lost."""
        return self.copied is not None or any(self.flags)

    def packed(self) -> EnvState:
        """Return it with its copy pickled, for another process.

        Raises:
            Exception: It cannot be pickled.
        """
        copied = self.copied
        if copied is None or isinstance(copied.data, Packed):
            return self
        return self._replace(copied=copied._replace(data=Packed(dumps(copied.data))))

    def unpacked(self) -> EnvState:
        """Return it with its copy as it was taken."""
        copied = self.copied
        if copied is None or not isinstance(copied.data, Packed):
            return self
        return self._replace(copied=copied._replace(data=pickle.loads(copied.data.pickled)))
