"""Records a video of environments while they are stepped, with any API.

Before a step is sent, a render is sent, and the step queues behind it. The caller does not wait
for the render. A thread encodes its frames::

    step(...) --> before_step --> render(env_ids)      (in flight, the step behind it)
                                     '-- frames --> writer: mosaic, encode --> file

Frames that do not fit into the writer's bounded queue are dropped. The previous picture is shown
longer instead, so that the video's speed stays correct.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from agym import AsyncEnvs, Envs, Hook, Tap, envs_of
from agym.core.engine.attached import Attached
from agym.core.protocol.arguments import Ids, check_count, is_number, parse_env_ids
from agym.core.protocol.typing import Array
from agym.errors import AgymError, UsageError
from agym.watching.video.movie import Movie, check_path
from agym.watching.video.tiling import check_scale, texts_of
from agym.watching.video.tiling import mosaic as make_mosaic
from agym.watching.video.writer import Writer

# Pictures per second of environments whose metadata has no render_fps, and the allowed range.
DEFAULT_FPS = 30
MIN_FPS, MAX_FPS = 0.01, 1000


def record(
    envs: Any,
    path: str | os.PathLike[str],
    *,
    fps: float | None = None,
    env_ids: Sequence[int] | None = None,
    every: int = 1,
    mosaic: bool = True,
    columns: int | None = None,
    labels: bool | Sequence[object] = False,
    scale: float | None = None,
    drop: bool = True,
) -> Recording:
    """Record a video of environments while they are stepped.

    Example:
        >>> import agym, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.gif")
        >>> with agym.make("CartPole-v1", 4, render_mode="rgb_array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.record(envs, path, scale=0.25) as recording:
        ...         for _ in range(3):
        ...             result = envs.step([0, 1, 0, 1])
        >>> recording.frames  # the last one shows the final state
        4

    Recording starts at once. The file is complete at the end of the block, even if the block raises
    or is cancelled; use ``async with`` for async environments.

    A render is sent before each step, and a thread encodes the frames. At most 8 renders, or 256 MB
    of frames, wait for this thread (but always up to 2 renders). If it cannot keep up, pictures are
    dropped, and the previous picture is shown longer.

    Args:
        envs: Opened environments that agym runs, wrapped or not, or a group of ``split``, with a
            ``render_mode`` such as ``"rgb_array"``.
        path: A file ending in ``.mp4`` or ``.gif``; an existing file is replaced.
        fps: Pictures per second; by default the environments' ``render_fps`` divided by ``every``,
            which is real time.
        env_ids: Environments to record, ``None`` for all.
        every: Number of steps per frame of the video.
        mosaic: ``True`` for one video of all environments; ``False`` for a file per environment,
            such as ``run-3.mp4`` for environment 3.
        columns: See :func:`agym.mosaic`.
        labels: Text in the corner of each environment's picture; ``True`` for the ids.
        scale: Scale factor of pictures; see :func:`agym.mosaic`.
        drop: ``False`` makes steps wait for the encoding instead of dropping pictures. Not for
            async environments, because it would block the event loop.

    Raises:
        UsageError: An argument is invalid, or the environments render no pictures.
        MissingExtraError: PyAV or Pillow is not installed.
        ClosedError: The environments are not open.
    """
    api = envs_of(envs, "agym.record")
    tap = api.tap
    check_pictures(api)
    if not drop and isinstance(api, AsyncEnvs):
        raise UsageError("drop=False would block the event loop: leave it out, or use agym.make")
    every = check_count("every", every)
    ids = parse_env_ids(env_ids, api.num_envs, least=1)
    rate = frame_rate(api, fps, every)
    if columns is not None:
        columns = check_count("columns", columns)
    texts = texts_of(labels, ids)
    check_scale(scale)
    path = Path(path)
    paths = [path] if mosaic else paths_of(path, ids)
    for each in paths:
        check_path(each)
    if mosaic:
        paint = partial(paint_whole, columns=columns, labels=texts, scale=scale)
    else:
        paint = partial(_paint_each, labels=texts, scale=scale)
    writer = Writer([Movie(each, rate) for each in paths], paint)
    return Recording(api, tap, writer, ids, every, drop=drop)


def paths_of(path: Path, ids: Sequence[int]) -> list[Path]:
    """Return a file per environment."""
    return [path.with_stem(f"{path.stem}-{i}") for i in ids]


def frame_rate(api: Envs | AsyncEnvs, fps: float | None, every: int = 1) -> Fraction:
    """Return pictures per second: ``fps``, or the environments' own rate.

    Raises:
        UsageError: One of them is not a number, or out of range.
    """
    if fps is None:
        render_fps = api.metadata.get("render_fps") or DEFAULT_FPS
        if not is_number(render_fps):
            raise UsageError(f"render_fps={render_fps!r} is not a number: pass fps=")
        fps = float(render_fps) / every
    if not (is_number(fps) and MIN_FPS <= fps <= MAX_FPS):
        raise UsageError(f"fps={fps!r} must be pictures per second, {MIN_FPS} to {MAX_FPS}")
    return Fraction(float(fps)).limit_denominator(1000)


def check_pictures(api: Envs | AsyncEnvs) -> None:
    """Check that environments render pictures.

    Raises:
        UsageError: They do not.
    """
    if api.render_mode in (None, "human"):
        raise UsageError(
            f"environments with render_mode={api.render_mode!r} render no pictures: make them with"
            " render_mode='rgb_array'"
        )


def paint_whole(frames: list[Any], **options: Any) -> list[Array]:
    """Return one picture of all frames; see :func:`agym.mosaic`."""
    return [make_mosaic(frames, **options)]


def _paint_each(frames: list[Any], labels: list[str], scale: float | None) -> list[Array]:
    return [
        make_mosaic([frame], labels=[text], scale=scale)
        for frame, text in zip(frames, labels, strict=True)
    ]


class Recording(Attached, Hook):
    """A video in progress; made by :func:`agym.record`.

    Example:
        >>> import agym, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.gif")
        >>> with agym.make("CartPole-v1", 2, render_mode="rgb_array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.record(envs, path, scale=0.25) as recording:
        ...         result = envs.step([0, 1])
        >>> recording.frames, recording.dropped
        (2, 0)

    Attributes:
        dropped: Number of pictures dropped so far, because the encoding could not keep up or a
            render failed.
    """

    def __init__(
        self, api: Envs | AsyncEnvs, tap: Tap, writer: Writer, ids: Ids, every: int, *, drop: bool
    ) -> None:
        self.dropped = 0
        self._is_async = isinstance(api, AsyncEnvs)
        self._tap = tap
        self._writer = writer
        self._drop = drop
        # The engine's ids, which differ from ``ids`` in a group.
        self._ids = tuple(api.env_ids[i] for i in ids)
        self._members = frozenset(self._ids)
        # Environment steps between two pictures, and until the next picture; number of pictures so
        # far, including dropped ones; renders in flight by the position of their picture.
        self._period = every * len(ids)
        self._steps_until_next = 0
        self._due = 0
        self._tickets: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._active = True
        self._tap.add_hook(self)
        self._end = weakref.finalize(self, writer.finish)  # if it is never closed

    @property
    def frames(self) -> int:
        """Number of pictures in the video so far."""
        return self._writer.written

    # ---------------------------------------------------------------- pictures

    def before_step(self, ids: Ids) -> None:
        """Take a picture if one is due."""
        whole = len(ids) == self._tap.num_envs
        steps = len(self._members) if whole else len(self._members.intersection(ids))
        if steps and self._steps_until_next <= 0:
            self._steps_until_next += self._period
            self._take()
        self._steps_until_next -= steps

    def _take(self) -> None:
        """Send a render, if there is room."""
        position, self._due = self._due, self._due + 1
        if not self._writer.has_room(len(self._tickets)):
            # Wait for the encoder, but not for renders in flight: this thread itself receives them.
            if self._drop or len(self._tickets) > 1:
                self.dropped += 1
                return
            self._writer.wait_for_room(len(self._tickets))
        try:
            ticket = self._tap.render(self._ids, partial(self._on_rendered, position))
        except AgymError as error:  # an environment is dead or closed, which the step will report
            self._error = error
            self.dropped += 1
            return
        if not ticket.done:
            self._tickets[position] = ticket

    def _on_rendered(self, position: int, rendered: Any) -> None:
        """Pass the frames of a render to the writer."""
        self._tickets.pop(position, None)
        if rendered.error is not None:
            self._error = rendered.error
            self.dropped += 1
        else:
            self._writer.put(position, [rendered.pictures[i] for i in self._ids])

    # ---------------------------------------------------------------- the end

    def _stop(self, *, last: bool) -> None:
        """Stop taking pictures, after a last one if ``last``."""
        if not self._active:
            return
        if last and self._due and not self._tap.closed:
            self._take()
        self._active = False
        self._tap.remove_hook(self)

    def _check(self) -> None:
        """Raise an error of the writer or, if there is no picture at all, of a render."""
        if self._writer.error is not None:
            raise self._writer.error
        if not self._writer.written and self._error is not None:
            raise self._error

    def _finish(self) -> None:
        """Take a last picture and finish the file.

        Raises:
            Exception: The encoding raised it; or a render, if there is no picture at all.
        """
        self._stop(last=True)
        for ticket in [*self._tickets.values()]:
            self._tap.wait(ticket)
        self._end()
        self._check()

    async def _afinish(self) -> None:
        """Finish without blocking the loop; if cancelled, finish with the pictures so far."""
        self._stop(last=True)
        try:
            for ticket in [*self._tickets.values()]:
                await self._tap.wait(ticket)
            await asyncio.to_thread(self._end)
        finally:
            self._abort()
        self._check()

    def _abort(self) -> None:
        """Finish the file with the pictures so far."""
        self._stop(last=False)
        self._writer.finish()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(frames={self.frames})"
