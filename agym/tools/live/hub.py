"""The hub: between those who look, and the environments that are stepped.

It lives on the page's event loop, which is the caller's own or one in a thread beside it. Pictures
are taken by the camera, in the caller's thread, and painted in a thread of their own::

    viewers --- what they want ---> camera: before a step
    viewers <-- picture -- paint <-- frames <-'

With nobody to look, the environments know nothing of it. A viewer that has a picture is due for
the next one when it says that it has shown it, so slow ones get fewer, and vanished ones none.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from agym.engine.engine import Engine
from agym.engine.hooks.hooks import Hook
from agym.engine.hooks.throttle import Throttle
from agym.protocol.arguments import Ids
from agym.tools.live.camera import Camera, FramesById
from agym.tools.live.score import Metrics
from agym.tools.live.view import View, last, pages, paint

# How often numbers are told, in seconds.
TELL_SECONDS = 0.5


class Viewer(Protocol):
    """Somebody who looks.

    Attributes:
        view: What at.
        due: Whether the next picture is wanted.
        keys: The keys that are held down there.
    """

    view: View
    due: bool
    keys: frozenset[str]

    def show(self, picture: bytes) -> None:
        """Show a picture; it is not due for another then."""

    def tell(self, kind: str, message: str) -> None:
        """Tell something in JSON, in place of what was not sent yet of this kind."""

    async def hang_up(self, code: int) -> None:
        """Send it away, within a second."""


class StepCounter(Hook):
    """Counts steps for the brake."""

    def __init__(self, brake: Throttle) -> None:
        """Count for this one."""
        self._brake = brake

    def before_step(self, ids: Ids) -> None:
        self._brake.count(len(ids))


class Hub:
    """All viewers of one page.

    Attributes:
        brake: What holds the caller up.
        camera: What takes the pictures.
        arrival: Set while somebody looks.
        pressed: Set while a key is held down.
    """

    def __init__(
        self, engine: Engine, title: str, *, fps: float, share: float, pictures: bool, legend: str
    ) -> None:
        """Nobody looks yet.

        Args:
            engine: Whose environments.
            title: What they are called.
            fps: Most pictures a second.
            share: Most of the cores' time that pictures may take.
            pictures: Whether environments give any.
            legend: What keys do, if they do anything.
        """
        self.brake = Throttle(engine.num_envs)
        self.camera = Camera(engine, self._on_frames, fps=fps, share=share)
        self.arrival = asyncio.Event()
        self.pressed = asyncio.Event()
        self._engine = engine
        self._about = {
            "title": title,
            "num_envs": engine.num_envs,
            "pages": pages(engine.num_envs),
            "pictures": pictures,
            "legend": legend,
        }
        self._pictures = pictures
        self._score = Metrics(engine)
        self._odometer = StepCounter(self.brake)
        self._counting = False
        # What was said in code, and what in a browser, which holds as long as somebody looks.
        self._speed: float | None = None
        self._paused_there = False
        self._viewers: set[Viewer] = set()
        self._loop = asyncio.get_running_loop()
        self._frames: FramesById = {}
        self._trouble: str | None = None
        self._closed = False
        self._shown = 0
        self._painter: ThreadPoolExecutor | None = None
        self._painting: asyncio.Task[None] | None = None
        self._again = False
        self._telling: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        # Takes a picture where no steps do; only the caller's own loop can.
        self.take_idle: Callable[[], None] | None = None

    # ---------------------------------------------------------------- who looks

    @property
    def keys(self) -> frozenset[str]:
        """The keys that are held down anywhere."""
        return frozenset().union(*(viewer.keys for viewer in tuple(self._viewers)))

    @property
    def viewers(self) -> int:
        """How many look."""
        return len(self._viewers)

    def add(self, viewer: Viewer) -> bool:
        """Somebody comes; tells whether there is still something to see."""
        if self._closed:
            return False
        if not self._viewers:
            self._score.forget()
            self._engine.listeners.add(self.camera)
            self._engine.listeners.add(self._score)
            self._painter = ThreadPoolExecutor(1, thread_name_prefix="agym-painter")
        self._viewers.add(viewer)
        self.arrival.set()
        viewer.tell("about", json.dumps({"type": "about", **self._about}))
        self.set_view(viewer, viewer.view)
        self._tell()
        return True

    def remove(self, viewer: Viewer) -> None:
        """Somebody leaves; with the last one all goes on as if nobody had come. Idempotent."""
        if viewer not in self._viewers:
            return
        self._viewers.remove(viewer)
        self.on_keys_changed()
        self._request_frames()
        if not self._viewers:
            self._on_last_left()

    def _on_last_left(self) -> None:
        """Nobody looks any more."""
        self.arrival.clear()
        self._engine.listeners.remove(self.camera)
        self._engine.listeners.remove(self._score)
        self.camera.try_again(range(self._engine.num_envs))
        if self._paused_there:
            self.set_pause(False)
        self.set_speed(self._speed)
        self._frames, self._trouble = {}, None
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._painter is not None:
            self._painter.shutdown(wait=False)
            self._painter = None

    async def close(self) -> None:
        """Let the caller go on, and send everybody away."""
        self._closed = True
        viewers = tuple(self._viewers)
        for viewer in viewers:
            self.remove(viewer)
        self.set_pause(False)
        self.set_speed(None)
        await asyncio.gather(*(viewer.hang_up(1001) for viewer in viewers))
        under_way = [task for task in (self._painting, self._asking) if task is not None]
        if under_way:
            await asyncio.wait(under_way)

    def on_keys_changed(self) -> None:
        """Keys went down, or up."""
        if self.keys:
            self.pressed.set()
        else:
            self.pressed.clear()

    # ---------------------------------------------------------------- controls

    def set_pause(self, on: bool, *, there: bool = False) -> None:
        """Pause, or go on; ``there``, if somebody in a browser says so."""
        self._paused_there = on and there
        if on:
            self.brake.pause()
        else:
            self.brake.resume()
        self._count()

    def set_speed(self, steps: float | None, *, usual: bool = False) -> None:
        """Limit how often a second each environment steps; also for when nobody looks."""
        if usual:
            self._speed = steps
        self.brake.set_limit(steps)
        self._count()

    def _count(self) -> None:
        """Count steps as long as they are held up."""
        if self.brake.engaged != self._counting:
            self._counting = self.brake.engaged
            listeners = self._engine.listeners
            (listeners.add if self._counting else listeners.remove)(self._odometer)
        self._tell_controls()

    # ---------------------------------------------------------------- pictures

    def set_view(self, viewer: Viewer, view: View) -> None:
        """Somebody wants to see this now; what is known of it is shown at once."""
        viewer.view, viewer.due = view, True
        ids = view.ids(self._engine.num_envs)
        self.camera.try_again(ids)
        self._trouble = None
        self._request_frames()
        if not self._frames.keys().isdisjoint(ids):
            self._paint()
        elif self._pictures and self.take_idle is not None:
            self.take_idle()

    def on_shown(self, viewer: Viewer) -> None:
        """Somebody has shown a picture."""
        viewer.due = True
        self._request_frames()

    def _request_frames(self) -> None:
        """Tell the camera who is wanted."""
        wanted: set[int] = set()
        if self._pictures:
            for viewer in self._viewers:
                if viewer.due:
                    wanted.update(viewer.view.ids(self._engine.num_envs))
        self.camera.want(tuple(sorted(wanted)))

    def _on_frames(self, frames: FramesById, trouble: str | None) -> None:
        """The camera has taken a picture, in the caller's thread."""
        with suppress(RuntimeError):  # the page's loop has ended
            self._loop.call_soon_threadsafe(self._receive_frames, frames, trouble)

    def _receive_frames(self, frames: FramesById, trouble: str | None) -> None:
        self._trouble = trouble or self._trouble
        known: set[int] = set()
        for viewer in self._viewers:
            known.update(viewer.view.reach(self._engine.num_envs))
        taken = {**self._frames, **{i: last(frame) for i, frame in frames.items()}}
        self._frames = {i: frame for i, frame in taken.items() if i in known}
        self._paint()

    def _paint(self) -> None:
        """Paint for those who are due, after what is being painted."""
        if self._painting is not None:
            self._again = True
        elif self._viewers:
            self._again = False
            self._painting = self._loop.create_task(self._paint_all())
            self._painting.add_done_callback(self._painted)

    def _painted(self, task: asyncio.Task[None]) -> None:
        self._painting = None
        if not task.cancelled() and task.exception() is not None:
            self._trouble = str(task.exception())
        if self._again:
            self._paint()
        self._request_frames()  # those who could not be served

    async def _paint_all(self) -> None:
        due = [viewer for viewer in self._viewers if viewer.due]
        seconds = 0.0
        for view in {viewer.view for viewer in due}:
            ids = view.ids(self._engine.num_envs)
            frames = {i: self._frames[i] for i in ids if i in self._frames}
            if not frames or self._painter is None:
                continue
            try:
                picture, spent = await self._loop.run_in_executor(
                    self._painter, _paint, ids, frames
                )
            except Exception as error:  # such as a frame that is no picture
                self._trouble = str(error)
                continue
            seconds += spent
            self._shown += 1
            for viewer in due:
                if viewer.view == view and viewer in self._viewers:
                    viewer.due = False
                    viewer.show(picture)
        if seconds:
            self.camera.charge(seconds)

    # ---------------------------------------------------------------- numbers

    def _tell(self) -> None:
        """Tell everybody the numbers of what they look at, now and again."""
        if self._telling is not None:
            self._telling.cancel()
        if self._viewers and self._asking is None:
            self._asking = self._loop.create_task(self._tell_all())
            self._asking.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if self._viewers:
            self._telling = self._loop.call_later(TELL_SECONDS, self._tell)

    async def _tell_all(self) -> None:
        if self._painter is None:
            return
        if self._engine.closed:
            for viewer in self._viewers:
                viewer.tell("closed", '{"type": "closed"}')
            return
        try:
            numbers = await self._loop.run_in_executor(self._painter, self._score.read)
        except Exception:  # they move, or are being closed, at this moment
            self._tell_controls()
            return
        state = {**self._controls(), "pictures": self._shown, "trouble": self._trouble}
        told: dict[range, str] = {}
        for viewer in self._viewers:
            ids = viewer.view.page_ids(self._engine.num_envs)
            if ids not in told:
                envs = numbers["envs"][ids.start : ids.stop]
                message = {**state, **numbers, "type": "numbers", "first": ids.start, "envs": envs}
                told[ids] = json.dumps(message)
            viewer.tell("numbers", told[ids])

    def _tell_controls(self) -> None:
        """Tell the state of the controls, which somebody has changed."""
        message = json.dumps({"type": "controls", **self._controls()})
        for viewer in self._viewers:
            viewer.tell("controls", message)

    def _controls(self) -> dict[str, Any]:
        return {
            "paused": self.brake.paused,
            "speed": self.brake.limit,
            "fps": self.camera.fps,
        }


def _paint(ids: range, frames: FramesById) -> tuple[bytes, float]:
    """Paint, and tell how long this thread has computed."""
    begun = time.thread_time()
    picture = paint(ids, frames)
    return picture, time.thread_time() - begun
