"""Rollouts: stacked transitions, collected while the policy acts for some and others step.

A plain policy acts for one group after the other::

    group 0   policy | step ............ | policy | step ............
    group 1            policy | step ............ | policy | step ...

A batched policy acts for whichever environments wait, each played by a coroutine of its own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, overload

import numpy as np
from gymnasium.vector import AutoresetMode
from typing_extensions import TypeVar

from agym import AsyncEnvs, Envs
from agym.errors import Fault, UsageError, UsageTypeError
from agym.protocol.space_layout import Layout
from agym.protocol.typing import Array, Observations
from agym.tools.rollouts.batched import BatchedPolicy

# Covariant, because a rollout gives actions; hence not the type variable of ``Envs``.
ActionsTaken = TypeVar("ActionsTaken", covariant=True, default=Any)

Policy = Callable[[Observations], ActionsTaken | Awaitable[ActionsTaken]]


class Rollout(NamedTuple, Generic[Observations, ActionsTaken]):
    """``T`` steps of ``N`` environments.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 4, output="array") as envs:
        ...         policy = lambda observations: [0] * len(observations)
        ...         async for rollout in agym.rollout(envs, policy, 16):
        ...             return rollout
        >>> rollout = agym.run(main())
        >>> rollout.observations.shape, rollout.rewards.shape, rollout.last_observations.shape
        ((16, 4, 4), (16, 4), (4, 4))

    Attributes:
        observations: The policy's input: ``(T, N, *shape)`` in the space's dtype, nested as the
            space is nested; lists of lists where it has no fixed size.
        actions: The policy's output, likewise.
        rewards: ``float64[T, N]``.
        terminated: ``bool[T, N]``.
        truncated: ``bool[T, N]``.
        valid: ``bool[T, N]``; false for steps that only reset a finished environment (next-step
            autoreset), which ignore the action; for the row of a fault; and for the whole part of
            an episode in this rollout that is tried again (``FaultPolicy(retry=)``).
        last_observations: The observations after the last step: ``(N, *shape)``.
        episode_returns: ``float64[k]``, returns of the episodes that ended in this rollout, in the
            order in which they ended, without those that a fault has cut off.
        episode_lengths: ``int64[k]``, their lengths in steps.
    """

    observations: Observations
    actions: ActionsTaken
    rewards: Array
    terminated: Array
    truncated: Array
    valid: Array
    last_observations: Observations
    episode_returns: Array
    episode_lengths: Array


# This overload comes first, or a checker may take the coroutine itself for the actions.
@overload
def rollout(
    envs: AsyncEnvs[Observations, ActionsTaken],
    policy: Callable[[Observations], Awaitable[ActionsTaken]],
    steps: int,
    *,
    groups: int = 2,
    seed: int | None = None,
) -> AsyncIterator[Rollout[Observations, ActionsTaken]]: ...
@overload
def rollout(
    envs: AsyncEnvs[Observations, ActionsTaken],
    policy: Policy[Observations, ActionsTaken],
    steps: int,
    *,
    groups: int = 2,
    seed: int | None = None,
) -> AsyncIterator[Rollout[Observations, ActionsTaken]]: ...
async def rollout(
    envs: AsyncEnvs[Observations, ActionsTaken],
    policy: Policy[Observations, ActionsTaken],
    steps: int,
    *,
    groups: int = 2,
    seed: int | None = None,
) -> AsyncIterator[Rollout[Observations, ActionsTaken]]:
    """Reset the environments, then step them and yield one rollout after the other.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 4, output="array") as envs:
        ...         policy = lambda observations: [0] * len(observations)  # of a group
        ...         async for rollout in agym.rollout(envs, policy, 16, groups=2):
        ...             return rollout.rewards.sum()
        >>> float(agym.run(main())) > 0
        True

    Args:
        envs: Open environments with ``output="array"``.
        policy: A function or coroutine function from a batch of observations of some environments
            to their actions; or an :func:`agym.batched` policy, which each environment asks by
            itself, so that none waits for a slow one.
        steps: Length ``T`` of a rollout.
        groups: Number of groups that the environments are split into; 1 for no pipelining. A
            batched policy makes its own batches.
        seed: For the reset: environment ``i`` gets ``seed + i``.

    Yields:
        Rollouts without end; leave the loop when you have enough.

    Raises:
        UsageError: An argument is invalid, or the autoreset mode is ``disabled``.
    """
    if not isinstance(steps, int) or steps < 1:
        raise UsageError(f"steps={steps!r} must be a positive integer")
    if isinstance(envs, Envs) or not hasattr(envs, "split"):
        raise UsageTypeError(
            f"a rollout needs environments of agym.make_async, not {type(envs).__name__}"
        )
    if envs.tap.autoreset == "disabled" or envs.output != "array":
        raise UsageError("a rollout needs output='array' and autoreset='next_step' or 'same_step'")
    alone = isinstance(policy, BatchedPolicy)
    groups = envs.num_envs if alone else min(groups, envs.num_envs)
    parts = [_Part(envs, group) for group in envs.split(groups)]
    # What is played by one coroutine.
    lanes = [[part] for part in parts] if alone else [parts]
    act = _one_by_one(envs, policy) if isinstance(policy, BatchedPolicy) else policy
    for part in parts:
        await part.reset(seed)
    while True:
        record = _Record(envs, steps)
        await _all([_play(lane, act, record, steps) for lane in lanes])
        yield record.result([part.observations for part in parts], [part.ids for part in parts])


async def _play(parts: Sequence[_Part], policy: Any, record: _Record, steps: int) -> None:
    """Step the parts in turns."""
    for t in range(steps):
        for part in parts:
            await part.finish(record)
            await part.act(policy, record, t)
    for part in parts:
        await part.finish(record)


async def _all(plays: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all at once; the first error cancels the others, and is raised."""
    if len(plays) == 1:
        await plays[0]
        return
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play) for play in plays]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    for task in tasks:
        task.result()  # a group takes a cancelled task for one that has ended


