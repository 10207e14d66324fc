"""Starts, watches and ends worker processes.

The life cycle is that of :class:`aiomultiprocess.Process`: it runs an initializer, and then one
coroutine on a uvloop loop. Two things differ from its constructor: each worker has its own start
method, where aiomultiprocess has a global; and there is no ``Manager``, which would be another
process with a listening socket, for a result that is never read.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import types
from asyncio import AbstractEventLoop, new_event_loop
from collections.abc import Iterator
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing import process as processes
from multiprocessing.connection import Connection
from typing import Any, Protocol

import aiomultiprocess
from aiomultiprocess.types import Unit

from agym.core._system.fork_safety import abandon_in_forks, forking_worker
from agym.core._system.pickling import Preceded
from agym.core._system.platform import WORKER_PROCESSES
from agym.core._system.pygame_support import headless
from agym.core.backends.process.parent_watch import arm
from agym.errors import UsageError

try:
    import uvloop
except ImportError:  # on Windows
    uvloop = None  # type: ignore[assignment]

# Sizes of native thread pools: of NumPy, torch, and other libraries that environments import.
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")
THREAD_VARIABLES = (*(f"{name}_NUM_THREADS" for name in _LIBRARIES), "VECLIB_MAXIMUM_THREADS")

# Starting a worker changes state of this whole process for a moment: ``sys.modules["__main__"]``
# and multiprocessing's temporary folder. Two threads that start workers at the same time would
# undo each other's changes.
_starting = threading.Lock()


def _renew_lock() -> None:
    """Replace the lock in a forked worker, whose parent held it during the fork."""
    global _starting
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Work(Protocol):
    """The work of a worker process: both methods of one object, in the process."""

    def start(self) -> None:
        """Run first, while no event loop runs."""

    async def run(self) -> None:
        """Run second, on an event loop."""


class WorkerProcess(aiomultiprocess.Process):
    """A process that runs a :class:`Work`.

    Attributes:
        ended: A file descriptor that becomes readable when the process has ended.
    """

    ended: int
    _pidfd: int | None = None

    def __init__(self, work: Work, *, name: str, start_method: str) -> None:
        self._worker_pipe, self._parent_pipe = multiprocessing.Pipe(duplex=False)
        forks = start_method == "fork"
        unit = Unit(
            target=work.run,
            args=(),
            kwargs={},
            namespace=None,
            # Other start methods watch the parent before they import agym; see `_prepared`.
            initializer=partial(_start_forked, self._worker_pipe, work) if forks else work.start,
            loop_initializer=own_loop,
        )
        self._method = start_method
        context: Any = multiprocessing.get_context(start_method)
        self.aio_process = context.Process(
            target=aiomultiprocess.Process.run_async,
            args=(unit if forks else _prepared(unit, self._worker_pipe),),
            name=name,
        )

    def start(self) -> None:
        """Start the process without the caller's ``__main__``, so that scripts need no guard.

        A forked process has a copy of it, in which strings such as ``"__main__:MyEnv"`` resolve.
        """
        # First, because starting the tracker would unblock interrupts.
        resource_tracker.ensure_running()
        # Before the start, so that a worker that is forked closes its copy of the parent's end of
        # the pipe. With that copy open, it would never see EOF when the parent dies.
        abandon_in_forks(self)
        try:
            main = contextlib.nullcontext() if self._method == "fork" else _blank_main()
            with _starting, main, _interrupts_blocked(), forking_worker():
                if self._method == "forkserver":
                    _ensure_fork_server()
                super().start()
        except BaseException:
            self._parent_pipe.close()
            raise
        finally:
            self._worker_pipe.close()
        self.ended = self._watch()

    def _watch(self) -> int:
        """Return a descriptor that becomes readable when the process ends.

        Multiprocessing's sentinel is a pipe, which the worker's own children may keep open.
        """
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # it has already ended and been reaped
                self._pidfd = os.pidfd_open(self.pid)
                return self._pidfd
        descriptor: int = self.aio_process.sentinel
        return descriptor

    def close(self) -> None:
        """Release a process that has ended."""
        super().close()
        self._parent_pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def abandon(self) -> None:
        """Drop the process in a forked child, whose exit must not wait for it."""
        self._parent_pipe.close()
        processes._children.discard(self.aio_process)  # type: ignore[attr-defined]

    def reap(self, timeout: float) -> int | None:
        """Wait until the process has ended; return its exit code, ``None`` if it still runs."""
        self.aio_process.join(timeout)
        code: int | None = self.exitcode
        return code


def _prepared(unit: Unit, worker_pipe: Connection) -> Preceded:
    """Return a unit that first prepares the process in which it is unpickled.

    The limits of thread pools must be in the environment before NumPy is imported, so before the
    target, which imports agym, is unpickled; the parent's environment must not change. The watch
    on the parent also starts before that: imports take long, and the parent may die during them.
    """
    source = inspect.getsource(sys.modules[arm.__module__])
    # The variables come from the caller: a fork server has those of its own start.
    code = f"{source}\nos.environ.update({worker_variables()!r})\narm(worker_pipe)\n"
    return Preceded(unit, exec, code, {"worker_pipe": worker_pipe})


def _ensure_fork_server() -> None:
    """Start multiprocessing's fork server, unless it is running, without leaving a file.

    The server listens on a socket with a name in a temporary folder. Python removes the name when
    this process exits, but not when it is killed. Only this process has to reach the socket, so it
    keeps a descriptor of the file, and removes the name at once.
    """
    server: Any = forkserver._forkserver
    if not hasattr(os, "O_PATH"):  # macOS
        server.ensure_running()
        return
    config: Any = processes.current_process()._config  # type: ignore[attr-defined]
    before = config.get("tempdir")
    with tempfile.TemporaryDirectory(prefix="agym-") as folder:
        config["tempdir"] = folder  # where multiprocessing puts its sockets
        try:
            server.ensure_running()
        finally:
            config["tempdir"] = before
        address = server._forkserver_address
        if address.startswith(folder):
            handle = os.open(address, os.O_PATH | os.O_CLOEXEC)
            server._forkserver_address = f"/proc/self/fd/{handle}"


def _start_forked(pipe: Connection, work: Work) -> None:
    arm(pipe)
    work.start()


def worker_variables() -> dict[str, str]:
    """Return the environment variables of workers that differ from this process's variables."""
    return {**thread_caps(), **headless()}


