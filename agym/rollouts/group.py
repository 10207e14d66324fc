"""Groups: environments that play the same task, and succeed or fail together."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np

from agym import AsyncEnvHandle, AsyncEnvs, Envs, StepResult
from agym.core.protocol.arguments import check_count, parse_env_ids
from agym.core.protocol.messages.failures import name_envs
from agym.errors import (
    AgymError,
    BusyError,
    ClosedError,
    Fault,
    GroupError,
    UsageError,
    UsageTypeError,
)

T = TypeVar("T")

Episode = Callable[[AsyncEnvHandle, Any, dict[str, Any]], Coroutine[Any, Any, T]]


def group(envs: AsyncEnvs, n: int, *, env_ids: Sequence[int] | None = None) -> list[Group]:
    """Divide environments into groups of ``n``; a group plays one task ``n`` times in parallel.

    Example:
        >>> import agym, asyncio
        >>> async def episode(env, observation, info):  # of one member
        ...     total, over = 0.0, False
        ...     while not over:
        ...         action = env.action_space.sample()
        ...         observation, reward, terminated, truncated, info = await env.step(action)
        ...         total, over = total + reward, terminated or truncated
        ...     return total
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 8) as envs:
        ...         groups = agym.group(envs, 4)
        ...         plays = [group.play(episode, seed=k) for k, group in enumerate(groups)]
        ...         return await asyncio.gather(*plays)
        >>> [len(returns) for returns in agym.run(main())]
        [4, 4]

    Environments with neighbouring ids form a group. So a group uses few workers, and a worker that
    dies affects few groups.

    Args:
        envs: Open environments of :func:`agym.make_async`, with one observation per environment.
        n: The size of a group.
        env_ids: The environments, by default all.

    Returns:
        The groups, in the order of the environments.

    Raises:
        UsageError: The number of environments is not a multiple of ``n``.
    """
    if isinstance(envs, Envs) or not isinstance(envs, AsyncEnvs):
        raise UsageTypeError(
            f"a group needs environments made by agym.make_async, not {type(envs).__name__}:"
            " coroutines play its environments at the same time"
        )
    n = check_count("n", n)
    parse_env_ids(env_ids, envs.num_envs)
    ids = [*range(envs.num_envs)] if env_ids is None else [*env_ids]
    if len(ids) % n:
        raise UsageError(
            f"{len(ids)} environments can't be divided into groups of {n}: choose another n, or"
            " pass env_ids="
        )
    return [Group(envs, k, ids[k * n : k * n + n]) for k in range(len(ids) // n)]


class Group:
    """Environments that play the same task from the same start; made by :func:`agym.group`.

    Example:
        >>> import agym
        >>> async def episode(env, observation, info):
        ...     observation, reward, terminated, truncated, info = await env.step(0)
        ...     return reward
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 3) as envs:
        ...         (group,) = agym.group(envs, 3)
        ...         return await group.play(episode, seed=7, retry=2)
        >>> agym.run(main())
        [1.0, 1.0, 1.0]

    Attributes:
        index: Index of the group in the list that :func:`agym.group` returned.
        env_ids: The group's environments.
        attempts: How often the latest play was started.
    """

    def __init__(self, envs: AsyncEnvs, index: int, env_ids: Sequence[int]) -> None:
        self.index = index
        self.env_ids = tuple(env_ids)
        self.attempts = 0
        self._envs = envs
        self._members = [Member(envs, i) for i in self.env_ids]
        self._playing = False

    def __len__(self) -> int:
        return len(self.env_ids)

    def __repr__(self) -> str:
        return f"Group({self.index}, env_ids={[*self.env_ids]})"

    async def play(
        self,
        episode: Episode[T],
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        retry: int = 0,
    ) -> list[T]:
        """Reset all members with the same seed, and run an episode in each at the same time.

        If a member fails, the others are cancelled at once, and the whole group starts again. A
        member fails if its environment raises, loses its worker or misses a deadline, whatever
        ``on_fault`` is, or if its ``episode`` raises. After a play that failed or was cancelled,
        the group can play again: a step that is still under way finishes, its result is dropped,
        and the next reset follows.

        Args:
            episode: ``async def episode(env, observation, info)``. ``env`` is the handle of one
                member; ``observation`` and ``info`` are the results of its reset.
            seed: The seed of every member; ``None`` for a random one, the same for all.
            options: The options of every member's reset.
            retry: How often the group starts again after a failure.

        Returns:
            The results of the episodes, in the order of :attr:`env_ids`.

        Raises:
            UsageError: An argument is invalid.
            GroupError: The group failed ``retry + 1`` times; its cause is the last failure.
            BusyError: The group is playing.
            ClosedError: The environments are closed.
        """
        retry = check_count("retry", retry, least=0)
        _check_episode(episode)
        if self._playing:
            raise BusyError(f"{self!r} is playing: await that play before the next one", "play")
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._playing, self.attempts = True, 0
        try:
            while True:
                self.attempts += 1
                try:
                    return await self._attempt(episode, seed, options)
                except _AttemptError as failed:
                    if isinstance(failed.error, ClosedError):
                        raise failed.error from None
                    if self.attempts > retry:
                        raise self._error(failed, seed, options) from failed.error
        finally:
            self._playing = False

    async def _attempt(
        self, episode: Episode[T], seed: int, options: dict[str, Any] | None
    ) -> list[T]:
        """Play once.

        Raises:
            _AttemptError: A member failed.
        """
        try:
            ids, lost_ids = self._envs.env_ids, self._envs.tap.lost
            if members := [i for i in self.env_ids if ids[i] in lost_ids]:
                await self._envs.restart(members)  # on_fault="raise", or too many faults
            # A step of the last play may still be under way: the reset is queued behind it.
            resets = [member.reset(seed=seed, options=options) for member in self._members]
            starts = [await reset for reset in resets]
        except UsageError:
            raise  # an invalid seed or options: another attempt would fail, too
        except AgymError as error:
            raise _AttemptError(None, error) from None
        # In the order of the failures. The TaskGroup cancels the other members after the first, and
        # they may raise, too; their errors must not hide the first one.
        failures: list[_AttemptError | UsageTypeError] = []

        async def play(member: Member, start: tuple[Any, dict[str, Any]]) -> T:
            try:
                playing = _start(episode, member, *start)
            except UsageTypeError as error:
                failures.append(error)
                raise
            try:
                return await playing
            except Exception as error:
                failures.append(_AttemptError(member.index, error))
                raise

        try:
            async with asyncio.TaskGroup() as task_group:
                tasks = [
                    task_group.create_task(play(member, start))
                    for member, start in zip(self._members, starts, strict=True)
                ]
        except ExceptionGroup:
            raise failures[0] from None
        return [task.result() for task in tasks]

    def _error(
        self, failed: _AttemptError, seed: int, options: dict[str, Any] | None
    ) -> GroupError:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        task = f"seed={seed}" + ("" if options is None else f", options={options!r}")
        where = "" if failed.env_id is None else f"; {name_envs([failed.env_id])}"
        error = GroupError(
            f"group {self.index} ({name_envs(self.env_ids)}) failed {times} at the task with {task}"
            f"{where}: {failed.error!r}",
            group=self.index,
            env_ids=self.env_ids,
            env_id=failed.env_id,
            seed=seed,
            options=options,
        )
        if isinstance(failed.error, _MemberFault):
            error.fault = failed.error.fault
        return error


def _check_episode(episode: Any) -> None:
    """Check an ``episode`` as far as possible without calling it.

    Raises:
        UsageTypeError: It is not callable, or has other parameters.
    """
    message = f"episode={episode!r} must be an `async def episode(env, observation, info)`"
    if not callable(episode):
        raise UsageTypeError(message)
    try:
        signature = inspect.signature(episode)
    except (TypeError, ValueError):  # some builtins have no signature
        return
    try:
        signature.bind(None, None, None)
    except TypeError as error:
        raise UsageTypeError(f"{message}, which is called with these three: {error}") from None


def _start(
    episode: Episode[T], member: Member, observation: Any, info: dict[str, Any]
) -> Coroutine[Any, Any, T]:
    """Call ``episode``, which may be a plain function that returns a coroutine.

    Raises:
        UsageTypeError: It returned something else, or raised because it did not await a step.
    """
    message = f"episode={episode!r} must be an `async def` that awaits each `env.step`"
    try:
        coroutine = episode(member, observation, info)
    except TypeError as error:
        raise UsageTypeError(f"{message}: {error}") from None
    if not inspect.isawaitable(coroutine):
        name = type(coroutine).__name__
        raise UsageTypeError(f"{message}: it returned {name}, not a coroutine")
    return coroutine


class Member(AsyncEnvHandle):
    """The handle of a group's member; a step raises on a fault, even if agym has handled it."""

    def _one_step(self, result: StepResult) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        fault = result.infos[0].get("fault")
        if isinstance(fault, Fault):
            raise _MemberFault(fault)
        return super()._one_step(result)


class _MemberFault(AgymError):
    """A step of a member returned a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind} in {fault.operation}: {fault.error}")
        self.fault = fault


class _AttemptError(Exception):
    """One attempt of a group failed, in the environment ``env_id`` if that is known."""

    def __init__(self, env_id: int | None, error: Exception) -> None:
        super().__init__(env_id, error)
        self.env_id = env_id
        self.error = error
