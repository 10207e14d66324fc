"""The whole exception tree: the name of a class says who is at fault.

==================== ============================================================
The caller            :class:`UsageError`, :class:`BusyError`, :class:`ClosedError`,
                      :class:`ResetNeededError`, :class:`MissingExtraError`
The environment       :class:`EnvError`, :class:`StepTimeout`
The world outside     :class:`WorkerDied`, :class:`CrashLoopError`
==================== ============================================================

Several failures of one call are raised together, as an :class:`AgymErrorGroup`, which is an
``ExceptionGroup`` too. Several ``EnvError`` are an :class:`EnvErrorGroup`, which ``except
EnvError`` catches; likewise :class:`WorkerDiedGroup` and :class:`CrashLoopErrorGroup`. Any other
group, a mixed one above all, is an ``AgymError`` only.

Where Gymnasium has an error of the same meaning, agym's is a subclass of it, so that
``except`` clauses written for Gymnasium's vector environments keep working.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium.error


@dataclass(frozen=True)
class Fault:
    """What cut the episode of an environment off; found as ``info["fault"]``.

    Attributes:
        env_id: The environment.
        kind: ``"died"`` (its worker did), ``"timeout"`` or ``"raised"``.
        operation: What it was doing: ``"step"``, ``"reset"``, ...; ``"idle"`` if nothing.
        error: What happened, in a line.
        traceback: The environment's own traceback as text, if it raised.
        worker: Index of its worker, ``None`` if it has none of its own.
        pid: Process id of that worker.
        exitcode: How that ended: an exit code, or a negative signal number.
        seed: Seed of the environment's last explicit reset.
        episode: Episodes begun so far, ``None`` if that is not known.
        step: Steps of this episode, ``None`` if that is not known.
        action: The last action, where it is known.
        culprit: The environment that was running when the worker died, if that could be told.
        replay: Why it could not be brought back by a replay, ``""`` if none was tried.
        capsule: The file written about it, ``""`` if none was.
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


class AgymError(Exception):
    """The base of everything that agym raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive a pickle, whatever a subclass's constructor asks for."""
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


class SpaceMismatchError(UsageError, RuntimeError):
    """Environments of one batch differ in their spaces (Gymnasium's is a ``RuntimeError``)."""


class NothingSentError(UsageError):
    """There is nothing to receive: no step was sent, or all were received."""


class BusyError(AgymError, gymnasium.error.AlreadyPendingCallError):
    """An environment was asked to step before its previous step was over, and received if sent."""

    def __init__(self, message: str, operation: str = "step") -> None:
        """Keep the name of the pending operation where Gymnasium's users look for it."""
        super().__init__(message, operation)


class ClosedError(AgymError, gymnasium.error.ClosedEnvironmentError):
    """The environments were used after ``close`` (or before they were opened)."""


class ResetNeededError(AgymError, gymnasium.error.ResetNeeded):
    """An environment was stepped before its first reset, or after it raised."""


class MissingExtraError(AgymError, ImportError):
    """An optional dependency is not installed: the message names the extra that brings it."""


class RemoteTraceback(Exception):
    """The cause of an :class:`EnvError` from another process: its traceback, as text."""

    def __str__(self) -> str:
        """Start on a line of its own, as the traceback was printed over there."""
        return f"\n{self.args[0]}"


class EnvError(AgymError):
    """An environment raised; every other environment stays usable.

    Attributes:
        env_id: Index of the environment that raised.
        env_ids: It alone, or all that are one program with it (``backend="native"``), of which
            nobody can tell which one it was: then ``env_id`` is the first of them, and ``action``
            the batch of their actions.
        operation: What it was doing: ``"make"``, ``"reset"``, ``"step"``, ``"render"``, ...
        seed: Seed of its last explicit reset, ``None`` if it had none.
        episode: Episodes begun so far, so 0 before the first reset.
        step: Steps taken in this episode, the failing one included.
        action: The last action it was given, ``None`` before the first step.
        capsule: The file written about it (the ``capsule_dir`` option), ``""`` if none was.
        exception: The environment's own exception, ``None`` if it did not survive the way here.
    """

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
        """Keep the particulars beside the message."""
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
        env_ids: The environments that have not answered. What they answer late is dropped,
            never given to a later call.
    """

    def __init__(self, message: str, *, operation: str, env_ids: Sequence[int]) -> None:
        """Keep the particulars beside the message."""
        super().__init__(message)
        self.operation = operation
        self.env_ids: tuple[int, ...] = tuple(env_ids)


class WorkerDied(AgymError):
    """A worker ended by itself; the environments of other workers stay usable.

    Attributes:
        worker: Index of the worker.
        pid: Its process id, ``None`` for a thread.
        exitcode: Its exit code; the negative signal number if a signal ended it; ``None`` if
            the system has not told yet.
        signal: Name of that signal, ``None`` if there was none.
        env_ids: The environments that lived in it.
        operations: What each of them was doing: its operation in flight, or ``"idle after ..."``.
        culprit: The environment that was running, ``None`` if that cannot be told.
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
        """Keep the particulars beside the message."""
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
    """Environments failed again and again (the ``max_restarts`` option): they are given up.

    ``restart()`` tries once more; the others go on.

    Attributes:
        env_ids: The environments that are given up.
        faults: Their last failures, the oldest first.
    """

    def __init__(self, message: str, *, env_ids: Sequence[int], faults: Sequence[Fault]) -> None:
        """Keep the particulars beside the message."""
        super().__init__(message)
        self.env_ids: tuple[int, ...] = tuple(env_ids)
        self.faults: tuple[Fault, ...] = tuple(faults)


