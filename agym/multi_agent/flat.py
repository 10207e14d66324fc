"""A batch of environments with many agents as a Gymnasium ``VectorEnv``, with a row per agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from agym import UsageError
from agym.multi_agent.spaces import stack, take, walk

Infos = dict[str, Any]


class FlatStep(NamedTuple):
    """A step, with a row per agent of each environment.

    Attributes:
        observations: ``[rows, *shape]``, zeros for absent agents.
        rewards: ``float64[rows]``.
        terminated: ``bool[rows]``.
        truncated: ``bool[rows]``; an absent agent is truncated when its environment ends.
        infos: A dict per row.
        live: The row must act next.
        valid: The row took part in this step.
        over: The row's environment ended.
        final_obs: By row, the last observation of agents that ended.
        final_infos: A dict per row.
    """

    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    infos: list[Infos]
    live: Any
    valid: Any
    over: Any
    final_obs: dict[int, Any]
    final_infos: list[Infos]


class FlatRows:
    """Rows of (environment, agent): row ``i * width + k`` is agent ``k`` of environment ``i``."""

    def __init__(self, envs: Any) -> None:
        envs.check_batches()
        agents = envs._agents
        first, *others = agents.names
        for agent in others:
            if not agents.equal(agent, first):
                raise UsageError(
                    f"a flat view needs agents with equal spaces, but those of {agent!r} and"
                    f" {first!r} differ: train each of agent_groups by itself"
                )
        self.envs, self.agents, self.width = envs, agents.names, len(agents.names)
        self.mode = envs.runner.metadata["autoreset_mode"].name.lower()
        self.count = envs.num_envs * self.width
        self.observation_space = agents.observation_spaces[first]
        self.action_space = agents.action_spaces[first]

    def reset(self, seed: Any, options: Any) -> tuple[Any, Any, list[Infos]]:
        """Reset all environments; return observations, the mask of live agents, and infos."""
        result = self.envs.reset(seed, options)
        live = self._column(result.live)
        return self._batch(result.observations, live), live, self._infos(result.infos)

    def step(self, actions: Any) -> FlatStep:
        """Step all environments."""
        width, space = self.width, self.action_space
        step = self.envs.step({
            agent: walk(space, lambda leaf, k=k: np.asarray(leaf)[k::width], actions)
            for k, agent in enumerate(self.agents)
        })  # fmt: skip
        live, valid = self._column(step.live), self._column(step.valid)
        over = np.repeat(step.over, width)
        terminated, truncated = self._column(step.terminated), self._column(step.truncated)
        truncated |= over & ~terminated  # also of agents that are absent
        final, ended = {}, np.flatnonzero(terminated | truncated)
        if len(ended):
            last = self._batch(step.final_obs, valid)
            final = {int(row): take(self.observation_space, last, row) for row in ended}
        # Unless it was reset, the row of an agent that ended shows its last observation.
        shown = live if self.mode == "same_step" else live | valid
        return FlatStep(
            self._batch(step.observations, shown), self._column(step.rewards),
            terminated, truncated, self._infos(step.infos), live, valid, over, final,
            self._infos(step.final_infos),
        )  # fmt: skip

    def _batch(self, batches: Any, present: Any) -> Any:
        """Return the observations of all rows, zeros for those of absent agents."""

        def flatten(leaf: Any) -> Any:
            leaf = leaf.reshape(self.count, *leaf.shape[2:])
            if not present.all():
                leaf[~present] = None if leaf.dtype.hasobject else 0
            return leaf

        stacked = stack(self.observation_space, [batches[agent] for agent in self.agents])
        return walk(self.observation_space, flatten, stacked)

    def _column(self, columns: Any) -> Any:
        return np.stack([columns[agent] for agent in self.agents], axis=1).reshape(-1)

    def _infos(self, infos: Sequence[Any]) -> list[Infos]:
        return [{**info.get(agent, {})} for info in infos for agent in self.agents]


class FlatEnvs(VectorEnv[Any, Any, Any]):
    """A Gymnasium ``VectorEnv`` over agents; made by :meth:`agym.ParallelEnvs.flat`.

    Example:
        >>> import agym
        >>> with agym.make_parallel("mpe2/simple_spread_v3", 4) as envs:
        ...     flat = envs.flat()
        ...     observations, infos = flat.reset(seed=0)
        ...     observations, rewards, *_ = flat.step(flat.action_space.sample())
        >>> observations.shape, rewards.shape
        ((12, 18), (12,))

    A whole environment resets at once, when no agent is left. ``infos["live"]`` tells which rows
    must act, and ``infos["valid"]`` (of a step) which took part; an agent that dies earlier has
    rows of zeros until then.

    Attributes:
        envs: The environments below.
        runner: The :class:`agym.Envs` below these.
    """

    def __init__(self, envs: Any, autoreset: str | None = None) -> None:
        self._rows = rows = FlatRows(envs)
        self.envs, self.runner, self.num_envs = envs, envs.runner, rows.count
        self.metadata, self.render_mode = envs.runner.metadata, envs.runner.render_mode
        mode = getattr(autoreset, "name", autoreset)
        wanted = rows.mode if mode is None else str(mode).lower()
        if rows.mode == "disabled" or rows.mode != wanted:
            wanted = wanted if wanted == "next_step" else "same_step"
            raise UsageError(
                f"the environments were made with autoreset={rows.mode!r}: pass"
                f" autoreset={wanted!r} to agym.make_parallel"
            )
        self.single_observation_space = rows.observation_space
        self.single_action_space = rows.action_space
        self.observation_space = batch_space(rows.observation_space, rows.count)
        self.action_space = batch_space(rows.action_space, rows.count)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Infos | None = None
    ) -> tuple[Any, Infos]:
        """Reset all environments; a list of seeds has one per environment, not per row."""
        observations, live, infos = self._rows.reset(seed, options)
        return observations, {**self._columns(infos), "live": live}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Infos]:
        """Step all environments; the actions of absent agents are ignored."""
        step = self._rows.step(actions)
        infos = {**self._columns(step.infos), "live": step.live, "valid": step.valid}
        if self._rows.mode == "same_step" and step.final_obs:
            infos["final_obs"] = np.full(self.num_envs, None, object)
            for row, observation in step.final_obs.items():
                infos["final_obs"][row] = observation
            infos["_final_obs"] = step.terminated | step.truncated
            infos["final_info"], infos["_final_info"] = self._columns(step.final_infos), step.over
        return *step[:4], infos

    def _columns(self, infos: Sequence[Infos]) -> Infos:
        """Return infos in Gymnasium's vector form."""
        columns: Infos = {}
        for row, info in enumerate(infos):
            columns = self._add_info(columns, info, row)
        return columns

    def render(self) -> tuple[Any, ...]:
        """Render the environments; return a frame of each, not of each row."""
        return tuple(self.envs.render())

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self.envs.close()
