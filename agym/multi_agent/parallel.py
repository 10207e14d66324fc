"""Batches of environments whose agents act at the same time (PettingZoo's ``ParallelEnv``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agym import Pending, Snapshot, UsageError
from agym.multi_agent.base import AgentEnvs, AsyncAgentEnvs, Seed, SyncAgentEnvs
from agym.multi_agent.results import AgentReset, AgentStep
from agym.multi_agent.spaces import as_array, walk

if TYPE_CHECKING:
    from agym.multi_agent.flat import FlatEnvs
    from agym.multi_agent.flat_sb3 import FlatVecEnv
    from agym.multi_agent.handles import ParallelHandle

ResetT = TypeVar("ResetT")
StepT = TypeVar("StepT")


class _Parallel(AgentEnvs, Generic[ResetT, StepT]):
    """The methods of the sync and the async API."""

    def reset(
        self,
        seed: Seed = None,
        options: dict[str, Any] | None = None,
        *,
        env_ids: Sequence[int] | None = None,
    ) -> ResetT:
        """Reset all environments, or some of them; see :meth:`agym.Envs.reset`."""
        self.batches += 1
        result = self.runner.reset(seed, options, env_ids=env_ids)
        return self._then(result, self._decode("reset"))  # type: ignore[no-any-return]

    def step(self, actions: Any) -> StepT:
        """Step all environments.

        Args:
            actions: ``{agent: [n, ...]}``, or ``{group: [n, A, ...]}`` for ``agent_groups``. The
                rows of agents that are not live are ignored. For environments without
                ``possible_agents``, a list with a dict for each environment.

        Raises:
            UsageError: An agent is missing, or actions don't fit their space; nothing was sent.
            EnvError: An environment raised.
            WorkerDied: A worker died.
        """
        self.batches += 1
        result = self.runner.step(self._action(self._of_agents(actions), self.num_envs))
        return self._then(result, self._decode("step"))  # type: ignore[no-any-return]

    def restore(self, snapshots: Snapshot | Sequence[Snapshot]) -> ResetT:
        """Continue all environments from snapshots; see :meth:`agym.Envs.restore`."""
        self.batches += 1
        result = self.runner.restore(snapshots)
        return self._then(result, self._decode("reset"))  # type: ignore[no-any-return]

    def _decode(self, name: str) -> Any:
        lists = self.possible_agents is None
        return getattr(self._decoder, f"list_{name}" if lists else name)

    def _of_agents(self, actions: Any) -> Any:
        """Check that there are actions of all agents, or groups; return those of agents."""
        if self.possible_agents is None:
            return [*actions]
        if not isinstance(actions, Mapping):
            raise UsageError(
                f"actions must be a dict with a batch for each agent, not {type(actions).__name__}"
            )
        actions = self._ungrouped(actions)
        missing = [agent for agent in self.possible_agents if agent not in actions]
        unknown = [name for name in actions if name not in self.action_spaces]
        if missing or unknown:
            what = f"has no {missing[0]!r}" if missing else f"has an unknown key {unknown[0]!r}"
            raise UsageError(
                f"the dict of actions {what}: pass a batch for each of possible_agents, or for each"
                " of agent_groups; the rows of agents that are not live are ignored"
            )
        return actions

    def _ungrouped(self, actions: Mapping[Any, Any]) -> dict[Any, Any]:
        """Split actions ``[n, A, ...]`` of groups into those of agents."""
        split = {**actions}
        for name, agents in self.agent_groups.items():
            if name in actions and name not in self.action_spaces:
                batch = split.pop(name)
                for k, agent in enumerate(agents):
                    space = self.action_spaces[agent]
                    split[agent] = walk(space, lambda leaf, k=k: as_array(leaf)[:, k], batch)
        return split


class ParallelEnvs(SyncAgentEnvs, _Parallel[AgentReset, AgentStep]):
    """A batch of environments whose agents act together; made by :func:`agym.make_parallel`.

    Example:
        >>> import agym
        >>> with agym.make_parallel("mpe2/simple_spread_v3", 4) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     for _ in range(30):
        ...         result = envs.step(envs.sample_actions())
        >>> result.observations["agent_0"].shape, result.live["agent_0"].all()
        ((4, 18), np.True_)

    ``envs[i]`` is one environment, as PettingZoo's ``ParallelEnv``. :attr:`runner` is the
    :class:`agym.Envs` below, for snapshots, statistics and calls of methods.
    """

    def flat(self, autoreset: str | None = None) -> FlatEnvs:
        """Return a Gymnasium ``VectorEnv`` with a row per agent of each environment.

        Row ``i * A + k`` is agent ``k`` of environment ``i``. The agents must have equal spaces.
        The row of an absent agent is zero, has no reward, and is truncated when its environment
        ends.

        Args:
            autoreset: The mode that your code expects, which must be that of the environments.

        Raises:
            UsageError: The agents' spaces differ, or another mode is expected.
        """
        from agym.multi_agent.flat import FlatEnvs

        return FlatEnvs(self, autoreset)

    def flat_sb3(self, *, dead: str | None = None) -> FlatVecEnv:
        """Return a ``VecEnv`` of Stable-Baselines3 with a row per agent of each environment.

        Args:
            dead: SB3 learns from every row. An agent that dies before its episode ends is an error,
                unless you pass ``"zeros"``: then SB3 also learns from its rows of zeros.

        Raises:
            UsageError: The agents' spaces differ, or the environments weren't made with
                ``autoreset="same_step"``.
        """
        from agym.multi_agent.flat_sb3 import FlatVecEnv

        return FlatVecEnv(self, dead)

    def __getitem__(self, index: int) -> ParallelHandle:
        from agym.multi_agent.handles import ParallelHandle

        return ParallelHandle.of(self, index)

    def __iter__(self) -> Iterator[ParallelHandle]:
        return (self[i] for i in range(self.num_envs))


class AsyncParallelEnvs(AsyncAgentEnvs, _Parallel[Pending[AgentReset], Pending[AgentStep]]):
    """A batch of environments whose agents act together, for async code.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_parallel_async("mpe2/simple_spread_v3", 4) as envs:
        ...         observations, infos = await envs.reset(seed=0)
        ...         pending = envs.step(envs.sample_actions())  # dispatched; now compute something
        ...         result = await pending
        ...         return result.rewards["agent_0"].shape
        >>> agym.run(main())
        (4,)
    """
