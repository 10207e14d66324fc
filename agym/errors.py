"""The exceptions. The class says who is at fault.

==================== ============================================================
The caller            :class:`UsageError`, :class:`UsageTypeError`,
                      :class:`SpaceMismatchError`, :class:`NothingSentError`,
                      :class:`BusyError`, :class:`ClosedError`,
                      :class:`ResetNeededError`, :class:`SnapshotError`, :class:`MissingExtraError`
The environment       :class:`EnvError`, :class:`StepTimeout`, :class:`GroupError`
Something else        :class:`WorkerDied`, :class:`CrashLoopError`, :class:`RemoteError`
==================== ============================================================

Several failures of one call are raised together, as an :class:`AgymErrorGroup`, which is an
``ExceptionGroup``: ``except* EnvError`` handles one failure and several.

Where Gymnasium has an error of the same meaning, agym's is a subclass of it. So ``except`` clauses
written for Gymnasium's vector environments keep working.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium.error


@dataclass(frozen=True)
class Fault:
    """The failure that interrupted an environment's episode; see ``info["fault"]``.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, on_fault="restart") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.chaos(envs, error=1.0):  # as if the environments raised
        ...         result = envs.step([0, 1])
        >>> fault = result.infos[1]["fault"]
        >>> fault.env_id, fault.kind, fault.operation, fault.step
        (1, 'raised', 'step', 1)

    Attributes:
        env_id: The environment.
        kind: ``"died"`` (its worker died), ``"timeout"`` or ``"raised"``.
        operation: The environment's operation: ``"step"``, ``"reset"``, ...; or ``"idle"``.
        error: The failure in one line of text.
        traceback: The environment's traceback as text, if it raised.
        worker: Index of its worker, ``None`` without a worker process or thread.
        pid: Process id of that worker.
        exitcode: Exit code of that worker, or a negative signal number.
        seed: Seed of the environment's last explicit reset.
        episode: Number of episodes started so far, ``None`` if unknown.
        step: Steps of this episode, ``None`` if unknown.
        action: The last action, if known.
        culprit: The environment that was running when the worker died, if known.
        replay: Why a replay did not restore the environment, ``""`` if none was tried.
        capsule: The file that records the failure, ``""`` if none was written.
        retry: The number of this retry, 1, 2, ..., if the same episode starts again
            (:class:`agym.FaultPolicy`); 0 if a new episode follows.
    """

    env_id: int
    kind: str
    operation: str
    error: str
    traceback: str = ""
    worker: int | None = None
    pid: int | None = None
    exitcode: int | None = None
    seed: int | None = None
    episode: int | None = None
    step: int | None = None
    action: Any = None
    culprit: int | None = None
    replay: str = ""
    capsule: str = ""
    retry: int = 0


class AgymError(Exception):
    """The base of everything that agym raises on purpose; keywords become attributes."""

    def __init__(self, *args: Any, **details: Any) -> None:
        super().__init__(*args)
        if "env_ids" in details:
            details["env_ids"] = tuple(details["env_ids"])
        vars(self).update(details)

    def __reduce__(self) -> tuple[Any, ...]:
        # Independent of the arguments of a subclass's constructor.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[AgymError], args: tuple[Any, ...], state: dict[str, Any]) -> AgymError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(AgymError, ValueError):
    """An argument is invalid: the message names it and says what to use instead."""


class UsageTypeError(UsageError, TypeError):
    """An argument has the wrong type."""


class SnapshotError(UsageError):
    """An environment's state cannot be copied, or a snapshot is of another kind of environment."""


class SpaceMismatchError(UsageError, RuntimeError):
    """Environments of one batch have different spaces (in Gymnasium, a ``RuntimeError``)."""


class NothingSentError(UsageError):
    """There is nothing to receive: no step was sent, or all were received."""


class BusyError(AgymError, gymnasium.error.AlreadyPendingCallError):
    """An environment was stepped while its last step was in flight or not yet received."""

    def __init__(self, message: str, operation: str = "step") -> None:
        super().__init__(message, operation)  # Gymnasium's class has the operation, too


class ClosedError(AgymError, gymnasium.error.ClosedEnvironmentError):
    """The environments were used after ``close``, or before they were opened."""


class ResetNeededError(AgymError, gymnasium.error.ResetNeeded):
    """An environment was stepped before its first reset, or after it raised."""


class MissingExtraError(AgymError, ImportError):
    """An optional dependency is not installed: the message names the extra that installs it."""


