"""The hub: connects viewers with the environments that are stepped.

The hub runs on the page's event loop, which is the caller's loop or one in a separate thread. The
camera renders in the caller's thread, and a painter thread makes the pictures::

    viewers --- wanted ids --> camera: before a step
    viewers <-- picture -- paint <-- frames <-'

Without viewers, the hub only counts episodes. A viewer gets the next picture when it has
reported that the last one is shown, so slow viewers get fewer pictures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from agym import Tap
from agym.watching.live.camera import Camera, FramesById
from agym.watching.live.metrics import Metrics
from agym.watching.live.throttle import Throttle
from agym.watching.live.view import View, last, pages, paint

# Interval between updates of the numbers.
NUMBERS_SECONDS = 0.5


class Viewer(Protocol):
    """A connected browser.

    Attributes:
        view: The environments that it shows.
        due: Whether it is ready for the next picture.
        keys: Keys that are pressed in it.
    """

    view: View
    due: bool
    keys: frozenset[str]

    def show(self, picture: bytes) -> None:
        """Show a picture."""

    def send(self, kind: str, message: str) -> None:
        """Send JSON, replacing an unsent message of the same kind."""

    async def hang_up(self, code: int, reason: str = "") -> None:
        """Disconnect within a second."""


class Hub:
    """All viewers of one page.

    Attributes:
        metrics: Counts episodes while the page is open.
        throttle: Delays the caller's steps; it is a hook only while it delays them.
        camera: Renders the wanted environments.
        arrival: Set while there are viewers.
        pressed: Set while a key is pressed.
    """

    def __init__(
        self, tap: Tap, *, title: str, fps: float, share: float, pictures: bool, legend: str
    ) -> None:
        """Start without viewers; ``metrics`` must be started.

        See :class:`Camera` for ``fps`` and ``share``. ``pictures`` is whether the environments
        render pictures. ``legend`` describes the keys; it is empty if keys have no effect.
        """
        self.metrics = Metrics(tap)
        self.throttle = Throttle(tap.num_envs)
        self.camera = Camera(tap, self._on_frames, fps=fps, share=share)
        self.arrival = asyncio.Event()
        self.pressed = asyncio.Event()
        self._tap = tap
        self._about = {
            "title": title,
            "num_envs": tap.num_envs,
            "pages": pages(tap.num_envs),
            "pictures": pictures,
            "legend": legend,
        }
        self._pictures = pictures
        # Settings made by code persist; settings of viewers are undone when the last viewer leaves.
        self._speed: float | None = None
        self._paused_by_viewer = False
        self._viewers: set[Viewer] = set()
        self._loop = asyncio.get_running_loop()
        self._frames: FramesById = {}
        self._frames_step = 0  # steps of all environments when the latest frames were rendered
        self._trouble: str | None = None
        self._closed = False
        self._shown = 0
        self._painter: ThreadPoolExecutor | None = None
        self._painting: asyncio.Task[None] | None = None
        self._again = False
        self._sending: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # set when the numbers must not wait any longer
        # Takes a picture without a step, which is only possible on the caller's loop.
        self.take_idle: Callable[[], None] | None = None

    # ---------------------------------------------------------------- viewers

    @property
    def keys(self) -> frozenset[str]:
        """The keys that are pressed in any viewer."""
        return frozenset().union(*(viewer.keys for viewer in tuple(self._viewers)))

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def add(self, viewer: Viewer) -> bool:
        """Add a viewer; return whether the page is still open."""
        if self._closed:
            return False
        if not self._viewers:
            self._tap.add_hook(self.camera)
            self._painter = ThreadPoolExecutor(1, thread_name_prefix="agym-painter")
        self._viewers.add(viewer)
        self.arrival.set()
        viewer.send("about", json.dumps({"type": "about", **self._about}))
        self.set_view(viewer, viewer.view)
        self._changed.set()
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send_numbers())
        return True

    def remove(self, viewer: Viewer) -> None:
        """Remove a viewer; after the last one, leave the environments alone. Idempotent."""
        if viewer not in self._viewers:
            return
        self._viewers.remove(viewer)
        self.on_keys_changed()
        self._request_frames()
        if not self._viewers:
            self._on_last_left()

    def _on_last_left(self) -> None:
        self.arrival.clear()
        self._tap.remove_hook(self.camera)
        self.camera.try_again(range(self._tap.num_envs))
        if self._paused_by_viewer:
            self.set_pause(False)
        self.set_speed(self._speed)
        self._frames, self._trouble = {}, None
        self._changed.set()
        if self._painter is not None:
            self._painter.shutdown(wait=False)
            self._painter = None

    async def close(self) -> None:
        """Release the caller and disconnect all viewers."""
        self._closed = True
        viewers = tuple(self._viewers)
        for viewer in viewers:
            self.remove(viewer)
        self._tap.remove_hook(self.throttle)
        self._tap.remove_hook(self.metrics)
        if viewers:
            steps = str(self.metrics.step)
            await asyncio.gather(*(viewer.hang_up(1001, steps) for viewer in viewers))
        under_way = [task for task in (self._painting, self._sending) if task is not None]
        if under_way:
            await asyncio.wait(under_way)

    def on_keys_changed(self) -> None:
        if self.keys:
            self.pressed.set()
        else:
            self.pressed.clear()

    # ---------------------------------------------------------------- controls

    def set_pause(self, on: bool, *, by_viewer: bool = False) -> None:
        self._paused_by_viewer = on and by_viewer
        if on:
            self.throttle.pause()
        else:
            self.throttle.resume()
        self._attach_throttle()

    def set_speed(self, steps: float | None, *, default: bool = False) -> None:
        """Limit the steps per second of each environment; ``default``: also without viewers."""
        if default:
            self._speed = steps
        self.throttle.set_limit(steps)
        self._attach_throttle()

    def _attach_throttle(self) -> None:
        """Attach the throttle only while it delays steps: without hooks, a step is faster."""
        if self.throttle.holds and not self._closed:
            self._tap.add_hook(self.throttle)
        else:
            self._tap.remove_hook(self.throttle)
        self._send_controls()

    # ---------------------------------------------------------------- pictures

    def set_view(self, viewer: Viewer, view: View) -> None:
        """Set the environments that a viewer shows; known frames are shown at once."""
        viewer.view, viewer.due = view, True
        ids = view.ids(self._tap.num_envs)
        self.camera.try_again(ids)
        self._trouble = None
        self._request_frames()
        if not self._frames.keys().isdisjoint(ids):
            self._paint()
        elif self._pictures and self.take_idle is not None:
            self.take_idle()

    def on_shown(self, viewer: Viewer) -> None:
        """Note that a viewer has shown its picture and wants the next."""
        viewer.due = True
        self._request_frames()

    def _request_frames(self) -> None:
        wanted: set[int] = set()
        if self._pictures:
            for viewer in self._viewers:
                if viewer.due:
                    wanted.update(viewer.view.ids(self._tap.num_envs))
        self.camera.want(tuple(sorted(wanted)))

    def _on_frames(self, frames: FramesById, trouble: str | None) -> None:
        """Pass frames from the camera to the page's loop; called in the caller's thread."""
        with suppress(RuntimeError):  # the page's loop is closed
            step = self.metrics.step
            self._loop.call_soon_threadsafe(self._receive_frames, frames, trouble, step)

    def _receive_frames(self, frames: FramesById, trouble: str | None, step: int) -> None:
        self._trouble = trouble or self._trouble
        self._frames_step = step
        known: set[int] = set()
        for viewer in self._viewers:
            known.update(viewer.view.reach(self._tap.num_envs))
        merged = {**self._frames, **{i: last(frame) for i, frame in frames.items()}}
        self._frames = {i: frame for i, frame in merged.items() if i in known}
        self._paint()

    def _paint(self) -> None:
        """Paint for the viewers that are due, once the painting in progress is finished."""
        self._again = True
        if self._painting is None or self._painting.done():
            self._painting = self._loop.create_task(self._paint_while_asked())

    async def _paint_while_asked(self) -> None:
        while self._again and self._viewers:
            self._again = False
            await self._paint_all()
            self._request_frames()  # for viewers that have no picture yet

    async def _paint_all(self) -> None:
        due = [viewer for viewer in self._viewers if viewer.due]
        seconds = 0.0
        for view in {viewer.view for viewer in due}:
            ids = view.ids(self._tap.num_envs)
            frames = {i: self._frames[i] for i in ids if i in self._frames}
            if not frames or self._painter is None:
                continue
            try:
                # During this await, viewers may leave or change their view.
                picture, cpu_seconds = await self._loop.run_in_executor(
                    self._painter, _paint, ids, frames, self._frames_step
                )
            except Exception as error:  # such as a frame that is not a picture
                self._trouble = str(error)
                continue
            seconds += cpu_seconds
            self._shown += 1
            for viewer in due:
                if viewer.view == view and viewer in self._viewers:
                    viewer.due = False
                    viewer.show(picture)
        if seconds:
            self.camera.charge(seconds)

    # ---------------------------------------------------------------- numbers

    async def _send_numbers(self) -> None:
        """Send each viewer the numbers of the environments it shows, now and periodically."""
        while self._viewers:
            self._changed.clear()
            await self._send_all_numbers()
            with suppress(TimeoutError):
                async with asyncio.timeout(NUMBERS_SECONDS):
                    await self._changed.wait()

    async def _send_all_numbers(self) -> None:
        if self._painter is None:
            return
        if self._tap.closed:
            closed = json.dumps({"type": "closed", "steps": self.metrics.step})
            for viewer in self._viewers:
                viewer.send("closed", closed)
            return
        try:
            numbers = await self._loop.run_in_executor(self._painter, self.metrics.read)
        except Exception:  # the environments are just being moved or closed
            self._send_controls()
            return
        state = {**self._controls(), "pictures": self._shown, "trouble": self._trouble}
        messages: dict[range, str] = {}
        for viewer in self._viewers:
            ids = viewer.view.page_ids(self._tap.num_envs)
            if ids not in messages:
                envs = numbers["envs"][ids.start : ids.stop]
                message = {**state, **numbers, "type": "numbers", "first": ids.start, "envs": envs}
                messages[ids] = json.dumps(message)
            viewer.send("numbers", messages[ids])

    def _send_controls(self) -> None:
        message = json.dumps({"type": "controls", **self._controls()})
        for viewer in self._viewers:
            viewer.send("controls", message)

    def _controls(self) -> dict[str, Any]:
        return {
            "paused": self.throttle.paused,
            "speed": self.throttle.limit,
            "fps": self.camera.fps,
        }


def _paint(ids: range, frames: FramesById, step: int) -> tuple[bytes, float]:
    """Return the painted picture and the CPU seconds that it took."""
    started = time.thread_time()
    picture = paint(ids, frames, step)
    return picture, time.thread_time() - started
