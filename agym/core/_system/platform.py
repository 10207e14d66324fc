"""The differences between Linux, macOS and Windows.

Linux has everything that agym uses, and macOS has most of it. Windows has no worker processes,
because it cannot pass descriptors over sockets. Its ``select`` waits only for sockets.
"""

from __future__ import annotations

import importlib
import os
import secrets
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

if sys.platform != "win32":
    import fcntl
    import resource

# Whether descriptors can be passed to workers over sockets.
WORKER_PROCESSES = hasattr(socket, "send_fds")


def thread_usage() -> tuple[int, int]:
    """Return this thread's usage so far.

    Returns:
        CPU time in nanoseconds, and voluntary context switches; the latter is -1 except on Linux,
        which has ``RUSAGE_THREAD`` (``getrusage(2)``).
    """
    if sys.platform == "linux":
        return time.thread_time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return time.thread_time_ns(), -1


def sleep_on(descriptors: Mapping[int, int], seconds: float) -> set[int]:
    """Sleep until one descriptor is ready, or for some seconds; return the ready ones.

    Args:
        descriptors: Descriptors of sockets, with masks of ``selectors`` events.
        seconds: The limit. On Windows a signal does not end the sleep earlier.
    """
    if not hasattr(select, "poll"):
        readers, writers = (
            [descriptor for descriptor, events in descriptors.items() if events & event]
            for event in (EVENT_READ, EVENT_WRITE)
        )
        readable, writable, _ = select.select(readers, writers, [], seconds)
        return {*readable, *writable}
    poller = select.poll()
    for descriptor, events in descriptors.items():
        read = select.POLLIN if events & EVENT_READ else 0
        poller.register(descriptor, read | (select.POLLOUT if events & EVENT_WRITE else 0))
    # A signal handler that returns does not end the sleep (PEP 475); one that raises does.
    return {descriptor for descriptor, _ in poller.poll(seconds * 1000)}


@contextmanager
def time_limit(seconds: float, handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Call a signal handler if a block of the main thread takes longer than some seconds.

    On Windows the handler is never called.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    previous = signal.signal(signal.SIGALRM, handler)
    before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *before)  # the caller's timer


def shared_memory(size: int) -> int:
    """Create shared memory of ``size`` zeroed bytes to be mapped.

    Returns:
        Its descriptor, which the caller owns.
    """
    if hasattr(os, "memfd_create"):
        return anonymous_file(size)
    # macOS writes a mapped file to disk, but not this memory, whose name is removed at once.
    name = f"/agym-{secrets.token_hex(8)}"  # macOS permits 31 characters
    posix: Any = importlib.import_module("_posixshmem")
    descriptor: int = posix.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    posix.shm_unlink(name)
    os.ftruncate(descriptor, size)
    return descriptor


def anonymous_file(size: int) -> int:
    """Create a file of ``size`` zeroed bytes, which can be read, written, resized and mapped.

    It is always in memory only on Linux: macOS can only map its shared memory.

    Returns:
        Its descriptor, which the caller owns.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("agym", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:  # the file has no name
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def forbid_shrinking(descriptor: int) -> bool:
    """Fix the minimum size of an anonymous file, and return whether this system can.

    Access to a mapping of a file that became shorter kills the process.

    Raises:
        OSError: The file is of another kind.
    """
    if not hasattr(fcntl, "F_ADD_SEALS"):
        return False
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return True


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Lock a file against other processes; on Windows there are none."""
    if sys.platform == "win32":
        yield
        return
    # A POSIX lock: it belongs to the process, and not to the descriptor. So a forked child does not
    # have it, and the kernel releases it if the process dies.
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def allow_open_files(count: int) -> None:
    """Raise this process's soft limit of open files, as far as the hard limit permits.

    The limit is 1,024 in many shells, and each connection is a file. Windows has no such limit.
    """
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
