"""Rollouts: stacked transitions. The policy acts for some environments while others step.

A plain policy acts for one group after the other, here for two::

    group 0   policy | step ............ | policy | step ............
    group 1            policy | step ............ | policy | step ...

A batched policy acts for all environments that are waiting; a coroutine plays each environment.
All coroutines run on one event loop, and write to different columns of the rollout.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from itertools import compress
from statistics import median
from typing import Any, Generic, Literal, NamedTuple, overload

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from typing_extensions import TypeVar

from agym import AsyncEnvs, Envs
from agym.core.protocol.arguments import check_count, is_integer
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.typing import Observations
from agym.errors import Fault, UsageError, UsageTypeError
from agym.rollouts.batched import BatchedPolicy

# Covariant, because a rollout only returns actions. The type variable of ``Envs`` is not.
ActionsTaken = TypeVar("ActionsTaken", covariant=True, default=Any)

Policy = Callable[[Observations], ActionsTaken | Awaitable[ActionsTaken]]
Groups = int | Literal["auto"]

# The numbers of groups that ``groups="auto"`` tries, in this order; the medians are compared. Two
# groups must be clearly faster, because the policy then gets batches of half the size.
TRIAL_GROUPS = (1, 2, 2, 1, 1, 2)
MIN_SPEEDUP_OF_TWO = 1.05

LOG = logging.getLogger("agym")


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
            space is nested; lists of lists for values without a fixed size.
        actions: The policy's output, in the same form.
        rewards: ``float64[T, N]``.
        terminated: ``bool[T, N]``.
        truncated: ``bool[T, N]``.
        valid: ``bool[T, N]``; false for rows that are not transitions: steps that only reset a
            finished environment (next-step autoreset), steps with a fault, and all steps of an
            episode that is tried again after a fault (``FaultPolicy(retry=)``).
        last_observations: The observations after the last step: ``(N, *shape)``.
        episode_returns: ``float64[k]``, returns of the episodes that ended in this rollout, in the
            order in which they ended, without episodes that a fault interrupted.
        episode_lengths: ``int64[k]``, their lengths in steps.
        groups: Number of groups that took turns with the policy.
    """

    observations: Observations
    actions: ActionsTaken
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    last_observations: Observations
    episode_returns: NDArray[np.float64]
    episode_lengths: NDArray[np.int64]
    groups: int


# This overload comes first, or a type checker may treat the coroutine itself as the actions.
@overload
def rollout(
    envs: AsyncEnvs[Observations, ActionsTaken],
    policy: Callable[[Observations], Awaitable[ActionsTaken]],
    steps: int,
    *,
    groups: Groups = 1,
    seed: int | None = None,
) -> AsyncIterator[Rollout[Observations, ActionsTaken]]: ...
@overload
def rollout(
    envs: AsyncEnvs[Observations, ActionsTaken],
    policy: Policy[Observations, ActionsTaken],
    steps: int,
    *,
    groups: Groups = 1,
    seed: int | None = None,
) -> AsyncIterator[Rollout[Observations, ActionsTaken]]: ...
async def rollout(
    envs: AsyncEnvs[Observations, ActionsTaken],
    policy: Policy[Observations, ActionsTaken],
    steps: int,
    *,
    groups: Groups = 1,
    seed: int | None = None,
) -> AsyncIterator[Rollout[Observations, ActionsTaken]]:
    """Step environments with a policy, and yield the transitions of every ``steps`` steps.

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
        policy: A function or coroutine function that maps a batch of observations of some
            environments to their actions; or an :func:`agym.batched` policy, which is called for
            each environment separately, so that none waits for a slow one.
        steps: Length ``T`` of a rollout.
        groups: Number of groups that take turns with the policy: it acts for one group while the
            others step. Use 2 if the policy computes elsewhere, for example on a GPU, and 1 if it
            needs the cores that the environments use. ``"auto"`` tries both in the first six
            rollouts, and keeps 2 if that is more than 5 % faster. From the seventh rollout on,
            ``Rollout.groups`` is the chosen number; pass it to make a run repeatable. It is
            ignored for an :func:`agym.batched` policy, which makes its own batches.
        seed: For the first reset: environment ``i`` gets ``seed + i``.

    Yields:
        Rollouts without end; leave the loop when you have enough.

    Raises:
        UsageError: An argument is invalid, or the autoreset mode is ``disabled``.
    """
    steps = check_count("steps", steps)
    if groups != "auto" and not (is_integer(groups) and groups >= 1):
        raise UsageError(f"groups={groups!r} must be a positive integer or 'auto'")
    if isinstance(envs, Envs) or not hasattr(envs, "split"):
        raise UsageTypeError(
            f"a rollout needs environments made by agym.make_async, not {type(envs).__name__}"
        )
    if envs.tap.autoreset == "disabled" or envs.output != "array":
        raise UsageError("a rollout needs output='array' and autoreset='next_step' or 'same_step'")
    if groups == "auto" and envs.backend in ("serial", "vector"):
        groups = 1  # serial steps block the policy, and a VectorEnv cannot be split
    separately = isinstance(policy, BatchedPolicy)
    act = _one_by_one(envs, policy) if isinstance(policy, BatchedPolicy) else policy
    numbers = group_counts(envs.num_envs if separately else groups, envs.num_envs)
    episodes, parts = _Episodes(envs), list[_Part]()
    number = next(numbers)
    while True:
        if number != len(parts):
            latest = episodes.latest(parts) if parts else None
            parts = [_Part(episodes, group) for group in envs.split(number)]
            for part in parts:
                await part.start(seed, latest)
        # Each lane is played by one coroutine.
        lanes = [[part] for part in parts] if separately else [parts]
        record, started = _Record(envs, steps), time.perf_counter()
        await _all([_play(lane, act, record, steps) for lane in lanes])
        seconds = time.perf_counter() - started
        yield record.result(episodes.latest(parts), number)
        number = numbers.send(seconds)


