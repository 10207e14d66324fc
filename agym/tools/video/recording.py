"""Recording: a video of environments while they are stepped, by whatever call.

Before a step is dispatched, a render is, behind which the environments step; nobody waits for it.
Its frames go to a thread that encodes them::

    step(...) --> before_step --> render(env_ids)      (in flight, the step behind it)
                                     '-- frames --> writer: mosaic, encode --> file

What does not fit into the writer's bounded queue is dropped: the picture before it is shown for
longer, so that a video keeps time.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from agym.api.aio import AsyncEnvs
from agym.api.base import BaseEnvs
from agym.engine.hooks.hooks import Hook
from agym.engine.ticket import Ticket
from agym.errors import AgymError, UsageError
from agym.protocol.arguments import Ids, check_count, parse_env_ids
from agym.protocol.typing import Array
from agym.tools.video.context import EitherContext
from agym.tools.video.movie import Movie, check_path
from agym.tools.video.tiling import mosaic as make_mosaic
from agym.tools.video.writer import Writer

# Where environments do not say how many pictures a second they are made for.
USUAL_FPS = 30


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

    It begins at once, and the file is whole at the end of the block, also when that raises or is
    cancelled: ``with agym.record(envs, "run.mp4"):``, or ``async with`` for the async face. What
    it returns can also stand for the environments, whose methods it has; its ``close`` (``aclose``)
    closes these too.

    A render is dispatched before each step, and the step behind it; encoding is done in a thread.
    Up to 8 renders (or 256 MB of frames, but 2 in any case) wait for that. While it cannot keep up,
    pictures are dropped, and the one before is shown for longer.

    Args:
        envs: What :func:`agym.make`, :func:`agym.make_async` (opened), :func:`agym.make_vec` or
            ``agym.sb3`` gave; or a group of ``split``. They need a ``render_mode`` such as
            ``"rgb_array"``.
        path: A file ending in ``.mp4`` or ``.gif``; one that exists is replaced.
        fps: Pictures a second; by default the environments' own ``render_fps`` over ``every``,
            which shows them in their own time.
        env_ids: Which environments, ``None`` for all.
        every: After how many steps of all these a picture is taken.
        mosaic: All in one picture; else a file for each, ``run-3.mp4`` for environment 3.
        columns: See :func:`agym.render.mosaic`; likewise the next two.
        labels: Written into the corner of each; ``True`` for their ids.
        scale: Factor for the sizes of pictures.
        drop: ``False`` has steps wait for the encoding instead. Not with the async face, whose loop
            would be held.

    Raises:
        UsageError: An argument cannot work, or the environments render no pictures.
        MissingExtraError: PyAV or Pillow is not installed.
        ClosedError: The environments are not open.

    Example:
        >>> import agym, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.gif")
        >>> with agym.make("CartPole-v1", 4, render_mode="rgb_array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.record(envs, path, scale=0.25) as recording:
        ...         for _ in range(3):
        ...             result = envs.step([0, 1, 0, 1])
        >>> recording.frames  # the last one is of how it ended
        4
    """
    face = face_of(envs, "record")
    check_pictures(face)
    if not drop and isinstance(face, AsyncEnvs):
        raise UsageError("drop=False would hold the event loop up: leave it out, or use agym.make")
    every = check_count("every", every)
    ids = parse_env_ids(env_ids, face.num_envs, least=1)
    if fps is None:
        fps = float(face.metadata.get("render_fps") or USUAL_FPS) / every
    if not (isinstance(fps, int | float) and 0 < fps <= 1000):
        raise UsageError(f"fps={fps!r} must be a number of pictures a second, 1000 at most")
    if columns is not None:
        columns = check_count("columns", columns)
    texts: bool | Sequence[object] = [*ids] if labels is True else labels
    if not isinstance(texts, bool) and (isinstance(texts, str) or len(texts) != len(ids)):
        raise UsageError(f"labels must be True, or a sequence with one for each of {len(ids)}")
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < float("inf")):
        raise UsageError(f"scale={scale!r} must be a positive number")
    path = Path(path)
    check_path(path)
    rate = Fraction(fps).limit_denominator(1000)
    if mosaic:
        paths = [path]
        paint = partial(paint_whole, columns=columns, labels=texts, scale=scale)
    else:
        paths = [path.with_stem(f"{path.stem}-{i}") for i in ids]
        paint = partial(_paint_each, labels=texts, scale=scale)
    writer = Writer([Movie(each, rate) for each in paths], paint)
    return Recording(envs, face, writer, ids, every, drop=drop)


def face_of(envs: Any, who: str) -> BaseEnvs[Any, Any]:
    """The face of environments that agym made and that are open.

    Raises:
        UsageError: ``who``, a name of agym's, was given something else.
        ClosedError: They are not open.
    """
    face = envs if isinstance(envs, BaseEnvs) else getattr(envs, "runner", None)
    if not isinstance(face, BaseEnvs):
        raise UsageError(
            f"{who} takes environments that agym made, not {type(envs).__name__}: pass what"
            " agym.make, agym.make_async or agym.make_vec gives"
        )
    face._engine.check_open()
    return face


def check_pictures(face: BaseEnvs[Any, Any]) -> None:
    """See that environments give pictures.

    Raises:
        UsageError: They do not.
    """
    if face.render_mode in (None, "human"):
        raise UsageError(
            f"environments with render_mode={face.render_mode!r} give no pictures to record: make"
            " them with render_mode='rgb_array'"
        )


