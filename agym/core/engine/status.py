"""Which environments can be used, and the reasons why others cannot."""

from __future__ import annotations

from collections.abc import Iterable

from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.messages.failures import EnvLoss, Failure
from agym.core.protocol.messages.operations import Close, Make, Message, Reset, Step
from agym.errors import ClosedError, ResetNeededError, group_errors

# If one of these operations fails, the environment must be reset.
ROW_NAMES = (Step.name, Reset.name, "restore")


class EnvStatus:
    """The state of each environment.

    Attributes:
        all_ready: All environments are alive, open and reset, so a step needs no checks.
        lost: The loss of each environment that is gone.
        closed_envs: The environments that the caller closed individually.
    """

    def __init__(self, num_envs: int) -> None:
        self.all_ready = False
        self.lost: dict[int, EnvLoss] = {}
        self.closed_envs: set[int] = set()
        self._unready = dict.fromkeys(range(num_envs), "has not been reset yet")

    def check(self, ids: Iterable[int]) -> None:
        """Refuse environments that accept no operations any more.

        Raises:
            ClosedError: An environment was closed individually.
            WorkerDied: The worker of an environment died.
            CrashLoopError: An environment was given up.
        """
        if self.closed_envs or self.lost:
            for i in ids:
                if i in self.closed_envs:
                    raise ClosedError(f"environment {i} is closed: omit it from env_ids")
                if i in self.lost:
                    raise self.lost[i].to_exception()

    def check_ready(self, ids: Iterable[int]) -> None:
        """Refuse environments that cannot step.

        Raises:
            ResetNeededError: An environment was not reset, or has raised since.
        """
        if self._unready:
            unready = [i for i in ids if i in self._unready]
            if unready:
                raise ResetNeededError(
                    f"environment {unready[0]} {self._unready[unready[0]]}: reset environments"
                    f" {unready[:8]}{'...' if len(unready) > 8 else ''} first"
                )

    def is_ready(self, env_id: int) -> bool:
        return env_id not in self._unready

    def usable(self, ids: Ids) -> Ids:
        """Return the environments that are alive, open and reset."""
        if self.all_ready:
            return ids
        gone = self._unready.keys() | self.lost.keys() | self.closed_envs
        return tuple(i for i in ids if i not in gone)

    def mark_ready(self, ids: Ids) -> None:
        """Record that environments are reset, or will be reset before their next operation."""
        for i in ids:
            self._unready.pop(i, None)
        self.all_ready = not (self._unready or self.lost or self.closed_envs)

    def mark_unready(self, ids: Iterable[int], why: str) -> None:
        """Record that environments must be reset before they step."""
        self._unready.update(dict.fromkeys(ids, why))
        self.all_ready = False

    def mark_lost(self, ids: Iterable[int], loss: EnvLoss) -> None:
        self.lost.update(dict.fromkeys(ids, loss))
        self.all_ready = False

    def mark_restarted(self, ids: Iterable[int]) -> None:
        """Record that environments, lost or not, are being replaced."""
        for i in ids:
            self.lost.pop(i, None)
        self.mark_unready(ids, "was restarted")

    def close_env(self, env_id: int) -> None:
        self.closed_envs.add(env_id)
        self.all_ready = False

    def blame(self, kind: type[Message], payload: Payload) -> BaseException | None:
        """Build the error to raise for the problems of an operation, and update the status."""
        problems = payload.problems
        if kind is Close:  # a dead worker counts as closed
            problems = [problem for problem in problems if isinstance(problem, Failure)]
        if not problems:
            return None
        for problem in problems:
            if isinstance(problem, Failure) and problem.operation in ROW_NAMES:
                why = f"raised in its last {problem.operation}"
                self.mark_unready(problem.env_ids, why)
        # Completions arrive in any order, but an error should not depend on timing.
        problems = sorted(problems, key=lambda problem: problem.env_ids.start)
        errors = [problem.to_exception() for problem in problems]
        if len(errors) == 1:
            return errors[0]
        if kind is Make:
            errors[0].add_note(f"{len(errors) - 1} more constructors failed in other workers")
            return errors[0]
        return group_errors(errors)
