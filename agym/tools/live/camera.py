"""The camera: takes pictures of environments while they are stepped, but only what is wanted.

Before a step is dispatched, a render of the environments that are wanted is, behind which they
step; nobody waits for it::

    page (its thread):   want(ids) ------------.                          .--> deliver(frames)
    caller:              step(...) --> before_step --> look(ids) ... result --> step(...)

How often is limited, by pictures a second, and by the share of the cores' time that they take.
Each worker renders its own, so that one who takes long keeps only itself out of the picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from agym._system.cpus import available_cores
from agym.engine.engine import Engine
from agym.engine.hooks.hooks import Hook
from agym.engine.ticket import Ticket
from agym.protocol.arguments import Ids
from agym.protocol.messages import Failure

FramesById = dict[int, Any]

# So long are the frames of other workers waited for.
GATHER_SECONDS = 0.1


class Camera(Hook):
    """Takes the pictures of one engine's environments.

    Attributes:
        fps: How many pictures a second, at most.
        share: Which share of the cores' time they may take, at most.
    """

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[FramesById, str | None], None],
        *,
        fps: float,
        share: float,
    ) -> None:
        """Take none before it is wanted.

        Args:
            engine: Whose environments.
            deliver: Called in the caller's thread with what environments rendered, and with what
                was wrong with others.
            fps: See above.
            share: See above.
        """
        self.fps = fps
        self.share = share
        self._engine = engine
        self._deliver = deliver
        # Written by the page, maybe in another thread, and taken by the caller.
        self._wanted: Ids = ()
        # By worker, the render that is under way; what has come of the others; since when.
        self._in_flight: dict[int, Ticket] = {}
        self._collected: FramesById = {}
        self._begun = 0.0
        # Environments whose render raised are left alone: that is a fault of theirs each time.
        self._failing: set[int] = set()
        self._due = 0.0
        self._rendering = engine.table.gauges.arrays["rendering"]
        self._rendered = int(self._rendering.sum())
        self._painting = 0.0
        self._cost = 0.0
        self._cores = available_cores()

    def want(self, ids: Ids) -> None:
        """Take one picture of these as soon as it may be."""
        self._wanted = ids

    def try_again(self, ids: Iterable[int]) -> None:
        """Render these even if that has raised before."""
        self._failing.difference_update(ids)

    def charge(self, seconds: float) -> None:
        """So long was computed to show the latest picture."""
        self._painting = seconds

    def before_step(self, ids: Ids) -> None:
        """Take a picture, if one is wanted and due."""
        if self._collected and time.monotonic() >= self._begun + GATHER_SECONDS:
            self._deliver_frames()
        if self._wanted and time.monotonic() >= self._due and not self._collected:
            self.take()

    def take(self) -> list[Ticket]:
        """Begin to render those that are wanted, as far as they are there and not at it."""
        self._set_due()
        wanted = {i for i in self._engine.usable(self._wanted) if i not in self._failing}
        begun = []
        for worker, ids in enumerate(self._engine.ranges):
            mine = tuple(sorted(wanted.intersection(ids)))
            if mine and worker not in self._in_flight:
                ticket = self._begin(worker, mine)
                begun += [] if ticket is None else [ticket]
        if begun:
            self._wanted = ()
        return begun

    def _begin(self, worker: int, ids: Ids) -> Ticket | None:
        self._begun = time.monotonic()
        try:
            ticket = self._engine.render_aside(ids)
        except Exception as error:  # that is no reason for a step to fail
            self._failing.update(ids)
            self._deliver({}, str(error))
            return None
        if ticket.done:
            self._on_rendered(worker, ticket)
        else:
            self._in_flight[worker] = ticket
            ticket.on_done(partial(self._on_rendered, worker, ticket))
        return ticket

    def _on_rendered(self, worker: int, ticket: Ticket) -> None:
        """A render has ended; where some environments raised, the others have frames."""
        self._in_flight.pop(worker, None)
        values = {} if ticket.extras is None else ticket.extras.values
        self._collected.update((i, values[i]) for i in ticket.ids if i in values)
        if ticket.error is not None:
            problems = [] if ticket.extras is None else ticket.extras.problems
            for problem in problems:
                if isinstance(problem, Failure):  # another will be there for one that was lost
                    self._failing.update(problem.env_ids)
            if ticket.expired:
                self._failing.update(ticket.late())
            self._deliver({}, str(ticket.error))
        if not self._in_flight or time.monotonic() >= self._begun + GATHER_SECONDS:
            self._deliver_frames()

    def _deliver_frames(self) -> None:
        frames, self._collected = self._collected, {}
        if frames:
            self._deliver(frames, None)

    def _set_due(self) -> None:
        """Set the earliest time of the next picture, by what the latest one cost."""
        rendered = int(self._rendering.sum())
        before = self._cost
        self._cost = (rendered - self._rendered) / 1e9 + self._painting
        self._rendered = rendered
        # The first picture of an environment is costly, so the smaller of two counts.
        seconds = min(before, self._cost) / (self.share * self._cores)
        self._due = time.monotonic() + max(1 / self.fps, seconds)
