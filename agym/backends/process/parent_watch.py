"""Lifeline: a worker ends with its caller, whatever its environments do at that moment.

A worker that turns to its channel sees that it has ended, and closes its environments. One whose
environment computes for long, or hangs in C and never gives the GIL back, would not look. So the
caller also holds the write end of a pipe, which the kernel closes with the caller, however that
ended; and what follows in the worker needs neither its main thread nor the GIL::

    the pipe ends --> SIGHUP --> its handler calls alarm(1) --> a second later SIGALRM ends it

That handler is libc's own ``alarm``. A handler is called with the number of its signal, SIGHUP is
number 1, and so the worker has one second left to close its environments. An environment that
handles SIGALRM itself gets it then, as it would from any other alarm.

Where SIGHUP is ignored (``nohup``) it has to stay so, and the end is a SIGKILL without that second.
Systems that cannot choose a pipe's signal (all but Linux) have a thread that waits for its end.

The module needs nothing but the standard library: a worker runs it before it imports agym.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import threading
from multiprocessing.connection import Connection


def arm(lifeline: Connection) -> None:
    """End this process a second after the other end of a pipe was closed, or now if it is."""
    descriptor = os.dup(lifeline.fileno())  # for good, whatever becomes of the object
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGHUP})
    if not hasattr(fcntl, "F_SETSIG"):
        threading.Thread(
            target=_watch, args=(descriptor,), name="agym-lifeline", daemon=True
        ).start()
        return
    last = signal.SIGKILL
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        last = signal.SIGHUP
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(last, ctypes.cast(libc.alarm, ctypes.c_void_p))
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, last)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    if _ended(descriptor, 0):  # before all this
        os.kill(os.getpid(), last)


def _ended(descriptor: int, milliseconds: int | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(milliseconds))


def _watch(descriptor: int) -> None:
    _ended(descriptor, None)
    signal.alarm(1)
