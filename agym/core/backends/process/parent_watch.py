"""Ends a worker when its caller dies, whatever its environments are doing.

A worker that reads its channel sees EOF and closes its environments. A worker whose environment
computes for a long time, or hangs in C without releasing the GIL, does not read. So the caller also
has the write end of a pipe, which the kernel closes when the caller ends. The worker's reaction
needs neither its main thread nor the GIL::
    EOF on the pipe --> SIGHUP --> its handler calls alarm(1) --> SIGALRM kills it a second later

The handler is libc's own ``alarm``: a handler's argument is the number of its signal, and SIGHUP is
number 1. So the worker has one second to close its environments. An environment that handles
SIGALRM also gets this signal.

If SIGHUP is ignored (``nohup``) it must stay ignored; then SIGKILL ends the worker at once. On
systems that cannot choose a pipe's signal (all but Linux) a thread waits for EOF on the pipe.

This module imports only the standard library: a worker runs its source before it imports agym.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection

if sys.platform != "win32":
    import fcntl


def arm(pipe: Connection) -> None:
    """End this process a second after the other end of a pipe is closed, now or earlier."""
    descriptor = os.dup(pipe.fileno())  # stays open when the object is closed
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGHUP})
    if not hasattr(fcntl, "F_SETSIG"):
        threading.Thread(
            target=_watch, args=(descriptor,), name="agym-parent-watch", daemon=True
        ).start()
        return
    last = signal.SIGKILL
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        last = signal.SIGHUP
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        # A Python handler would not do: it runs in the main thread, between two bytecodes.
        libc.signal(last, ctypes.cast(libc.alarm, ctypes.c_void_p))
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, last)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    # The kernel signals only later events. If the caller died before O_ASYNC was set, no signal
    # comes, so look once more.
    if _ended(descriptor, 0):
        os.kill(os.getpid(), last)


def _ended(descriptor: int, milliseconds: int | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(milliseconds))


def _watch(descriptor: int) -> None:
    _ended(descriptor, None)
    signal.alarm(1)