def thread_caps() -> dict[str, str]:
    """Return the variables that limit a worker's thread pools to one core.

    Variables that are already set for this process, and so for its children, keep their values. The
    first variable is the default of the others.
    """
    general = os.environ.get(THREAD_VARIABLES[0]) or "1"
    others = general.partition(",")[0]  # OpenMP's variable may list a number per nesting level
    rest = {name: os.environ.get(name) or others for name in THREAD_VARIABLES[1:]}
    return {THREAD_VARIABLES[0]: general, **rest}


def cap_threads() -> None:
    """Limit this worker's thread pools to one core, unless their libraries are already loaded.

    After a fork they may be. Torch can still be limited then; other libraries keep their pools.
    """
    os.environ.update(worker_variables())
    set_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if set_threads is not None and os.environ["OMP_NUM_THREADS"] == "1":
        set_threads(1)


@contextlib.contextmanager
def _blank_main() -> Iterator[None]:
    """Hide the main module from multiprocessing, which would run it again in the worker.

    ``sys.modules`` is global: other threads also see the blank module until the start is done.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C. A child inherits that, so Ctrl-C cannot end it before it ignores the signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def set_worker_signals() -> None:
    """Ignore Ctrl-C in a worker, and end at SIGTERM, whatever handlers a fork has inherited.

    The whole process group gets Ctrl-C, and the caller handles it. An inherited handler (Ray
    installs one) would run inside an environment's ``close`` and be reported as its failure.
    """
    # Ignore before unblocking: that discards an interrupt that came while it was blocked.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def new_loop() -> AbstractEventLoop:
    """Return a new event loop: uvloop's if it is installed."""
    return uvloop.new_event_loop() if uvloop is not None else new_event_loop()


def own_loop() -> AbstractEventLoop:
    """Return a new event loop that does not report slow callbacks.

    In asyncio's debug mode (``python -X dev``) loops report callbacks that take over 0.1 s. Here,
    environments that compute and starting workers take longer, as expected.
    """
    loop = new_loop()
    loop.slow_callback_duration = math.inf
    return loop


def check_daemon() -> None:
    """Refuse to start workers from a daemonic process.

    Raises:
        UsageError: This process is a daemonic process of multiprocessing.
    """
    if multiprocessing.current_process().daemon:
        raise UsageError(
            "backend='process' starts worker processes, which daemonic processes, such as this one"
            " or those of multiprocessing.Pool, may not do: use backend='thread' or 'serial' here,"
            " or start this process with daemon=False, as concurrent.futures does"
        )


def check_platform() -> None:
    """Refuse to start workers on systems whose sockets cannot pass descriptors, such as Windows.

    Raises:
        UsageError: Worker processes cannot run on this system.
    """
    if not WORKER_PROCESSES:
        raise UsageError(
            "backend='process' needs Linux or macOS, whose sockets can pass descriptors: use"
            " backend='thread' or 'serial' on this system"
        )
