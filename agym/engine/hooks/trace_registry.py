"""Recorders: who records timelines at this moment, and the tables whose hosts can be recorded.

Whoever makes environments tells so here, and a timeline that is begun later finds them. As with
forks (``_system/fork_safety.py``) this is about the whole process, and holds no environments alive.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from agym.protocol.typing import Array

# What the caller does while it waits for a result.
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
        """The caller did something, from one nanosecond of the system's clock to another."""


_tables: weakref.WeakKeyDictionary[Recorded, str] = weakref.WeakKeyDictionary()
_recorders: list[Recorder] = []  # those whose block runs; to look at a list takes no time


def add_table(name: str, recorded: Recorded) -> None:
    """Environments were made."""
    _tables[recorded] = name
    for recorder in tuple(_recorders):
        recorder.add_table(name, recorded)


def add_recorder(recorder: Recorder) -> None:
    """A timeline begins."""
    for recorded, name in [*_tables.items()]:
        recorder.add_table(name, recorded)
    _recorders.append(recorder)


def remove_recorder(recorder: Recorder) -> None:
    """It ends."""
    _recorders.remove(recorder)


def note(kind: str, name: str, begun: float, ended: float, *, in_task: bool | None = None) -> None:
    """The caller did something, from one second of ``perf_counter`` to another.

    It is told to all timelines; mostly there is none.

    Args:
        kind: What kind of thing.
        name: What it is called.
        begun: When it began.
        ended: When it ended.
        in_task: Whether a task of an event loop did it, or else a thread, if that is known.
    """
    if _recorders:
        lane = _lane(in_task)
        for recorder in tuple(_recorders):
            recorder.add_block(kind, lane, name, int(begun * 1e9), int(ended * 1e9))


def _lane(in_task: bool | None) -> str:
    """Who runs at this moment: a task, or a thread."""
    task = None
    if in_task is not False:
        with suppress(RuntimeError):  # no loop runs
            task = asyncio.current_task()
    return threading.current_thread().name if task is None else task.get_name()
