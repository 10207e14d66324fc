"""Groups: rollouts of one task that succeed or fail as one, for comparisons of their returns."""

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
    """Divide environments into groups of ``n``, which play one task at a time.

    Example:
        >>> import agym, asyncio
        >>> async def episode(env, observation, info):  # of one member; returns what you compare
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

    Neighbours make a group, so that they share as few workers as possible, and a worker that dies
    takes as few groups with it as possible.

    Args:
        envs: Open environments of :func:`agym.make_async`, with one observation per environment.
        n: The size of a group.
        env_ids: The environments, by default all.

    Returns:
        The groups, in the order of the environments.

    Raises:
        UsageError: The environments do not divide into groups of ``n``.
    """
    if isinstance(envs, Envs) or not isinstance(envs, AsyncEnvs):
        raise UsageTypeError(
            f"a group needs environments of agym.make_async, not {type(envs).__name__}: its members"
            " play at the same time, each in a coroutine"
        )
    n = check_count("n", n)
    parse_env_ids(env_ids, envs.num_envs)
    ids = [*range(envs.num_envs)] if env_ids is None else [*env_ids]
    if len(ids) % n:
        raise UsageError(
            f"{len(ids)} environments do not divide into groups of {n}: choose another n, or give"
            " env_ids="
        )
    return [Group(envs, k, ids[k * n : k * n + n]) for k in range(len(ids) // n)]


class Group:
    """Environments that play one task, all from the same start; made by :func:`agym.group`.

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
        index: Its place among the groups that were made together.
        env_ids: Its environments.
        attempts: How often the latest play began.
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
        """Reset all members alike, and run an episode in each at the same time.

        If a member fails, the others are cancelled at once, and the whole group begins again. A
        member fails if its environment raises, loses its worker or misses a deadline, under any
        ``on_fault``, or if its ``episode`` raises. A play that fails or is cancelled leaves the
        members ready for the next one: a step under way goes on, its result is dropped, and the
        next reset follows it.

        Args:
            episode: ``async def episode(env, observation, info)``. ``env`` is a handle of one
                member; the others are what its reset gave.
            seed: The seed of every member. ``None`` draws one, so that all begin alike.
            options: The options of every member's reset.
            retry: How often the group begins again after a failure.

        Returns:
            What the episodes returned, in the order of :attr:`env_ids`.

        Raises:
            UsageError: An argument is invalid.
            GroupError: The group failed ``retry + 1`` times; its cause is the last failure.
            BusyError: The group is playing.
            ClosedError: The environments are closed.
        """
        retry = check_count("retry", retry, least=0)
        _check_episode(episode)
        if self._playing:
            raise BusyError(f"{self!r} is playing: await that before the next play", "play")
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
            ids, lost = self._envs.env_ids, self._envs.tap.lost
            if members := [i for i in self.env_ids if ids[i] in lost]:
                await self._envs.restart(members)  # on_fault="raise", or too many faults
            # A step that the latest play left is still under way, and this follows it.
            resets = [member.reset(seed=seed, options=options) for member in self._members]
            begun = [await reset for reset in resets]
        except UsageError:
            raise  # of the seed or the options: another attempt would be no better
        except AgymError as error:
            raise _AttemptError(None, error) from None
        first: list[_AttemptError | UsageTypeError] = []

        async def play(member: Member, beginning: tuple[Any, dict[str, Any]]) -> T:
            try:
                return await _start(episode, member, *beginning)
            except _NoCoroutineError as error:
                first.append(UsageTypeError(str(error)))
                raise
            except Exception as error:
                first.append(_AttemptError(member.index, error))
                raise

        try:
            async with asyncio.TaskGroup() as tasks:
                plays = [*zip(self._members, begun, strict=True)]
                running = [tasks.create_task(play(*each)) for each in plays]
        except ExceptionGroup:
            raise first[0] from None
        return [task.result() for task in running]

    def _error(
        self, failed: _AttemptError, seed: int, options: dict[str, Any] | None
    ) -> GroupError:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        task = f"seed={seed}" + ("" if options is None else f", options={options!r}")
        where = "" if failed.env_id is None else f"; {name_envs([failed.env_id])}"
        error = GroupError(
            f"group {self.index} ({name_envs(self.env_ids)}) failed {times} at the task {task}"
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


class _NoCoroutineError(Exception):
    """An ``episode`` is a plain function."""


def _check_episode(episode: Any) -> None:
    """Check what can be known before the resets.

    Raises:
        UsageTypeError: It is not callable, or takes other arguments.
    """
    wanted = f"episode={episode!r} must be an `async def episode(env, observation, info)`"
    if not callable(episode):
        raise UsageTypeError(wanted)
    try:
        signature = inspect.signature(episode)
    except (TypeError, ValueError):  # of some builtins
        return
    try:
        signature.bind(None, None, None)
    except TypeError as error:
        raise UsageTypeError(f"{wanted}, which is called with these three: {error}") from None


def _start(
    episode: Episode[T], member: Member, observation: Any, info: dict[str, Any]
) -> Coroutine[Any, Any, T]:
    """Call ``episode``, which may be a plain function that returns a coroutine.

    Raises:
        _NoCoroutineError: It returned something else, or stumbled over a step not awaited.
    """
    told = f"episode={episode!r} must be an `async def`, which awaits each `env.step`"
    try:
        playing = episode(member, observation, info)
    except TypeError as error:
        raise _NoCoroutineError(f"{told}: {error}") from None
    if not inspect.isawaitable(playing):
        raise _NoCoroutineError(f"{told}: it returned {type(playing).__name__}, not a coroutine")
    return playing


class Member(AsyncEnvHandle):
    """The handle of a group's member: a fault that agym has handled ends its episode."""

    def _one_step(self, result: StepResult) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        fault = result.infos[0].get("fault")
        if isinstance(fault, Fault):
            raise _MemberFault(fault)
        return super()._one_step(result)


class _MemberFault(AgymError):
    """A step of a member came back with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind} in {fault.operation}: {fault.error}")
        self.fault = fault


class _AttemptError(Exception):
    """One attempt of a group failed, in the environment that is given if it is known."""

    def __init__(self, env_id: int | None, error: Exception) -> None:
        super().__init__(env_id, error)
        self.env_id = env_id
        self.error = error
