"""The camera: takes pictures of environments while they are stepped, but only what is wanted.

Before a step is dispatched, a render of the environments that are wanted is, behind which they
step; nobody waits for it::

    page (its thread):   want(ids) ------------.                          .--> deliver(frames)
    caller:              step(...) --> before_step --> render(ids) ... result --> step(...)

How often is limited, by pictures a second, and by the share of the cores' time that they take.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from agym.core.arguments import Ids
from agym.core.engine import Engine
from agym.core.listeners import Listener
from agym.core.machine import available_cores
from agym.core.ticket import Ticket

Frames = dict[int, Any]


class Camera(Listener):
    """Takes the pictures of one engine's environments.

    Attributes:
        fps: How many pictures a second, at most.
        share: Which share of the cores' time they may take, at most.
    """

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[Frames, BaseException | None], None],
        *,
        fps: float,
        share: float,
    ) -> None:
        """Take none before it is wanted.

        Args:
            engine: Whose environments.
            deliver: Called in the caller's thread with what environments rendered, or with why
                there is nothing.
            fps: See above.
            share: See above.
        """
        self.fps = fps
        self.share = share
        self._engine = engine
        self._deliver = deliver
        # Written by the page, maybe in another thread, and taken by the caller.
        self._wanted: Ids = ()
        self._ticket: Ticket | None = None
        self._due = 0.0
        self._rendering = engine.table.gauges.arrays["rendering"]
        self._rendered = int(self._rendering.sum())
        self._painting = 0.0
        self._cost = 0.0
        self._cores = available_cores()

    def want(self, ids: Ids) -> None:
        """Take one picture of these as soon as it may be."""
        self._wanted = ids

    def charge(self, seconds: float) -> None:
        """So long was computed to show the latest picture."""
        self._painting = seconds

    def before_step(self, ids: Ids) -> None:
        """Take a picture, if one is wanted and due."""
        if self._wanted and self._ticket is None and time.monotonic() >= self._due:
            self.take()

    def take(self) -> Ticket | None:
        """Begin to render those that are wanted, as far as they are there; ``None`` if none is."""
        ids = self._engine.usable(self._wanted)
        self._wanted = ()
        self._set_due()
        if not ids:
            return None
        try:
            ticket = self._engine.ask("render", env_ids=ids)
        except Exception as error:  # that is no reason for a step to fail
            self._deliver({}, error)
            return None
        if ticket.done:
            self._arrived(ticket)
        else:
            self._ticket = ticket
            ticket.on_done(partial(self._arrived, ticket))
        return ticket

    @property
    def busy(self) -> bool:
        """Whether a picture is being taken."""
        return self._ticket is not None

    def _arrived(self, ticket: Ticket) -> None:
        """A render has ended; where some environments raised, the others have frames."""
        self._ticket = None
        values = {} if ticket.extras is None else ticket.extras.values
        self._deliver({i: values[i] for i in ticket.ids if i in values}, ticket.error)

    def _set_due(self) -> None:
        """Set the earliest time of the next picture, by what the latest one cost."""
        rendered = int(self._rendering.sum())
        before = self._cost
        self._cost = (rendered - self._rendered) / 1e9 + self._painting
        self._rendered = rendered
        # The first picture of an environment is costly, so the smaller of two counts.
        seconds = min(before, self._cost) / (self.share * self._cores)
        self._due = time.monotonic() + max(1 / self.fps, seconds)
