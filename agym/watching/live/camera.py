"""The camera: renders the environments that viewers watch, while they are stepped.

Before a step is sent, a render of the wanted environments is sent; the step queues behind it. The
caller does not wait for the render::

    page (its thread):   want(ids) ------------.                          .--> deliver(frames)
    caller:              step(...) --> before_step --> take() ... result --> step(...)

The rate is limited by pictures per second and by the share of the cores' time. Each worker renders
separately: the environments of a slow worker are missing from a picture, but do not delay it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Any

from agym import Hook, Tap
from agym.core._system.cpus import available_cores
from agym.core.protocol.arguments import Ids

FramesById = dict[int, Any]

# How long a picture waits for the frames of slower workers.
GATHER_SECONDS = 0.1


class Camera(Hook):
    """Renders the wanted environments.

    Attributes:
        fps: Maximum number of pictures per second.
        share: Maximum share of the cores' time that pictures may take.
    """

    def __init__(
        self,
        tap: Tap,
        deliver: Callable[[FramesById, str | None], None],
        *,
        fps: float,
        share: float,
    ) -> None:
        """Start without wanted environments.

        ``deliver`` is called in the caller's thread, with rendered frames or an error message.
        """
        self.fps = fps
        self.share = share
        self._tap = tap
        self._deliver = deliver
        # Set by the page, perhaps in another thread, and cleared by the caller's thread. Each is a
        # single assignment, so no lock is needed. If a request is cleared too early, the page
        # repeats it after the next picture.
        self._wanted: Ids = ()
        # The workers with a render in flight, the frames of the other workers, and the time when
        # the latest render was sent.
        self._in_flight: set[int] = set()
        self._collected: FramesById = {}
        self._started_at = 0.0
        # Environments whose render raised are not rendered again: each try would count as a fault.
        self._failing: set[int] = set()
        self._due = 0.0
        self._rendering = tap.gauges.arrays["rendering"]
        self._rendered = int(self._rendering.sum())
        self._painting = 0.0
        self._cost = 0.0
        self._cores = available_cores()

    def want(self, ids: Ids) -> None:
        """Take a picture of these environments as soon as the limits allow."""
        self._wanted = ids

    def try_again(self, ids: Iterable[int]) -> None:
        """Render these environments again, even if their render raised before."""
        self._failing.difference_update(ids)

    def charge(self, seconds: float) -> None:
        """Record the CPU seconds that painting the latest picture took."""
        self._painting = seconds

    def before_step(self, ids: Ids) -> None:
        if self._collected and time.monotonic() >= self._started_at + GATHER_SECONDS:
            self._deliver_frames()
        if self._wanted and time.monotonic() >= self._due and not self._collected:
            self.take()

    def take(self) -> list[Any]:
        """Start to render the wanted environments that are usable and not being rendered.

        Returns:
            Tickets to wait for.
        """
        self._set_due()
        wanted = {i for i in self._tap.usable(self._wanted) if i not in self._failing}
        tickets = []
        for worker, ids in groupby(sorted(wanted), self._tap.worker_of):
            if worker not in self._in_flight:
                ticket = self._send_render(worker, tuple(ids))
                tickets += [] if ticket is None else [ticket]
        if tickets:
            self._wanted = ()
        return tickets

    def _send_render(self, worker: int, ids: Ids) -> Any:
        self._started_at = time.monotonic()
        self._in_flight.add(worker)
        try:
            return self._tap.render(ids, partial(self._on_rendered, worker))
        except Exception as error:  # a failed render must not fail the step
            self._in_flight.discard(worker)
            self._failing.update(ids)
            self._deliver({}, str(error))
            return None

    def _on_rendered(self, worker: int, rendered: Any) -> None:
        """Collect frames; if some environments raised, the others still have frames."""
        self._in_flight.discard(worker)
        self._collected.update(rendered.pictures)
        if rendered.error is not None:
            self._failing.update(rendered.failed)
            self._deliver({}, str(rendered.error))
        if not self._in_flight or time.monotonic() >= self._started_at + GATHER_SECONDS:
            self._deliver_frames()

    def _deliver_frames(self) -> None:
        frames, self._collected = self._collected, {}
        if frames:
            self._deliver(frames, None)

    def _set_due(self) -> None:
        """Set the earliest time of the next picture from the cost of the latest."""
        rendered = int(self._rendering.sum())
        before = self._cost
        self._cost = (rendered - self._rendered) / 1e9 + self._painting
        self._rendered = rendered
        # An environment's first render is expensive, so use the smaller of the last two costs.
        seconds = min(before, self._cost) / (self.share * self._cores)
        self._due = time.monotonic() + max(1 / self.fps, seconds)
