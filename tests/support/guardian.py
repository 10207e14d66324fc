"""The guardian ends what a test run has started, whatever becomes of the run.

A fixture sees to it that nothing outlives a test. But a run can be killed, or crash. So each pytest
process starts a guardian, which sleeps until that process has ended::

    pytest -- starts ------------> guardian: waits for the end of pytest
       |  AGYM_TEST_RUN=... in the environment, which all that is started inherits
       +-- scripts, browsers, servers, Ray, workers <---- killed by the guardian
       +-- forked children: killed by the kernel, since they have no environment of their own

The workers of pytest-xdist are ended by the guardian of the process that distributes the tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import uuid
from pathlib import Path

import psutil

MARK = "AGYM_TEST_RUN"

# What ends by itself, such as multiprocessing's resource tracker, has so many seconds for it.
GRACE = 3.0

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def pytest_configure() -> None:
    os.environ[MARK] = uuid.uuid4().hex
    theirs = {name: value for name, value in os.environ.items() if name != MARK}
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    arguments = [sys.executable, str(Path(__file__)), str(os.getpid()), os.environ[MARK]]
    os.posix_spawn(sys.executable, arguments, theirs, file_actions=nothing, setsid=True)
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


# The kernel takes the end of the thread that forked for the end of the parent.
_forked_by_main = threading.local()


def _before_fork() -> None:
    _forked_by_main.parent = os.getpid()
    _forked_by_main.value = threading.current_thread() is threading.main_thread()


def _after_fork() -> None:
    if _forked_by_main.value and sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != _forked_by_main.parent:
            os._exit(1)  # it has ended already


def guard(pid: int, mark: str) -> None:
    """Wait until a process has ended, then end all processes that bear a mark."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait()
    grace = GRACE
    while left := marked(mark):
        _, alive = psutil.wait_procs(left, timeout=grace)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        grace = 0.1  # for what those have started meanwhile


def marked(mark: str) -> list[psutil.Process]:
    """The processes that bear a mark in the environment that they were started with."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2])
