"""Worker processes: start them, watch them, end them.

The life-cycle is aiomultiprocess's: a :class:`aiomultiprocess.Process` that runs an initializer,
and then one coroutine on a uvloop loop. Two things are set up differently from its constructor. The
start method is this worker's own instead of a module global, and there is no ``Manager``: that
would be one more process, with a listening socket, for a result that nobody asks for.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import multiprocessing
import operator
import os
import signal
import socket
import sys
import threading
import types
from asyncio import AbstractEventLoop, new_event_loop
from collections.abc import Iterator
from multiprocessing import process as processes
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Protocol

import aiomultiprocess
from aiomultiprocess.types import Unit

from agym._system.fork_safety import abandon_in_forks, forking_worker
from agym.backends.process.forkserver import ensure_fork_server
from agym.backends.process.parent_watch import arm
from agym.errors import MissingExtraError, UsageError

try:
    import uvloop
except ImportError:  # on Windows
    uvloop = None  # type: ignore[assignment]

# What native thread pools go by: NumPy's, torch's and what else environments import.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)

_starting = threading.Lock()


class Work(Protocol):
    """What a worker process does. The same object has both parts, in the process."""

    def begin(self) -> None:
        """Do what is done while no event loop runs, which comes first."""

    async def run(self) -> None:
        """Do what needs a running loop."""


class WorkerProcess(aiomultiprocess.Process):
    """A process that does some work.

    Attributes:
        ended: A file descriptor that becomes readable when the process has ended.
    """

    ended: int
    _pidfd: int | None = None

    def __init__(self, work: Work, *, name: str, start_method: str) -> None:
        """Prepare it; :meth:`start` starts it."""
        self._theirs, self._lifeline = multiprocessing.Pipe(duplex=False)
        self.unit = _CappedUnit(
            target=work.run,
            args=(),
            kwargs={},
            namespace=None,
            # What is not forked has armed the lifeline before it imported agym; see there.
            initializer=_begin_forked if start_method == "fork" else _begin,
            initargs=(self._theirs, work),
            loop_initializer=own_loop,
        )
        self._method = start_method
        context: Any = multiprocessing.get_context(start_method)
        self.aio_process = context.Process(
            target=aiomultiprocess.Process.run_async, args=(self.unit,), name=name
        )

    def start(self) -> None:
        """Start the process without the caller's ``__main__``, so that no guard is needed there.

        What is forked has a copy of it, to which strings such as ``"__main__:MyEnv"`` lead.
        """
        # First, since starting the tracker would let interrupts through again.
        resource_tracker.ensure_running()
        abandon_in_forks(self)
        try:
            main = contextlib.nullcontext() if self._method == "fork" else _blank_main()
            with _starting, main, _interrupts_blocked(), forking_worker():
                if self._method == "forkserver":
                    ensure_fork_server()
                super().start()
        except BaseException:
            self._lifeline.close()
            raise
        finally:
            self._theirs.close()
        self.ended = self._watch()

    def _watch(self) -> int:
        """Get a descriptor that becomes readable when the process ends.

        Multiprocessing's sentinel is a pipe, which children of the worker's own may keep open.
        """
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # it has ended and is forgotten already
                self._pidfd = os.pidfd_open(self.pid)
                return self._pidfd
        descriptor: int = self.aio_process.sentinel
        return descriptor

    def close(self) -> None:
        """Let go of a process that has ended."""
        super().close()
        self._lifeline.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def abandon(self) -> None:
        """Let go of it in a forked child, whose exit must not wait for it either."""
        self._lifeline.close()
        processes._children.discard(self.aio_process)  # type: ignore[attr-defined]

    def reap(self, timeout: float) -> int | None:
        """Wait until the process has ended, and return its exit code, ``None`` if it has not."""
        self.aio_process.join(timeout)
        code: int | None = self.exitcode
        return code


class _CappedUnit(Unit):
    """A unit that prepares the process it is unpickled in, before anything is imported there.

    The caps of thread pools must be in the environment before NumPy is imported, so before the
    target, which imports agym, is unpickled; and the parent's environment is not ours to change.
    The lifeline is armed before that too, since imports take long. A tuple is unpickled in
    order, so what prepares is put in front of the unit in one.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        lifeline, _ = self.initargs
        return operator.itemgetter(1), ((_Preparation(lifeline), Unit(*self)),)


def _begin(_: Connection, work: Work) -> None:
    work.begin()


def _begin_forked(lifeline: Connection, work: Work) -> None:
    arm(lifeline)
    work.begin()


class _Preparation:
    def __init__(self, theirs: Connection) -> None:
        self._theirs = theirs

    def __reduce__(self) -> tuple[Any, ...]:
        source = inspect.getsource(sys.modules[arm.__module__])
        # The caller's settings, since a fork server has those of its own beginning.
        code = f"{source}\nos.environ.update({thread_caps()!r})\narm(theirs)\n"
        return exec, (code, {"theirs": self._theirs})


def thread_caps() -> dict[str, str]:
    """Variables by which a worker's thread pools keep to its one core.

    What somebody has set, for this process and so for its children, stays as it is; the first
    variable is the general one, by which the others go.
    """
    general = os.environ.get(THREAD_VARIABLES[0]) or "1"
    others = general.partition(",")[0]  # OpenMP's may be a list, of what is nested
    rest = {name: os.environ.get(name) or others for name in THREAD_VARIABLES[1:]}
    return {THREAD_VARIABLES[0]: general, **rest}


def cap_threads() -> None:
    """Keep this worker's thread pools to one core, as far as their libraries are not loaded yet.

    After a fork they may be. Torch can be told then; others keep the pools that they had.
    """
    os.environ.update(thread_caps())
    set_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if set_threads is not None and os.environ["OMP_NUM_THREADS"] == "1":
        set_threads(1)


@contextlib.contextmanager
def _blank_main() -> Iterator[None]:
    """Show multiprocessing an empty main module: it would run the real one again in the worker."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Hold Ctrl-C off: a process started meanwhile inherits that, until it can ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker; it reaches the whole process group, and the caller acts on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def new_loop() -> AbstractEventLoop:
    """Make an event loop: uvloop's where it is installed."""
    return uvloop.new_event_loop() if uvloop is not None else new_event_loop()


def own_loop() -> AbstractEventLoop:
    """Make an event loop of agym's own, of which nobody wants to hear what blocked it.

    In asyncio's debug mode (``python -X dev``) a loop tells of callbacks that take over 0.1 s; here
    these are environments that compute, and the starts of workers.
    """
    loop = new_loop()
    loop.slow_callback_duration = math.inf
    return loop


def check_daemon() -> None:
    """Say clearly that this process may not start any.

    Raises:
        UsageError: It is a daemonic process of multiprocessing's.
    """
    if multiprocessing.current_process().daemon:
        raise UsageError(
            "backend='process' starts worker processes, which a daemonic process may not, such as"
            " this one or those of multiprocessing.Pool: take backend='thread' or 'serial' here, or"
            " start this process with daemon=False, as concurrent.futures does"
        )


def check_platform() -> None:
    """Say clearly that worker processes need POSIX.

    Raises:
        MissingExtraError: There are no UNIX socket pairs that pass descriptors here.
    """
    if not hasattr(socket, "send_fds"):
        raise MissingExtraError(
            "backend='process' needs Linux or macOS; take backend='serial' on this system"
        )
