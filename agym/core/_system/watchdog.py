"""A deadline for the main thread that reports where it hangs, even inside C code."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

from agym.core._system.platform import time_limit

# Seconds between one attempt to end the block and the next.
PATIENCE = 1.0

# The file descriptor; ``sys.stderr`` may be another object.
STDERR = 2


class Hang(BaseException):
    """The deadline passed: raised inside the block."""


@contextmanager
def deadline(
    seconds: float, stuck: Callable[[FrameType], None], *, interrupt: bool = True
) -> Iterator[None]:
    """Limit the duration of a block that runs in the main thread.

    First, :class:`Hang` is raised in it. If C code does not notice that, ``stuck`` is called in
    another thread with the frame of the main thread, and the process ends with exit code 0. If C
    code does not let other threads run either, faulthandler prints the stack, and the exit code is
    1.

    Args:
        seconds: The limit.
        stuck: Reports the hang to the user.
        interrupt: Whether to raise :class:`Hang`; if not, the caller interrupts the block itself.
    """
    main = threading.get_ident()

    def give_up() -> None:
        faulthandler.dump_traceback_later(10 * PATIENCE, exit=True, file=STDERR)  # postpone it
        stuck(sys._current_frames()[main])
        os._exit(0)

    timer = threading.Timer(seconds + PATIENCE, give_up)
    timer.daemon = True
    # A C thread of faulthandler, which needs no GIL. It ends the process even if the GIL is never
    # released, so that ``give_up`` cannot run.
    faulthandler.dump_traceback_later(seconds + 2 * PATIENCE, exit=True, file=STDERR)
    timer.start()
    try:
        with time_limit(seconds, _raise_hang) if interrupt else nullcontext():
            yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
        timer.join()


def _raise_hang(_number: int, _frame: FrameType | None) -> None:
    raise Hang