class AgymErrorGroup(AgymError, ExceptionGroup[AgymError]):
    """Several failures of one call, the lowest environments first.

    Its text is that of the first failure, and how many more there are. Its attributes are those of
    the first failure, but ``env_ids``, ``operations`` and ``faults`` are those of all.

    A mixed group must not be an ``EnvError``: ``except* EnvError`` would then match all of it, and
    ``except* WorkerDied`` none.
    """

    env_ids: tuple[int, ...] = ()

    def __init__(self, message: str, errors: Sequence[AgymError]) -> None:
        """Take over the attributes; :func:`group_errors` chooses the class and the message."""
        first = vars(errors[0])
        vars(self).update({key: first[key] for key in first if not key.startswith("__")})
        self.env_ids = tuple(i for error in errors for i in getattr(error, "env_ids", ()))

    def __str__(self) -> str:
        """The message, without the count that ``ExceptionGroup`` adds."""
        return self.message

    def derive(self, errors: Sequence[Any], /) -> ExceptionGroup[Any]:
        """A part of a group is of the kind that its own members are."""
        if all(isinstance(error, AgymError) for error in errors):
            return group_errors(errors)
        return ExceptionGroup(self.message, errors)

    def split(self, condition: Any, /) -> Any:
        """Divide it in two; a condition is asked of the members alone."""
        return super().split(self._members_only(condition))

    def subgroup(self, condition: Any, /) -> Any:
        """Leave out what a condition, which is asked of the members alone, does not hold for."""
        return super().subgroup(self._members_only(condition))

    def _members_only(self, condition: Any) -> Any:
        """Do not ask about the group itself, which looks like its first member."""
        if isinstance(condition, type | tuple):
            return condition
        return lambda error: error is not self and condition(error)


class EnvErrorGroup(AgymErrorGroup, EnvError):
    """Several environments raised."""


class WorkerDiedGroup(AgymErrorGroup, WorkerDied):
    """Several workers died."""

    def __init__(self, message: str, errors: Sequence[WorkerDied]) -> None:
        """Take over the operations of all."""
        super().__init__(message, errors)
        self.operations = {i: what for error in errors for i, what in error.operations.items()}


class CrashLoopErrorGroup(AgymErrorGroup, CrashLoopError):
    """Several environments or workers were given up."""

    def __init__(self, message: str, errors: Sequence[CrashLoopError]) -> None:
        """Take over the faults of all."""
        super().__init__(message, errors)
        self.faults = tuple(fault for error in errors for fault in error.faults)


_GROUPS: dict[type[AgymError], type[AgymErrorGroup]] = {
    EnvError: EnvErrorGroup,
    WorkerDied: WorkerDiedGroup,
    CrashLoopError: CrashLoopErrorGroup,
}


def group_errors(errors: Sequence[AgymError]) -> AgymErrorGroup:
    """Make one exception of several failures."""
    others = len(errors) - 1
    message = str(errors[0])
    if others:
        message += f" (and {others} more {'failure' if others == 1 else 'failures'})"
    for kind, group in _GROUPS.items():
        if all(isinstance(error, kind) for error in errors):
            return group(message, errors)
    return AgymErrorGroup(message, errors)


def signal_name(exitcode: int) -> str | None:
    """Name of the signal that an exit code stands for, ``None`` if it stands for none."""
    if exitcode >= 0:
        return None
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # a real-time signal
        return f"signal {-exitcode}"