def group_counts(groups: Groups, num_envs: int) -> Generator[int, float | None, None]:
    """Yield the number of groups of each rollout; send it the seconds that the rollout took."""
    if groups == "auto" and num_envs > 1:
        times: dict[int, list[float]] = {}
        for number in TRIAL_GROUPS:
            seconds = yield number
            assert seconds is not None
            times.setdefault(number, []).append(seconds)
        with_one, with_two = (median(times[number]) for number in (1, 2))
        groups = 2 if with_one > MIN_SPEEDUP_OF_TWO * with_two else 1
        LOG.info(
            "a rollout takes %.3g s with one group and %.3g s with two, so groups=%d from now on;"
            " pass groups=%d to skip the trial", with_one, with_two, groups, groups,
        )  # fmt: skip
    number = 1 if groups == "auto" else min(groups, num_envs)
    while True:
        yield number


async def _play(parts: Sequence[_Part], policy: Any, record: _Record, steps: int) -> None:
    """Step the parts in turns.

    While the policy acts for one part, the steps of the other parts are under way.
    """
    for t in range(steps):
        for part in parts:
            await part.finish(record)
            await part.act(policy, record, t)
    for part in parts:
        await part.finish(record)


async def _all(plays: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines concurrently; the first error cancels the others, and is raised."""
    if len(plays) == 1:
        await plays[0]
        return
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play) for play in plays]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    for task in tasks:
        task.result()  # raises if the task was cancelled, which a TaskGroup ignores


def _one_by_one(envs: AsyncEnvs, policy: BatchedPolicy) -> Callable[[Any], Awaitable[Any]]:
    """Return a policy for parts of one environment, which calls the batched policy."""
    space, actions = Layout(envs.single_observation_space), Layout(envs.single_action_space)

    async def act(observations: Any) -> Any:
        leaves = [leaf[0] for leaf in space.flatten(observations)]
        action = await policy(space.unflatten(leaves))
        return actions.unflatten([[leaf] for leaf in actions.flatten(action)])

    return act


class _Episodes:
    """The current episodes of all environments.

    Attributes:
        over: Whether the episode has ended, and the next step only resets the environment.
        returns: The returns so far.
        lengths: The lengths so far.
        skips: Whether the step after an episode's end only resets the environment.
    """

    def __init__(self, envs: AsyncEnvs) -> None:
        self.over = np.zeros(envs.num_envs, bool)
        self.returns = np.zeros(envs.num_envs)
        self.lengths = np.zeros(envs.num_envs, np.int64)
        self.skips = envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        self._layout = Layout(envs.single_observation_space)

    def latest(self, parts: Sequence[_Part]) -> _Stack:
        """Return the latest observations of all parts as one row."""
        row = _Stack(self._layout, 1, len(self.over))
        for part in parts:
            row.write(0, part.ids, part.observations)
        return row


class _Part:
    """A group with its latest observations."""

    def __init__(self, episodes: _Episodes, group: AsyncEnvs) -> None:
        self.ids = group.env_ids
        self.observations: Any = None
        self._episodes = episodes
        self._group = group
        self._pending: Any = None
        self._t = 0

    async def start(self, seed: int | None, latest: _Stack | None) -> None:
        """Continue from the latest observations of all environments; without them, reset."""
        if latest is None:
            self.observations, _ = await self._group.reset(seed=seed)
        else:
            self.observations = latest.nested(0, self.ids)

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
        t, ids, episodes = self._t, self.ids, self._episodes
        valid = ~episodes.over[ids]
        record.rewards[t, ids] = rewards
        record.terminated[t, ids] = terminated
        record.truncated[t, ids] = truncated
        record.valid[t, ids] = valid
        episodes.returns[ids] += rewards
        episodes.lengths[ids] += valid
        done = terminated | truncated
        ended = done.copy()
        for k, info in enumerate(infos):
            if "fault" in info:
                ended[k] = False
                self._drop_failed(record, k, info["fault"])
        for i in compress(ids, ended):
            record.episodes.append((t, episodes.returns[i], episodes.lengths[i]))
        for i in compress(ids, done):
            episodes.returns[i], episodes.lengths[i] = 0.0, 0
        episodes.over[ids] = done & episodes.skips

    def _drop_failed(self, record: _Record, k: int, fault: Fault) -> None:
        """Mark the row of a fault invalid; in an episode that is tried again, all of its rows."""
        steps = int(self._episodes.lengths[self.ids[k]]) if fault.retry else 1
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

    def result(self, last: _Stack, groups: int) -> Rollout:
        episodes = sorted(self.episodes, key=lambda episode: episode[0])
        return Rollout(
            self.observations.nested(),
            self.actions.nested(),
            self.rewards,
            self.terminated,
            self.truncated,
            self.valid,
            last.nested(0),
            np.array([total for _, total, _ in episodes], np.float64),
            np.array([length for _, _, length in episodes], np.int64),
            groups,
        )


class _Stack:
    """Stacked batches of one space: an array per leaf, or lists for values without a fixed size."""

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

    def nested(self, t: int | None = None, ids: Sequence[int] | None = None) -> Any:
        """Return all rows, or row ``t`` of all or some environments, nested as the space is."""
        leaves = self._leaves if t is None else [leaf[t] for leaf in self._leaves]
        if ids is not None:
            leaves = [
                leaf[ids] if isinstance(leaf, np.ndarray) else tuple(leaf[i] for i in ids)
                for leaf in leaves
            ]
        return self.layout.unflatten(leaves)
