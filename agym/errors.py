"""The tree of exceptions. The class says who is at fault.

==================== ============================================================
The caller            :class:`UsageError`, :class:`BusyError`, :class:`ClosedError`,
                      :class:`ResetNeededError`, :class:`SnapshotError`, :class:`MissingExtraError`
The environment       :class:`EnvError`, :class:`StepTimeout`, :class:`GroupError`
The world outside     :class:`WorkerDied`, :class:`CrashLoopError`, :class:`RemoteError`
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
    """What interrupted the episode of an environment; it is in ``info["fault"]``.

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
        kind: ``"died"`` (its worker did), ``"timeout"`` or ``"raised"``.
        operation: What it was doing: ``"step"``, ``"reset"``, ...; ``"idle"`` if nothing.
        error: What happened, in a line.
        traceback: The environment's own traceback as text, if it raised.
        worker: Index of its worker, ``None`` if it has none of its own.
        pid: Process id of that worker.
        exitcode: Exit code of that worker, or a negative signal number.
        seed: Seed of the environment's last explicit reset.
        episode: Episodes begun so far, ``None`` if unknown.
        step: Steps of this episode, ``None`` if unknown.
        action: The last action, if known.
        culprit: The environment that was running when the worker died, if known.
        replay: Why a replay could not bring it back, ``""`` if none was tried.
        capsule: The file written about it, ``""`` if none was.
        retry: The episode begins again, for this time in a row (:class:`agym.FaultPolicy`); 0 if
            another one follows, because it is given up or is not to be tried again.
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
    """The base of everything that agym raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Independent of the arguments of a subclass's constructor.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[AgymError], args: tuple[Any, ...], state: dict[str, Any]) -> AgymError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(AgymError, ValueError):
    """An argument cannot work: the message names it and says what would."""


class UsageTypeError(UsageError, TypeError):
    """An argument is of a type that cannot work."""


class SnapshotError(UsageError):
    """An environment's state cannot be copied, or does not fit where it is to be restored."""


class SpaceMismatchError(UsageError, RuntimeError):
    """Environments of one batch differ in their spaces (Gymnasium's is a ``RuntimeError``)."""


class NothingSentError(UsageError):
    """There is nothing to receive: no step was sent, or all were received."""


class BusyError(AgymError, gymnasium.error.AlreadyPendingCallError):
    """An environment was asked to step before its last step was over, and received if sent."""

    def __init__(self, message: str, operation: str = "step") -> None:
        super().__init__(message, operation)  # where Gymnasium's users look for the operation


class ClosedError(AgymError, gymnasium.error.ClosedEnvironmentError):
    """The environments were used after ``close``, or before they were opened."""


class ResetNeededError(AgymError, gymnasium.error.ResetNeeded):
    """An environment was stepped before its first reset, or after it raised."""


class MissingExtraError(AgymError, ImportError):
    """An optional dependency is not installed: the message names the extra that brings it."""


