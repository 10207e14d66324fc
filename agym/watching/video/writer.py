"""Writer: a thread that makes pictures of frames and adds them to videos.

Callers keep the queue short: :meth:`Writer.has_room` tells whether there is room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np

from agym.core.protocol.typing import Array

Paint = Callable[[list[Any]], Sequence[Array]]

# Limits of the queue, in renders and in bytes; two renders are always allowed.
MAX_WAITING = 8
MAX_BYTES = 256 * 1024 * 1024


class Film(Protocol):
    """A video to which pictures are added; see :class:`~agym.watching.video.movie.Movie`."""

    def add(self, picture: Array, position: int) -> None: ...
    def close(self) -> None: ...


class Writer:
    """Writes renders to videos, in order, until it is finished.

    Attributes:
        written: Number of renders in the videos.
        error: The first error, after which nothing more is written.
    """

    def __init__(self, movies: Sequence[Film], paint: Paint) -> None:
        """Start the thread; ``paint`` makes a render's pictures, one for each movie."""
        self.written = 0
        self.error: Exception | None = None
        self._movies = movies
        self._paint = paint
        self._waiting: deque[tuple[int, list[Any]]] = deque()
        self._changed = threading.Condition()
        self._capacity = MAX_WAITING
        self._over = False
        self._thread = threading.Thread(target=self._run, name="agym-writer", daemon=True)
        self._thread.start()

    def has_room(self, in_flight: int) -> bool:
        """Return whether there is room for another render, besides those in flight."""
        with self._changed:
            return in_flight + len(self._waiting) < self._capacity

    def wait_for_room(self, in_flight: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: in_flight + len(self._waiting) < self._capacity)

    def put(self, position: int, frames: list[Any]) -> None:
        """Queue the frames of a render for a position; see ``Movie.add``."""
        size = sum(map(_size, frames))
        with self._changed:
            self._capacity = max(2, min(MAX_WAITING, MAX_BYTES // max(1, size)))
            self._waiting.append((position, frames))
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until everything is written and the files are complete. Idempotent."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():  # a finalizer may run in the thread
            self._thread.join()

    def _run(self) -> None:
        try:
            with ExitStack() as stack:
                for movie in self._movies:
                    stack.callback(movie.close)
                while (render := self._next()) is not None:
                    self._write(*render)
                    del render  # frees the frames, so that a worker can reuse their memory
        except Exception as error:
            self.error = error if self.error is None else self.error

    def _next(self) -> tuple[int, list[Any]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over)
            if not self._waiting:
                return None
            render = self._waiting.popleft()
            self._changed.notify_all()
            return render

    def _write(self, position: int, frames: list[Any]) -> None:
        if self.error is not None:
            return
        try:
            pictures = self._paint(frames)
            for movie, picture in zip(self._movies, pictures, strict=True):
                movie.add(picture, position)
            self.written += 1
        except Exception as error:
            self.error = error


def _size(frame: Any) -> int:
    """Return the bytes of a frame's arrays."""
    parts = frame if isinstance(frame, list | tuple) else [frame]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
