"""The registry of running timelines and of the slot tables that they can record.

Environments register here when they are made, so that a timeline begun later finds them. The
registry is global to the process, and holds only weak references to environments.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from agym.protocol.typing import Array

# The kind of block in which the caller waits for a result.
WAITING = "waiting"


class Recorded(Protocol):
    """Environments that can be recorded."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays of ``protocol/metrics/spans.py``."""


class Recorder(Protocol):
    """A timeline that is being recorded."""

    def add_table(self, name: str, recorded: Recorded) -> None:
        """Record these environments too."""

    def add_block(self, kind: str, lane: str, name: str, begun: int, ended: int) -> None:
        """Record what the caller did between two times, in nanoseconds of ``perf_counter``."""


_tables: weakref.WeakKeyDictionary[Recorded, str] = weakref.WeakKeyDictionary()
_recorders: list[Recorder] = []  # the running ones; an emptiness check costs nothing


def add_table(name: str, recorded: Recorded) -> None:
    """Register environments that were made."""
    _tables[recorded] = name
    for recorder in tuple(_recorders):
        recorder.add_table(name, recorded)


def add_recorder(recorder: Recorder) -> None:
    """Register a timeline that begins."""
    for recorded, name in [*_tables.items()]:
        recorder.add_table(name, recorded)
    _recorders.append(recorder)


def remove_recorder(recorder: Recorder) -> None:
    """Remove a timeline that ends."""
    _recorders.remove(recorder)


def note(kind: str, name: str, begun: float, ended: float, *, in_task: bool | None = None) -> None:
    """Record what the caller did between two times in all timelines.

    Args:
        kind: The kind of activity.
        name: Its name.
        begun: When it began, in seconds of ``perf_counter``.
        ended: When it ended.
        in_task: Whether it was a task of an event loop, ``None`` if that is unknown.
    """
    if _recorders:
        lane = _lane(in_task)
        for recorder in tuple(_recorders):
            recorder.add_block(kind, lane, name, int(begun * 1e9), int(ended * 1e9))


def _lane(in_task: bool | None) -> str:
    """Return the name of the current task or thread."""
    task = None
    if in_task is not False:
        with suppress(RuntimeError):  # no loop is running
            task = asyncio.current_task()
    return threading.current_thread().name if task is None else task.get_name()
