"""What batches of many agents have in common: of both of PettingZoo's APIs, sync and async.

The methods stand once, in :class:`AgentEnvs` and its subclasses for each API. What they return is
decoded at once (sync), or when it is awaited (async).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Self

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import batch_space

from agym import AsyncEnvs, Envs, Pending, UsageError
from agym.multi_agent.host import ACTIONS, AS_IS
from agym.multi_agent.results import Decoder
from agym.multi_agent.spaces import AgentGroups, Agents

Seed = int | Sequence[int | None] | None


class AgentEnvs:
    """A batch of environments with many agents.

    Attributes:
        runner: The underlying :class:`agym.Envs` or :class:`agym.AsyncEnvs`, for all that is not
            about agents: ``runner.stats()``, ``runner.snapshot()``, ``runner.call(...)``.
        num_envs: Number of environments.
        possible_agents: All agents that may appear; ``None`` if the environment does not say.
        observation_spaces: The space of each agent.
        action_spaces: The space of each agent.
        agent_groups: Agents with equal spaces, by the name of the group.
    """

    runner: Any
    num_envs: int
    possible_agents: list[Any] | None
    observation_spaces: dict[Any, Space[Any]]
    action_spaces: dict[Any, Space[Any]]
    agent_groups: dict[str, list[Any]]

    def __init__(self, runner: Any, agent_groups: AgentGroups | None = None) -> None:
        self.runner, self.num_envs = runner, runner.num_envs
        self._given_groups = agent_groups
        self._handles: dict[int, Any] = {}
        self._batch_spaces: dict[Any, Space[Any]] = {}
        self.batches = 0  # operations on the batch, after which handles look at their environment

    def _describe(self) -> None:
        """Set the attributes that describe the environments, once these are made."""
        self.possible_agents = names = self.runner.metadata["possible_agents"]
        spaces = self.runner.single_observation_space.spaces if names else {}
        actions = self.runner.metadata["action_spaces"]
        self._agents = Agents(names or (), spaces, actions, self._given_groups)
        self.observation_spaces = self._agents.observation_spaces
        self.action_spaces = self._agents.action_spaces
        self.agent_groups = self._agents.groups
        self._decoder = Decoder(self._agents, self.num_envs)

    def _then(self, result: Any, decode: Callable[[Any], Any]) -> Any:
        """Decode a result of the runner, now or when it is awaited."""
        raise NotImplementedError

    def _action(self, actions: Any, count: int) -> dict[str, Any]:
        """Return actions of a number of environments in the form of the hosts."""
        return {ACTIONS: actions, AS_IS: np.zeros(count, np.int64)}

    def check_batches(self) -> None:
        """Refuse batches of agents that have no fixed place in them."""
        self.batches += 1
        if self.possible_agents is None:
            raise UsageError(
                "the environments have no possible_agents, so their agents have no place in a"
                " batch: play the environments one by one, as envs[i]"
            )

    def sample_actions(self) -> dict[Any, Any]:
        """Return random actions ``{agent: [n, ...]}``, also illegal ones.

        Seed ``action_spaces`` before the first call to repeat them.
        """
        if not self._batch_spaces:  # each gets a copy of the generator of its space
            spaces = self.action_spaces.items()
            self._batch_spaces = {a: batch_space(space, self.num_envs) for a, space in spaces}
        return {agent: space.sample() for agent, space in self._batch_spaces.items()}

    def state(self) -> Any:
        """Return the global state of each environment, ``[n, *shape]``.

        Raises:
            EnvError: The environments have no state.
        """
        return self._then(self.runner.call("state"), np.stack)

    def render(self) -> Any:
        """Render the environments; see :meth:`agym.Envs.render`."""
        return self.runner.render()

    def __len__(self) -> int:
        return self.num_envs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({repr(self.runner).partition('(')[2]}"


class SyncAgentEnvs(AgentEnvs):
    """Of :func:`agym.make_parallel` and :func:`agym.make_aec`."""

    def __init__(self, runner: Envs, agent_groups: AgentGroups | None = None) -> None:
        super().__init__(runner, agent_groups)
        try:
            self._describe()
        except BaseException:
            runner.close()
            raise

    def _then(self, result: Any, decode: Callable[[Any], Any]) -> Any:
        return decode(result)

    def close(self) -> None:
        """Close the environments, and stop all workers. Idempotent."""
        self.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.runner.__exit__(*error)


class AsyncAgentEnvs(AgentEnvs):
    """Of :func:`agym.make_parallel_async` and :func:`agym.make_aec_async`."""

    runner: AsyncEnvs

    def _then(self, result: Any, decode: Callable[[Any], Any]) -> Any:
        return result.map(decode) if isinstance(result, Pending) else _decoded(result, decode)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self.runner
        try:
            self._describe()
        except BaseException:
            await self.runner.aclose()
            raise
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.runner.__aexit__(*error)

    async def aclose(self) -> None:
        """Close the environments, and stop all workers. Idempotent."""
        await self.runner.aclose()


async def _decoded(result: Any, decode: Callable[[Any], Any]) -> Any:
    return decode(await result)
