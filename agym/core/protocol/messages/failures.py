"""Failures: an environment raised, or a worker is gone."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import cloudpickle

from agym.core.protocol.attributes import MissingAttribute
from agym.errors import (
    AgymError,
    EnvError,
    InvalidResult,
    RemoteTraceback,
    SnapshotError,
    UsageError,
    WorkerDied,
    signal_name,
)

# Bytes of a pickled exception; a larger exception is sent only as text.
MAX_PICKLED = 64 * 1024

# The attributes that a failure and its error have in common.
DETAILS = (
    "env_id", "env_ids", "operation", "seed", "episode", "step", "action", "error", "capsule",
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """An environment raised, or the ``count`` environments of a VectorEnv from ``env_id`` on.

    The error is sent as text, because not every exception survives pickling; ``pickled`` has one
    that does. ``misuse`` is the class if it is a usage error of agym. ``invalid`` tells that the
    environment returned an invalid result. ``fault`` is false if the caller asked for an attribute
    that the environment lacks, or passed a snapshot that does not fit.
    """

    env_id: int
    operation: str
    error: str
    traceback: str
    seed: int | None = None
    episode: int = 0
    step: int = 0
    action: Any = None
    exception: BaseException | None = None
    pickled: bytes = b""
    misuse: type[UsageError] | None = None
    capsule: str = ""
    count: int = 1
    invalid: bool = False
    fault: bool = True

    @property
    def env_ids(self) -> range:
        return range(self.env_id, self.env_id + self.count)

    @classmethod
    def of(cls, exception: BaseException, env_id: int, operation: str, **details: Any) -> Failure:
        """Record an exception that was just caught, even if its ``str`` raises."""
        fault = not isinstance(exception, MissingAttribute | SnapshotError)
        if isinstance(exception, MissingAttribute) and exception.__cause__ is not None:
            exception = exception.__cause__
        exception.__traceback__ = behind(exception.__traceback__, "agym.core.hosts.")
        text = "".join(traceback.format_exception(exception))
        misuse = None
        if operation in ("make", "restore") and isinstance(exception, UsageError):
            misuse = type(exception)
        return cls(
            env_id, operation, describe_exception(exception), text,
            exception=exception, misuse=misuse, fault=fault,
            invalid=isinstance(exception, InvalidResult), **details,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, with the exception pickled if possible."""
        return {**vars(self), "exception": None, "pickled": self.pickled or _pack(self.exception)}

    def to_exception(self) -> AgymError:
        """Build the error to raise, with the environment's exception as its cause."""
        who = name_range(self.env_ids)
        if self.misuse:
            return self.misuse(f"{who}: {self.error.partition(': ')[2]}")
        what = f"raised in {self.operation}: {self.error}"
        if self.invalid:
            what = f"returned {self.error.partition(': ')[2]}"
        details = f" (seed {self.seed}, episode {self.episode}, step {self.step})"
        if self.count > 1:
            details = ""  # they differ between the environments
        capsule = f"; run `agym rerun {self.capsule}`" if self.capsule else ""
        here = self.exception
        failed = EnvError(
            f"{who} {what}{details}{capsule}",
            exception=_unpack(self.pickled) if here is None else here,
            **{name: getattr(self, name) for name in DETAILS},
        )
        failed.__cause__ = RemoteTraceback(self.traceback) if here is None else here
        return failed


def behind(where: TracebackType | None, *modules: str) -> TracebackType | None:
    """Return a traceback without its first frames in some modules, unless that leaves none."""
    inner = where
    while inner is not None and str(inner.tb_frame.f_globals.get("__name__")).startswith(modules):
        inner = inner.tb_next
    return inner or where


def _pack(exception: BaseException | None) -> bytes:
    """Pickle an exception if it survives: constructors may need more than ``args``."""
    try:
        packed: bytes = cloudpickle.dumps(exception)
        survives = repr(pickle.loads(packed)) == repr(exception) and len(packed) < MAX_PICKLED
    except Exception:
        survives = False
    return packed if survives else b""


def _unpack(packed: bytes) -> BaseException | None:
    try:
        exception = pickle.loads(packed)
    except Exception:  # no exception was sent, or its class cannot be imported here
        return None
    return exception if isinstance(exception, BaseException) else None


class EnvLoss(Protocol):
    """The reason why environments are gone."""

    @property
    def env_ids(self) -> range:
        """The environments."""

    def to_exception(self) -> AgymError:
        """Build the error to raise."""


@dataclass(frozen=True)
class WorkerDeath:
    """A worker ended, or was given up.

    Attributes:
        pid: Its process, ``None`` for a thread.
        exitcode: The process's exit code, if known.
        reason: The known cause, for a message.
        operations: Each environment's operation in flight, or ``"idle after ..."``.
        running: The environment that was running, if known.
        late: Whether it was killed because it missed a deadline.
        cause: The exception that ended a thread, if any.
        replaceable: Whether another worker can replace it.
    """

    worker: int
    pid: int | None
    exitcode: int | None
    env_ids: range
    reason: str
    operations: dict[int, str] = field(default_factory=dict)
    running: int | None = None
    late: bool = False
    cause: BaseException | None = None
    replaceable: bool = True

    def to_exception(self) -> AgymError:
        """Build the error to raise."""
        envs = name_range(self.env_ids)
        by_kind: dict[str, list[int]] = {}
        for i, kind in self.operations.items():
            by_kind.setdefault(kind, []).append(i)
        doing = "".join(f"; {kind}: {name_ids(ids)}" for kind, ids in by_kind.items())
        running = "" if self.running is None else f"; environment {self.running} was running"
        who = f"worker {self.worker}" + (f" (pid {self.pid})" if self.pid else "")
        remedy = " Other environments stay usable; restart() brings these back"
        if set(self.operations.values()) == {"make"}:
            remedy = ""
        elif not self.replaceable:
            remedy = " It cannot be replaced: close() these environments, and make new ones"
        died = WorkerDied(
            f"{who} died, {self.reason}; it ran {envs}{doing}{running}.{remedy}",
            worker=self.worker,
            pid=self.pid,
            exitcode=self.exitcode,
            env_ids=self.env_ids,
            operations=dict(self.operations),
            culprit=self.running,
        )
        died.__cause__ = self.cause
        return died


def name_ids(ids: Sequence[int]) -> str:
    """Format ids for a message, with at most eight ids."""
    return ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")


def name_envs(ids: Sequence[int]) -> str:
    """Format environments for a message: ``environment 3``, or ``environments 2, 3``."""
    return f"environment{'' if len(ids) == 1 else 's'} {name_ids(ids)}"


def name_range(ids: range) -> str:
    """Format a range of environments for a message."""
    if len(ids) == 1:
        return f"environment {ids[0]}"
    return f"environments {ids[0]} to {ids[-1]}"


def describe_exception(exception: BaseException) -> str:
    """Format an exception for a message, even if its ``str`` raises."""
    try:
        return f"{type(exception).__name__}: {exception}"
    except Exception:
        return type(exception).__name__


def without_controls(text: str) -> str:
    """Escape control characters, except line feeds.

    An error's text may quote a client's action, and logs are often shown in a terminal.
    """
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def describe_exit(exitcode: int | None) -> str:
    """Describe how a process ended."""
    if exitcode is None:
        return "no exit code yet"
    name = signal_name(exitcode)
    return f"exit code {exitcode}" if name is None else f"killed by {name}"