class RemoteTraceback(Exception):
    """The cause of an :class:`EnvError` from another process: its traceback, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class InvalidResult(ValueError):
    """``reset`` or ``step`` returned an unusable value; the ``exception`` of an ``EnvError``."""


class EnvError(AgymError):
    """An environment raised; every other environment stays usable.

    Attributes:
        env_id: Index of the environment that raised.
        env_ids: The same; or all environments of one ``VectorEnv`` (``backend="vector"``), where it
            is unknown which one raised. Then ``env_id`` is the first of them, and ``action`` the
            batch of their actions.
        operation: What it was doing: ``"make"``, ``"reset"``, ``"step"``, ``"render"``, ...
        seed: Seed of its last explicit reset, ``None`` if it had none.
        episode: Episodes begun so far, so 0 before the first reset.
        step: Steps taken in this episode, including the failing one.
        action: The last action it was given, ``None`` before the first step.
        error: The type and the text of the environment's own exception.
        capsule: The file written about it (the ``capsule_dir`` option), ``""`` if none was.
        exception: The environment's own exception, ``None`` if it could not be sent.
    """

    error = ""
    capsule = ""
    exception: BaseException | None = None

    def __init__(
        self,
        message: str,
        *,
        env_id: int,
        operation: str,
        seed: int | None = None,
        episode: int = 0,
        step: int = 0,
        action: Any = None,
        env_ids: Sequence[int] = (),
    ) -> None:
        super().__init__(message)
        self.env_id = env_id
        self.env_ids: tuple[int, ...] = tuple(env_ids) or (env_id,)
        self.operation = operation
        self.seed = seed
        self.episode = episode
        self.step = step
        self.action = action


class StepTimeout(AgymError, TimeoutError):
    """Environments missed the deadline of one operation (the ``timeout`` option).

    Attributes:
        operation: The operation that is late.
        env_ids: The environments that have not answered. Late answers are dropped, never given to
            a later call.
    """

    def __init__(self, message: str, *, operation: str, env_ids: Sequence[int]) -> None:
        super().__init__(message)
        self.operation = operation
        self.env_ids: tuple[int, ...] = tuple(env_ids)


class RemoteError(AgymError):
    """A server of environments failed, refused or did not answer (:func:`agym.openenv`).

    An environment raises it, so that ``reset`` and ``step`` raise an :class:`EnvError`, whose
    ``exception`` it is.

    Attributes:
        url: The server.
        session: The number of the session in this process, ``None`` before one is open.
        operation: What was asked: ``"connect"``, ``"reset"``, ``"step"``, ``"state"``, ...
        code: ``"TIMEOUT"``, ``"CONNECTION_LOST"``, ``"UNREACHABLE"``, ``"REFUSED"`` (the token, or
            the address), ``"BAD_ANSWER"`` (no such server), or the server's own code, as
            ``"CAPACITY_REACHED"`` (it is full) or ``"EXECUTION_ERROR"`` (its environment raised).
    """

    def __init__(
        self, message: str, *, url: str, operation: str, code: str, session: int | None = None
    ) -> None:
        super().__init__(message)
        self.url = url
        self.session = session
        self.operation = operation
        self.code = code


class WorkerDied(AgymError):
    """A worker ended by itself; the environments of other workers stay usable.

    Attributes:
        worker: Index of the worker.
        pid: Its process id, ``None`` for a thread.
        exitcode: Its exit code; the negative signal number if a signal ended it; ``None`` if the
            system has not reported it yet.
        signal: Name of that signal, ``None`` if there was none.
        env_ids: The environments that ran on it.
        operations: What each of them was doing: its operation in flight, or ``"idle after ..."``.
        culprit: The environment that was running, ``None`` if unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        worker: int,
        pid: int | None,
        exitcode: int | None,
        env_ids: Sequence[int],
        operations: Mapping[int, str] | None = None,
        culprit: int | None = None,
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.pid = pid
        self.exitcode = exitcode
        self.env_ids: tuple[int, ...] = tuple(env_ids)
        self.operations: dict[int, str] = dict(operations or {})
        self.culprit = culprit

    @property
    def signal(self) -> str | None:
        """Name of the signal that ended it."""
        return None if self.exitcode is None else signal_name(self.exitcode)


class CrashLoopError(AgymError):
    """Environments failed too often (the ``max_restarts`` option), and are given up.

    ``restart()`` tries again; the other environments go on.

    Attributes:
        env_ids: The environments that are given up.
        faults: Their last failures, the oldest first.
    """

    def __init__(self, message: str, *, env_ids: Sequence[int], faults: Sequence[Fault]) -> None:
        super().__init__(message)
        self.env_ids: tuple[int, ...] = tuple(env_ids)
        self.faults: tuple[Fault, ...] = tuple(faults)


class GroupError(AgymError):
    """A group of environments failed as one (:class:`agym.Group`); its cause is the last failure.

    Attributes:
        group: Index of the group.
        env_ids: Its environments.
        env_id: The member that failed first, ``None`` if the group could not be reset.
        seed: The seed of the task.
        options: The options of the task.
        fault: What interrupted that member, if agym has handled it (``on_fault``).
    """

    fault: Fault | None = None

    def __init__(
        self,
        message: str,
        *,
        group: int,
        env_ids: Sequence[int],
        env_id: int | None,
        seed: int,
        options: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(message)
        self.group = group
        self.env_ids: tuple[int, ...] = tuple(env_ids)
        self.env_id = env_id
        self.seed = seed
        self.options = options


class AgymErrorGroup(AgymError, ExceptionGroup[AgymError]):
    """Several failures of one call, in the order of their environments.

    Its text is that of the first failure, with the number of others.

    Attributes:
        env_ids: The environments of all failures.
    """

    env_ids: tuple[int, ...] = ()

    def __init__(self, message: str, errors: Sequence[AgymError]) -> None:
        """Collect the environments; :func:`group_errors` writes the message."""
        self.env_ids = tuple(i for error in errors for i in getattr(error, "env_ids", ()))

    def __str__(self) -> str:
        """Omit the count that ``ExceptionGroup`` adds."""
        return self.message

    def derive(self, errors: Sequence[Any], /) -> ExceptionGroup[Any]:
        """Return a group of some of the failures, as ``except*`` and ``split`` need it."""
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
    """Return the name of the signal that an exit code stands for, ``None`` if none."""
    if exitcode >= 0:
        return None
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # a real-time signal
        return f"signal {-exitcode}"