def paint_whole(frames: list[Any], **options: Any) -> list[Array]:
    """All frames in one picture; see :func:`agym.render.mosaic`."""
    return [make_mosaic(frames, **options)]


def _paint_each(
    frames: list[Any], labels: bool | Sequence[object], scale: float | None
) -> list[Array]:
    texts: list[Any] = [labels] * len(frames)
    if not isinstance(labels, bool):
        texts = [[text] for text in labels]
    return [
        make_mosaic([frame], labels=text, scale=scale)
        for frame, text in zip(frames, texts, strict=True)
    ]


class Recording(EitherContext, Hook):
    """A video that is being recorded; :func:`agym.record` begins it.

    Whatever it does not have itself is looked up in the environments.

    Attributes:
        dropped: How many pictures were left out so far, since encoding could not keep up or the
            environments did not render.
    """

    def __init__(
        self,
        envs: Any,
        face: BaseEnvs[Any, Any],
        writer: Writer,
        ids: Ids,
        every: int,
        *,
        drop: bool,
    ) -> None:
        """Begin; see :func:`record`."""
        self.dropped = 0
        self._envs = envs
        self._face = face
        self._engine = face._engine
        self._writer = writer
        self._ids = ids
        self._drop = drop
        # In the numbers of the engine, which are other than those of a group.
        self._members = frozenset(face.env_ids[i] for i in ids)
        # Steps of single environments between two pictures, and until the next; how many pictures
        # were due so far; renders under way, by their position.
        self._period = every * len(ids)
        self._left = 0
        self._due = 0
        self._tickets: dict[int, Ticket] = {}
        self._error: BaseException | None = None
        self._active = True
        self._engine.listeners.add(self)
        self._end = weakref.finalize(self, writer.finish)  # if it is forgotten

    @property
    def frames(self) -> int:
        """How many pictures are in the video so far."""
        return self._writer.written

    # ---------------------------------------------------------------- pictures

    def before_step(self, ids: Ids) -> None:
        """Take a picture, if one is due."""
        whole = len(ids) == self._engine.num_envs
        steps = len(self._members) if whole else len(self._members.intersection(ids))
        if steps and self._left <= 0:
            self._left += self._period
            self._take()
        self._left -= steps

    def _take(self) -> None:
        """Dispatch a render, if there is room."""
        position, self._due = self._due, self._due + 1
        if not self._writer.has_room(len(self._tickets)):
            # A render that is late while others step can only be waited for by whoever steps.
            if self._drop or len(self._tickets) > 1:
                self.dropped += 1
                return
            self._writer.wait_for_room(len(self._tickets))
        try:
            ticket = self._face._begin_ask("render", env_ids=self._ids)
        except AgymError as error:  # one is gone: that is for the step to say
            self._error = error
            self.dropped += 1
            return
        self._tickets[position] = ticket
        if ticket.done:
            self._arrived(position)
        else:
            ticket.on_done(partial(self._arrived, position))

    def _arrived(self, position: int) -> None:
        """A render has ended."""
        ticket = self._tickets.pop(position)
        if ticket.error is not None:
            self._error = ticket.error
            self.dropped += 1
        else:
            self._writer.put(position, ticket.value)

    # ---------------------------------------------------------------- the end

    def _stop(self, *, last: bool) -> None:
        """Take no more pictures, but for one of how it ended."""
        if not self._active:
            return
        if last and self._due and not self._engine.closed:
            self._take()
        self._active = False
        self._engine.listeners.remove(self)

    def _check(self) -> None:
        """Raise what went wrong in the writer, or, if there is no picture at all, in rendering."""
        if self._writer.error is not None:
            raise self._writer.error
        if not self._writer.written and self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Take a last picture, and finish the file; the environments go on. Idempotent.

        Raises:
            Exception: What encoding raised, or rendering if there is no picture at all.
        """
        if isinstance(self._face, AsyncEnvs):
            raise UsageError("these are for async code: use `async with`, or await aclose()")
        self._stop(last=True)
        for ticket in [*self._tickets.values()]:
            self._face._wait(ticket)  # type: ignore[attr-defined]
        self._end()
        self._check()

    def _conclude(self) -> None:
        self.finish()

    async def _aconclude(self) -> None:
        """Finish without blocking the loop; a cancellation makes it quicker."""
        assert isinstance(self._face, AsyncEnvs)
        self._stop(last=True)
        try:
            for ticket in [*self._tickets.values()]:
                await self._face._waiter.waiting(ticket)
            await asyncio.to_thread(self._end)
        finally:
            self._break_off()
        self._check()

    def _break_off(self) -> None:
        """Finish the file with what has come so far."""
        self._stop(last=False)
        self._writer.finish()

    def close(self) -> None:
        """Finish the file, and close the environments."""
        try:
            self.finish()
        finally:
            self._envs.close()

    async def aclose(self) -> None:
        """Finish the file, and close the environments."""
        try:
            await self._aconclude()
        finally:
            await self._envs.aclose()

    # ---------------------------------------------------------------- in place of the environments

    def __getattr__(self, name: str) -> Any:
        """Look it up in the environments."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._envs, name)

    def __len__(self) -> int:
        """Number of environments."""
        return len(self._envs)

    def __getitem__(self, index: int) -> Any:
        """One environment."""
        return self._envs[index]

    def __iter__(self) -> Iterator[Any]:
        """The environments, one after the other."""
        return iter(self._envs)

    def __repr__(self) -> str:
        """What is recorded."""
        return f"{type(self).__name__}({self._envs!r}, frames={self.frames})"