def _one_by_one(envs: AsyncEnvs, policy: BatchedPolicy) -> Callable[[Any], Awaitable[Any]]:
    """Ask for the action of the one environment of a part."""
    space, actions = Layout(envs.single_observation_space), Layout(envs.single_action_space)

    async def act(observations: Any) -> Any:
        leaves = [leaf[0] for leaf in space.flatten(observations)]
        action = await policy(space.unflatten(leaves))
        return actions.unflatten([[leaf] for leaf in actions.flatten(action)])

    return act


class _Part:
    """A group with its latest observations and its current episodes."""

    def __init__(self, envs: AsyncEnvs, group: AsyncEnvs) -> None:
        self.ids = group.env_ids
        self.observations: Any = None
        self._group = group
        self._skips = envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        self._pending: Any = None
        self._t = 0
        self._over = np.zeros(len(self.ids), bool)
        self._returns = np.zeros(len(self.ids))
        self._lengths = np.zeros(len(self.ids), np.int64)

    async def reset(self, seed: int | None) -> None:
        self.observations, _ = await self._group.reset(seed=seed)

    async def act(self, policy: Policy[Any, Any], record: _Record, t: int) -> None:
        """Dispatch the group's next step."""
        actions = policy(self.observations)
        if inspect.isawaitable(actions):
            actions = await actions
        self._t, self._pending = t, self._group.step(actions)
        record.observations.write(t, self.ids, self.observations)
        record.actions.write(t, self.ids, actions)

    async def finish(self, record: _Record) -> None:
        """Await the group's step, and record its result."""
        if self._pending is None:
            return
        self.observations, rewards, terminated, truncated, infos = await self._pending
        self._pending = None
        t, ids = self._t, self.ids
        valid = ~self._over
        record.rewards[t, ids] = rewards
        record.terminated[t, ids] = terminated
        record.truncated[t, ids] = truncated
        record.valid[t, ids] = valid
        self._returns += rewards
        self._lengths += valid
        done = terminated | truncated
        ended = done.copy()
        for k, info in enumerate(infos):
            if "fault" in info:
                ended[k] = False
                self._drop_failed(record, k, info["fault"])
        record.episodes += [
            (t, self._returns[k], self._lengths[k]) for k in np.flatnonzero(ended).tolist()
        ]
        self._returns[done] = 0.0
        self._lengths[done] = 0
        self._over = done & self._skips

    def _drop_failed(self, record: _Record, k: int, fault: Fault) -> None:
        """Mark the row of a fault invalid, and with it the steps that are tried again."""
        steps = int(self._lengths[k]) if fault.retry else 1
        first = max(0, self._t + 1 - max(1, steps))
        record.valid[first : self._t + 1, self.ids[k]] = False


class _Record:
    """A rollout under construction."""

    def __init__(self, envs: AsyncEnvs, steps: int) -> None:
        shape = (steps, envs.num_envs)
        self.observations = _Stack(Layout(envs.single_observation_space), *shape)
        self.actions = _Stack(Layout(envs.single_action_space), *shape)
        self.rewards = np.zeros(shape)
        self.terminated, self.truncated, self.valid = (np.zeros(shape, bool) for _ in range(3))
        self.episodes: list[tuple[int, float, int]] = []

    def result(self, last: list[Any], ids: list[Sequence[int]]) -> Rollout:
        final = _Stack(self.observations.layout, 1, self.rewards.shape[1])
        for part, observations in zip(ids, last, strict=True):
            final.write(0, part, observations)
        episodes = sorted(self.episodes, key=lambda episode: episode[0])
        return Rollout(
            self.observations.nested(),
            self.actions.nested(),
            self.rewards,
            self.terminated,
            self.truncated,
            self.valid,
            final.nested(0),
            np.array([total for _, total, _ in episodes], np.float64),
            np.array([length for _, _, length in episodes], np.int64),
        )


class _Stack:
    """Stacked batches of one space: an array per leaf, or lists if it has no fixed size."""

    def __init__(self, layout: Layout, steps: int, num_envs: int) -> None:
        self.layout = layout
        self._leaves: list[Any] = [
            [[None] * num_envs for _ in range(steps)]
            if leaf.dtype is None
            else np.zeros((steps, num_envs, *leaf.shape), leaf.dtype)
            for leaf in layout.leaves
        ]

    def write(self, t: int, ids: Sequence[int], batch: Any) -> None:
        for stack, values in zip(self._leaves, self.layout.flatten(batch), strict=True):
            if isinstance(stack, np.ndarray):
                stack[t, ids] = values
            else:
                for i, value in zip(ids, values, strict=True):
                    stack[t][i] = value

    def nested(self, t: int | None = None) -> Any:
        return self.layout.unflatten([s if t is None else s[t] for s in self._leaves])
