"""The registry by which timelines find the environments of this process.

Environments register when they are opened: a timeline that begins finds those that are open, and a
running one gets those that are opened meanwhile. The registry is global to the process, and holds
only weak references to environments.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from agym.engine.engine import Engine


class Timeline(Protocol):
    """A timeline that is being recorded."""

    def add_engine(self, name: str, engine: Engine) -> None:
        """Record these environments too. Idempotent."""

    def add_block(self, name: str, begun: float, ended: float) -> None:
        """Record a named block of the caller's, in seconds of ``perf_counter``."""


_names: weakref.WeakKeyDictionary[Engine, str] = weakref.WeakKeyDictionary()
timelines: list[Timeline] = []  # the running ones


def register(name: str, engine: Engine) -> None:
    """Register environments that were opened."""
    _names[engine] = name
    for timeline in tuple(timelines):
        timeline.add_engine(name, engine)


def registered() -> list[tuple[str, Engine]]:
    """Return the name and engine of all registered environments, in their order."""
    # ``keyrefs`` is one atomic copy: other threads may register environments meanwhile.
    engines = [engine for ref in _names.keyrefs() if (engine := ref()) is not None]
    return [(_names[engine], engine) for engine in engines]
