"""Writer: a thread that makes pictures of frames and adds them to videos.

What waits for it is bounded by whoever puts: :meth:`Writer.has_room` says whether there is room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np

from agym.protocol.typing import Array

Paint = Callable[[list[Any]], Sequence[Array]]

# What may wait to be encoded: so many renders, and so many bytes, but two in any case.
MOST_WAITING = 8
MOST_BYTES = 256 * 1024 * 1024


class Film(Protocol):
    """What pictures are added to; see :class:`~agym.render.movie.Movie`."""

    def add(self, picture: Array, position: int) -> None: ...
    def close(self) -> None: ...


class Writer:
    """Writes what is put, in order, until it is to finish.

    Attributes:
        written: How many renders are in the videos.
        error: What went wrong; nothing is written any more then.
    """

    def __init__(self, movies: Sequence[Film], paint: Paint) -> None:
        """Start the thread.

        Args:
            movies: The videos.
            paint: Makes a picture for each of them of the frames of a render.
        """
        self.written = 0
        self.error: Exception | None = None
        self._movies = movies
        self._paint = paint
        self._waiting: deque[tuple[int, list[Any]]] = deque()
        self._changed = threading.Condition()
        self._most = MOST_WAITING
        self._over = False
        self._thread = threading.Thread(target=self._run, name="agym-writer", daemon=True)
        self._thread.start()

    def has_room(self, flying: int) -> bool:
        """Whether another render may be asked for, beside so many that are under way."""
        with self._changed:
            return flying + len(self._waiting) < self._most

    def wait_for_room(self, flying: int) -> None:
        """Wait until it may."""
        with self._changed:
            self._changed.wait_for(lambda: flying + len(self._waiting) < self._most)

    def put(self, position: int, frames: list[Any]) -> None:
        """Have the frames of a render written, which are shown at a position; see ``Movie.add``."""
        size = sum(map(_size, frames))
        with self._changed:
            self._most = max(2, min(MOST_WAITING, MOST_BYTES // max(1, size)))
            self._waiting.append((position, frames))
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until all is written, and the files are whole. Idempotent."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():  # the collector may be at work there
            self._thread.join()

    def _run(self) -> None:
        try:
            with ExitStack() as stack:
                for movie in self._movies:
                    stack.callback(movie.close)
                while (taken := self._next()) is not None:
                    self._write(*taken)
                    del taken  # the frames, whose memory may be waited for
        except Exception as error:
            self.error = self.error or error

    def _next(self) -> tuple[int, list[Any]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over)
            if not self._waiting:
                return None
            taken = self._waiting.popleft()
            self._changed.notify_all()
            return taken

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
    """Bytes of its arrays."""
    parts = frame if isinstance(frame, list | tuple) else [frame]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
