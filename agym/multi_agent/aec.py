"""Batches of environments whose agents take turns (PettingZoo's ``AECEnv``)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from agym import Pending, Snapshot
from agym.multi_agent.base import AgentEnvs, AsyncAgentEnvs, Seed, SyncAgentEnvs
from agym.multi_agent.results import AECBatch
from agym.multi_agent.spaces import take

if TYPE_CHECKING:
    from agym.multi_agent.handles import AECHandle

BatchT = TypeVar("BatchT")
ReceivedT = TypeVar("ReceivedT")


class _AEC(AgentEnvs, Generic[BatchT, ReceivedT]):
    """The methods of the sync and the async API."""

    def reset(
        self,
        seed: Seed = None,
        options: dict[str, Any] | None = None,
        *,
        env_ids: Sequence[int] | None = None,
    ) -> BatchT:
        """Reset all environments, or some of them; return those."""
        self.check_batches()
        result = self.runner.reset(seed, options, env_ids=env_ids)
        return self._then(result, partial(self._first, env_ids))  # type: ignore[no-any-return]

    def restore(self, snapshots: Snapshot | Sequence[Snapshot]) -> BatchT:
        """Continue all environments from snapshots; see :meth:`agym.Envs.restore`."""
        self.check_batches()
        result = self.runner.restore(snapshots)
        return self._then(result, partial(self._first, None))  # type: ignore[no-any-return]

    def _first(self, env_ids: Sequence[int] | None, result: Any) -> AECBatch:
        """Decode a result with the observations of all environments; return those asked for."""
        observations, infos = result
        ids, spaces = self._ids(env_ids), self.observation_spaces
        rows = {agent: take(spaces[agent], batch, ids) for agent, batch in observations.items()}
        none = np.zeros(len(ids), bool)
        return self._decoder.batch((ids, rows, none, none, none, [infos[i] for i in ids]))

    def step(self, actions: Any, *, env_ids: Sequence[int] | None = None) -> BatchT:
        """Take one turn in all environments, or some of them, and wait for all of these.

        Args:
            actions: An action for each agent that must act: ``[k, ...]``, or a list.
            env_ids: The environments, in ascending order, ``None`` for all.

        Raises:
            UsageError: Actions don't fit their space; nothing was sent.
            EnvError: An environment raised.
            WorkerDied: A worker died.
        """
        self.check_batches()
        ids = self._ids(env_ids)
        result = self.runner.step(self._action(actions, len(ids)), env_ids=env_ids)
        decode = self._decoder.batch
        return self._then(result, lambda step: decode((ids, *step)))  # type: ignore[no-any-return]

    def send(self, actions: Any, env_ids: Sequence[int] | None = None) -> None:
        """Start a turn in some environments; :meth:`recv` returns the results."""
        self.check_batches()
        self.runner.send(self._action(actions, len(self._ids(env_ids))), env_ids)

    def recv(
        self, min_envs: int = 1, max_envs: int | None = None, timeout: float | None = None
    ) -> ReceivedT:
        """Wait until some of the sent environments have finished; see :meth:`agym.Envs.recv`."""
        result = self.runner.recv(min_envs, max_envs, timeout)
        return self._then(result, self._decoder.batch)  # type: ignore[no-any-return]

    def _ids(self, env_ids: Sequence[int] | None) -> Any:
        return np.sort(np.asarray(range(self.num_envs) if env_ids is None else env_ids, np.int64))


class AECEnvs(SyncAgentEnvs, _AEC[AECBatch, AECBatch]):
    """A batch of environments whose agents take turns; made by :func:`agym.make_aec`.

    Example:
        >>> import agym, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> with agym.make_aec("classic/connect_four-v3", 8) as envs:
        ...     batch = envs.reset(seed=0)
        ...     for _ in range(10):
        ...         actions = [rng.choice(np.flatnonzero(row)) for row in batch.action_masks]
        ...         envs.send(actions, batch.env_ids)
        ...         batch = envs.recv(min_envs=8)
        >>> batch.observations["observation"].shape
        (8, 6, 7, 2)

    A step is the turn of one agent. Each batch tells who must act: ``batch.agents``. The turns of
    agents that died are passed here. ``envs[i]`` is one environment, as PettingZoo's ``AECEnv``.
    """

    def __getitem__(self, index: int) -> AECHandle:
        from agym.multi_agent.handles import AECHandle

        return AECHandle.of(self, index)

    def __iter__(self) -> Iterator[AECHandle]:
        return (self[i] for i in range(self.num_envs))


class AsyncAECEnvs(AsyncAgentEnvs, _AEC[Pending[AECBatch], Awaitable[AECBatch]]):
    """A batch of environments whose agents take turns, for async code; see :class:`AECEnvs`.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_aec_async("classic/tictactoe-v3", 4) as envs:
        ...         batch = await envs.reset(seed=0)
        ...         envs.send([0, 1, 2, 3], batch.env_ids)
        ...         batch = await envs.recv(min_envs=4)
        ...         return set(batch.agents)
        >>> agym.run(main())
        {'player_2'}
    """