class RemoteTraceback(Exception):
    """The cause of an :class:`EnvError` from another process, with the traceback as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class InvalidResult(ValueError):
    """``reset`` or ``step`` returned an unusable value; the ``exception`` of an ``EnvError``."""


class EnvError(AgymError):
    """An environment raised; every other environment stays usable.

    Attributes:
        env_id: Index of the environment that raised.
        env_ids: The same index; or all environments of one ``VectorEnv`` (``backend="vector"``),
            where it is unknown which environment raised. Then ``env_id`` is the first of them, and
            ``action`` the batch of their actions.
        operation: The failed operation: ``"make"``, ``"reset"``, ``"step"``, ``"render"``, ...
        seed: Seed of the environment's last explicit reset, ``None`` if it had none.
        episode: Number of episodes started so far; 0 before the first reset.
        step: Steps of this episode, including the failed one.
        action: The last action, ``None`` before the first step.
        error: The type and the text of the environment's exception.
        capsule: The file that records the failure (see ``FaultPolicy.capsule_dir``), ``""`` if none
            was written.
        exception: The environment's exception, ``None`` if it could not be sent to this process.
    """

    env_id: int
    env_ids: tuple[int, ...]
    operation: str
    seed: int | None = None
    episode: int = 0
    step: int = 0
    action: Any = None
    error: str = ""
    capsule: str = ""
    exception: BaseException | None = None

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message, **{"env_ids": (details["env_id"],), **details})


class StepTimeout(AgymError, TimeoutError):
    """Environments missed the deadline of one operation (the ``timeout`` option).

    Attributes:
        operation: The late operation.
        env_ids: The environments that have not finished it. A late result is dropped, and never
            returned by a later call.
    """

    operation: str
    env_ids: tuple[int, ...]


class RemoteError(AgymError):
    """A server of environments failed, refused or did not answer (:func:`agym.openenv`).

    An environment raises it. So ``reset`` and ``step`` of a batch raise an :class:`EnvError`, with
    this error as its ``exception``.

    Attributes:
        url: The server.
        session: The number of the session in this process, ``None`` before it is open.
        operation: The failed request: ``"connect"``, ``"reset"``, ``"step"``, ``"state"``, ...
        code: ``"TIMEOUT"``, ``"CONNECTION_LOST"``, ``"UNREACHABLE"``, ``"REFUSED"`` (the token or
            the address is wrong), ``"BAD_ANSWER"`` (it is not an OpenEnv server), or a code of the
            server, such as ``"CAPACITY_REACHED"`` (it is full) or ``"EXECUTION_ERROR"`` (its
            environment raised).
    """

    url: str
    operation: str
    code: str
    session: int | None = None


class WorkerDied(AgymError):
    """A worker died; the environments of other workers stay usable.

    Attributes:
        worker: Index of the worker.
        pid: Its process id, ``None`` for a thread.
        exitcode: Its exit code; the negative signal number if a signal ended it; ``None`` if the
            system has not reported it yet.
        signal: Name of that signal, ``None`` if there was none.
        env_ids: The environments that ran on it.
        operations: The operation of each in flight, or ``"idle after ..."``.
        culprit: The environment that was running, ``None`` if unknown.
    """

    worker: int
    pid: int | None
    exitcode: int | None
    env_ids: tuple[int, ...]
    operations: dict[int, str]
    culprit: int | None = None

    @property
    def signal(self) -> str | None:
        """Name of the signal that ended the worker, ``None`` if none did."""
        return None if self.exitcode is None else signal_name(self.exitcode)


class CrashLoopError(AgymError):
    """Environments failed too often and were given up (see ``FaultPolicy.max_restarts``).

    ``envs.restart()`` tries again; the other environments stay usable.

    Attributes:
        env_ids: The environments that were given up.
        faults: Their last failures, oldest first.
    """

    env_ids: tuple[int, ...]
    faults: tuple[Fault, ...]


class GroupError(AgymError):
    """A group of environments failed as one (:class:`agym.Group`); its cause is the last failure.

    Attributes:
        group: Index of the group.
        env_ids: The group's environments.
        env_id: The environment that failed first, ``None`` if the group could not be reset.
        seed: The seed of the task.
        options: The options of the task.
        fault: The failure of that environment, if agym has handled it (see ``on_fault``).
    """

    group: int
    env_ids: tuple[int, ...]
    env_id: int | None
    seed: int
    options: Mapping[str, Any] | None
    fault: Fault | None = None


class AgymErrorGroup(AgymError, ExceptionGroup[AgymError]):
    """Several failures of one call, in the order of their environments.

    Its text is the text of the first failure, with the number of other failures.

    Attributes:
        env_ids: The environments of all failures.
    """

    env_ids: tuple[int, ...] = ()

    def __init__(self, message: str, errors: Sequence[AgymError]) -> None:
        """Collect the environments; :func:`group_errors` composes the message."""
        self.env_ids = tuple(i for error in errors for i in getattr(error, "env_ids", ()))

    def __str__(self) -> str:
        """Omit the count that ``ExceptionGroup`` adds."""
        return self.message

    def derive(self, errors: Sequence[Any], /) -> ExceptionGroup[Any]:
        """Return a group of some of the failures, which ``except*`` and ``split`` need."""
        if all(isinstance(error, AgymError) for error in errors):
            return group_errors(errors)
        return ExceptionGroup(self.message, errors)


def group_errors(errors: Sequence[AgymError]) -> AgymErrorGroup:
    """Make one exception of several failures."""
    others = len(errors) - 1
    message = str(errors[0])
    if others:
        message += f" (and {others} more {'failure' if others == 1 else 'failures'})"
    return AgymErrorGroup(message, errors)


def signal_name(exitcode: int) -> str | None:
    """Return the name of the signal of a negative exit code, ``None`` for other exit codes."""
    if exitcode >= 0:
        return None
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # a real-time signal
        return f"signal {-exitcode}"
