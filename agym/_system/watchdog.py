"""A deadline for what this thread does: where it hangs is shown, whatever it hangs in."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# The gentle way gets so many seconds before the next one is taken.
PATIENCE = 1.0

# Also where ``sys.stderr`` is something else.
STDERR = 2


class Hang(BaseException):
    """It did not come back in time: raised in the middle of it."""


@contextmanager
def deadline(
    seconds: float, stuck: Callable[[FrameType], None], *, interrupt: bool = True
) -> Iterator[None]:
    """Watch over a block that runs in the main thread.

    First :class:`Hang` is raised in it. If that is not noticed, as in C code, ``stuck`` is called
    in another thread, with the frame of this one, and the process ends with exit code 0. If C
    code lets no other thread run either, faulthandler shows the stack, and the exit code is 1.

    Args:
        seconds: How long it may take.
        stuck: Tells the user.
        interrupt: Whether to raise; else the caller has a way of its own.
    """
    main = threading.get_ident()

    def give_up() -> None:
        faulthandler.dump_traceback_later(10 * PATIENCE, exit=True, file=STDERR)  # it does run
        stuck(sys._current_frames()[main])
        os._exit(0)

    timer = threading.Timer(seconds + PATIENCE, give_up)
    timer.daemon = True
    previous = signal.signal(signal.SIGALRM, _raise_hang) if interrupt else None
    alarm = (0.0, 0.0)
    faulthandler.dump_traceback_later(seconds + 2 * PATIENCE, exit=True, file=STDERR)
    timer.start()
    try:
        if interrupt:
            alarm = signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
        if interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            signal.setitimer(signal.ITIMER_REAL, *alarm)  # the caller's own
        timer.join()


def _raise_hang(_number: int, _frame: FrameType | None) -> None:
    raise Hang
