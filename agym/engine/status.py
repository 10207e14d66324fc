"""Health: which environments can be used, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable

from agym.errors import ClosedError, ResetNeededError, group_errors
from agym.protocol.arguments import Ids
from agym.protocol.messages import ROW_KINDS, EnvLoss, Failure, Payload


class EnvStatus:
    """What is the matter with each environment.

    Attributes:
        fine: Every environment is alive and reset: there is nothing to check before a step.
        lost: What happened to the environments that are gone.
        retired: The environments that the caller closed by themselves.
    """

    def __init__(self, num_envs: int) -> None:
        """Begin with environments that were never reset."""
        self.all_ready = False
        self.lost: dict[int, EnvLoss] = {}
        self.retired: set[int] = set()
        self._unready = dict.fromkeys(range(num_envs), "has not been reset yet")

    def check(self, ids: Iterable[int]) -> None:
        """Refuse environments that take nothing any more.

        Raises:
            ClosedError: One was closed by itself.
            WorkerDied: The worker of one died.
            CrashLoopError: One was given up.
        """
        if self.retired or self.lost:
            for i in ids:
                if i in self.retired:
                    raise ClosedError(f"environment {i} is closed: leave it out of env_ids")
                if i in self.lost:
                    raise self.lost[i].to_exception()

    def check_ready(self, ids: Iterable[int]) -> None:
        """Refuse environments that cannot step.

        Raises:
            ResetNeededError: One was not reset, or raised since.
        """
        if self._unready:
            unready = [i for i in ids if i in self._unready]
            if unready:
                raise ResetNeededError(
                    f"environment {unready[0]} {self._unready[unready[0]]}: reset environments"
                    f" {unready[:8]}{'...' if len(unready) > 8 else ''} first"
                )

    def is_ready(self, env_id: int) -> bool:
        """Whether an environment was reset."""
        return env_id not in self._unready

    def usable(self, ids: Ids) -> Ids:
        """Those that are there, and were reset."""
        if self.all_ready:
            return ids
        gone = self._unready.keys() | self.lost.keys() | self.retired
        return tuple(i for i in ids if i not in gone)

    def mark_ready(self, ids: Ids) -> None:
        """Environments are reset, or will be before anything else."""
        for i in ids:
            self._unready.pop(i, None)
        self._judge()

    def mark_unready(self, ids: Iterable[int], why: str) -> None:
        """Environments have to be reset before they step."""
        self._unready.update(dict.fromkeys(ids, why))
        self.all_ready = False

    def mark_lost(self, ids: Iterable[int], loss: EnvLoss) -> None:
        """Environments are gone."""
        self.lost.update(dict.fromkeys(ids, loss))
        self.all_ready = False

    def mark_found(self, ids: Iterable[int]) -> None:
        """Environments are back."""
        for i in ids:
            self.lost.pop(i, None)
        self._judge()

    def _judge(self) -> None:
        self.all_ready = not (self._unready or self.lost or self.retired)

    def close_env(self, env_id: int) -> None:
        """An environment is closed by itself."""
        self.retired.add(env_id)
        self.all_ready = False

    def blame(self, kind: str, extras: Payload) -> BaseException | None:
        """Turn what went wrong into the error to raise, and remember what it means."""
        problems = extras.problems
        if kind == "close":  # a worker that is dead is closed
            problems = [problem for problem in problems if isinstance(problem, Failure)]
        if not problems:
            return None
        for problem in problems:
            if isinstance(problem, Failure) and problem.operation in ROW_KINDS:
                why = f"raised in its last {problem.operation}"
                self.mark_unready(problem.env_ids, why)
        # An echo is for those who were not told.
        first = [p for p in problems if not (isinstance(p, Failure) and p.echo)] or problems[:1]
        first.sort(key=lambda problem: problem.env_ids.start)  # not as the workers answered
        errors = [problem.to_exception() for problem in first]
        if len(errors) == 1:
            return errors[0]
        if kind == "make":
            errors[0].add_note(f"{len(errors) - 1} more constructors failed in other workers")
            return errors[0]
        return group_errors(errors)
