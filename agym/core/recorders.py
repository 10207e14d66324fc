"""Recorders: who records timelines at this moment, and the tables whose hosts can be recorded.

Whoever makes environments tells so here, and a timeline that is begun later finds them. As with
forks (``core/forks.py``) this is about the whole process, and holds nothing alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


# What the caller does while it waits for a result.
WAITING = "waiting"


class Recorded(Protocol):
    """Environments that can be recorded."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays of ``core/spans.py``."""


class Recorder(Protocol):
    """A timeline that is being recorded."""

    def add_table(self, name: str, recorded: Recorded) -> None:
        """Record these environments too."""

    def add_block(self, kind: str, name: str, begun: int, ended: int) -> None:
        """The caller did something, from one nanosecond of the system's clock to another."""


_tables: weakref.WeakKeyDictionary[Recorded, str] = weakref.WeakKeyDictionary()
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def announce(name: str, recorded: Recorded) -> None:
    """Environments were made."""
    _tables[recorded] = name
    for recorder in [*_recorders]:
        recorder.add_table(name, recorded)


def enlist(recorder: Recorder) -> None:
    """A timeline begins."""
    for recorded, name in [*_tables.items()]:
        recorder.add_table(name, recorded)
    _recorders.add(recorder)


def dismiss(recorder: Recorder) -> None:
    """It ends."""
    _recorders.discard(recorder)


def note(kind: str, name: str, begun: float, ended: float) -> None:
    """The caller did something, from one second of ``perf_counter`` to another.

    It is told to all timelines; mostly there is none.
    """
    if _recorders:
        for recorder in [*_recorders]:
            recorder.add_block(kind, name, int(begun * 1e9), int(ended * 1e9))
