"""What ``reset`` and ``step`` of many agents return, and how it is decoded from agym's results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agym.multi_agent.host import (
    AGENTS,
    AS_IS,
    INFOS,
    LIVE,
    REWARDS,
    TERMINATED,
    TRUNCATED,
    VALID,
    AsIs,
)
from agym.multi_agent.spaces import Agents, in_order, replace_rows, stack, take

Flags = NDArray[np.bool_]
Info = dict[Any, Any]


@dataclass(frozen=True, eq=False)
class AgentRows:
    """What all results have in common: a row per environment, a column per agent.

    Attributes:
        rewards: ``{agent: float64[n]}``; 0 where not valid.
        terminated: ``{agent: bool[n]}``.
        truncated: ``{agent: bool[n]}``.
        infos: For each environment a dict with the info of each agent.
        valid: ``{agent: bool[n]}``: the agent took part in this step, so that its reward and flags
            are real. This includes the step in which it died.
        live: ``{agent: bool[n]}``: the agent must act next. The actions of others are ignored.
        over: ``bool[n]``: the episode ended in this step, because no agent is left.
        final_infos: For each environment that was reset in this step (``autoreset="same_step"``)
            the infos that ended its episode; otherwise an empty dict.
    """

    rewards: dict[Any, NDArray[np.float64]]
    terminated: dict[Any, Flags]
    truncated: dict[Any, Flags]
    infos: list[Info]
    valid: dict[Any, Flags]
    live: dict[Any, Flags]
    over: Flags
    final_infos: list[Info]
    _observations: dict[Any, Any] = field(repr=False)
    # The observations that ended episodes, by row, if the environments were reset since.
    _final: dict[int, Any] = field(repr=False)
    _agents: Agents = field(repr=False)

    @property
    def final_obs(self) -> dict[Any, Any]:
        """``{agent: [n, *shape]}``: the observations that followed the actions.

        They differ from the others only in environments that were reset in this step.
        """
        if not self._final:
            return self._observations
        spaces = self._agents.observation_spaces
        return {
            agent: replace_rows(spaces[agent], batch, {k: v[agent] for k, v in self._final.items()})
            for agent, batch in self._observations.items()
        }

    def _masks(self) -> dict[Any, Any]:
        """Return the masks in observations or infos; where there is none, all are legal."""
        masks: dict[Any, Any] = {}
        for agent, batch in self._observations.items():
            if isinstance(batch, dict) and "action_mask" in batch:
                masks[agent] = batch["action_mask"]
                continue
            rows = [info.get(agent, {}).get("action_mask") for info in self.infos]
            known = next((row for row in rows if row is not None), None)
            if known is not None:
                legal = np.ones_like(known)
                masks[agent] = np.stack([legal if row is None else row for row in rows])
        return masks


class _Together(AgentRows):
    """Results of agents that act at the same time."""

    @property
    def observations(self) -> dict[Any, Any]:
        """``{agent: [n, *shape]}``, nested like the agent's space.

        The row of an absent agent keeps the agent's last observation, or is zero if it has none in
        this episode.
        """
        return self._observations

    @property
    def action_masks(self) -> dict[Any, Any]:
        """``{agent: [n, actions]}``: the legal actions, of agents that have action masks."""
        return self._masks()

    def by_group(self) -> dict[str, AgentGroup]:
        """Stack the rows of each group of agents (``envs.agent_groups``) to ``[n, A, ...]``."""
        columns = self.rewards, self.terminated, self.truncated, self.valid, self.live
        groups = {}
        for name, agents in self._agents.groups.items():
            space = self._agents.observation_spaces[agents[0]]
            observations = stack(space, [self.observations[agent] for agent in agents])
            others: list[Any] = [
                np.stack([column[agent] for agent in agents], 1) for column in columns
            ]
            groups[name] = AgentGroup(tuple(agents), observations, *others)
        return groups


class AgentStep(_Together):
    """The result of a step of environments with many agents.

    Example:
        >>> import agym
        >>> with agym.make_parallel("mpe2/simple_spread_v3", 2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     result = envs.step(envs.sample_actions())
        >>> result.rewards["agent_0"].shape, result.valid["agent_0"]
        ((2,), array([ True,  True]))

    It unpacks like the result of PettingZoo's ``ParallelEnv.step``: ``observations, rewards,
    terminated, truncated, infos``. Each dict has an entry for each of ``possible_agents``.
    """

    def __iter__(self) -> Iterator[Any]:
        yield from (self.observations, self.rewards, self.terminated, self.truncated, self.infos)


class AgentReset(_Together):
    """The result of a reset: it unpacks to ``observations, infos``. No agent is valid.

    Example:
        >>> import agym
        >>> with agym.make_parallel("mpe2/simple_spread_v3", 2) as envs:
        ...     result = envs.reset(seed=0)
        >>> result.live["agent_0"]
        array([ True,  True])
    """

    def __iter__(self) -> Iterator[Any]:
        yield from (self.observations, self.infos)


class AgentGroup(NamedTuple):
    """The rows of agents with equal spaces, stacked.

    Example:
        >>> import agym
        >>> with agym.make_parallel("mpe2/simple_tag_v3", 4) as envs:
        ...     result = envs.reset(seed=0)
        ...     group = result.by_group()["adversary"]
        >>> group.agents, group.observations.shape
        (('adversary_0', 'adversary_1', 'adversary_2'), (4, 3, 16))

    Attributes:
        agents: The agents, in the order of the second axis.
        observations: ``[n, A, *shape]``, nested like the agents' space.
        rewards: ``float64[n, A]``.
        terminated: ``bool[n, A]``.
        truncated: ``bool[n, A]``.
        valid: ``bool[n, A]``.
        live: ``bool[n, A]``.
    """

    agents: tuple[Any, ...]
    observations: Any
    rewards: NDArray[np.float64]
    terminated: Flags
    truncated: Flags
    valid: Flags
    live: Flags


@dataclass(frozen=True, eq=False)
class AgentLists:
    """The result of environments without ``possible_agents``: lists with a dict per environment.

    It unpacks to ``observations, infos`` or ``observations, rewards, terminated, truncated,
    infos``, as the environments returned them.

    Attributes:
        live: For each environment the agents that must act next.
        final_obs: For each environment the observations that followed the actions; they differ from
            ``observations`` only in environments that were reset in this step.
    """

    live: list[list[Any]]
    final_obs: list[dict[Any, Any]]
    _columns: list[list[dict[Any, Any]]] = field(repr=False)

    def __iter__(self) -> Iterator[Any]:
        yield from self._columns


class Turn(NamedTuple):
    """The rows of a batch in which one agent must act.

    Example:
        >>> import agym
        >>> with agym.make_aec("classic/tictactoe-v3", 4) as envs:
        ...     batch = envs.reset(seed=0)
        ...     turns = batch.by_agent()
        >>> {agent: turn.env_ids.tolist() for agent, turn in turns.items()}
        {'player_1': [0, 1, 2, 3]}

    Attributes:
        rows: Their positions in the batch, ``int64[m]``.
        env_ids: Their environments, ``int64[m]``.
        observations: What the agent sees, ``[m, *shape]``.
        action_masks: The legal actions ``[m, actions]``, ``None`` if the environment has no masks.
    """

    rows: NDArray[np.int64]
    env_ids: NDArray[np.int64]
    observations: Any
    action_masks: Any


@dataclass(frozen=True, eq=False)
class AECBatch(AgentRows):
    """Environments whose agents take turns, each with the agent that must act now.

    Example:
        >>> import agym
        >>> with agym.make_aec("classic/tictactoe-v3", 2) as envs:
        ...     batch = envs.reset(seed=0)
        ...     batch = envs.step([0, 4])
        >>> batch.agents
        array(['player_2', 'player_2'], dtype=object)

    ``valid`` marks the agents whose turn it is, or who died: their rewards and flags are those of
    PettingZoo's ``last()``, so a reward is everything since the agent's last turn.

    Attributes:
        env_ids: The environments, ``int64[k]``.
        agents: For each the agent that must act, ``None`` if the episode is over.
    """

    env_ids: NDArray[np.int64]
    agents: NDArray[Any]

    @property
    def observations(self) -> Any:
        """What these agents see: ``[k, *shape]`` if the agents' spaces are equal, else a list."""
        spaces, names = self._agents.observation_spaces, self._names()
        batches = self._observations
        if not self._agents.alike:
            return [take(spaces[name], batches[name], k) for k, name in enumerate(names)]
        index = np.array([self._agents.names.index(name) for name in names], np.int64)
        space = spaces[self._agents.names[0]]
        stacked = stack(space, [batches[name] for name in self._agents.names])
        return take(space, stacked, (np.arange(len(index)), index))

    @property
    def action_masks(self) -> Any:
        """The agents' legal actions, ``[k, actions]``; ``None`` if the environment has no masks.

        A list if agents have different numbers of actions.
        """
        masks = self._masks()
        if not masks:
            return None
        rows: list[Any] = [
            masks[name][k] if name in masks else None for k, name in enumerate(self._names())
        ]
        known = next((row for row in rows if row is not None), None)
        if known is None or any(np.shape(row) != known.shape for row in rows):
            return rows
        for k in np.flatnonzero(self.agents == None):  # noqa: E711 # elementwise
            rows[k] = np.ones_like(known)  # over: any action will do
        return np.stack(rows)

    def by_agent(self) -> dict[Any, Turn]:
        """Group the rows by the agent that must act, for one policy per role."""
        turns, masks = {}, self._masks()
        for agent, batch in self._observations.items():
            rows = np.flatnonzero(self.live[agent])
            if len(rows):
                seen = take(self._agents.observation_spaces[agent], batch, rows)
                mask = masks[agent][rows] if agent in masks else None
                turns[agent] = Turn(rows, self.env_ids[rows], seen, mask)
        return turns

    def _names(self) -> list[Any]:
        """Return the agents that must act, or any agent if the episode is over."""
        return [self._agents.names[0] if name is None else name for name in self.agents]


class Decoder:
    """Turns results of agym into results of many agents."""

    def __init__(self, agents: Agents, num_envs: int) -> None:
        self._agents = agents
        self._empty = np.zeros((5, len(agents.names)))
        # Columns of agents in the blocks of hosts.
        self._columns = [in_order(agents.names).index(agent) for agent in agents.names]
        # Who must act in each environment, for resets of others.
        self._live = np.zeros((num_envs, len(agents.names)))

    def reset(self, result: Any) -> AgentReset:
        """Decode the result of ``Envs.reset`` or ``Envs.restore``, of all environments."""
        observations, infos = result
        infos = [self._unstepped(info, live) for info, live in zip(infos, self._live, strict=True)]
        none = np.zeros(len(infos), bool)
        return AgentReset(*self._rows(range(len(infos)), observations, none, none, none, infos))

    def _unstepped(self, info: Info, live: Any) -> Info:
        """Return an info without the outcome of a step, which a snapshot may have.

        An environment that was not reset has no info: the same agents must act as before.
        """
        block = info.get(AGENTS, self._empty).copy()
        block[:LIVE] = 0
        if AGENTS not in info:
            block[LIVE] = live
        return {**info, AGENTS: block}

    def step(self, result: Any) -> AgentStep:
        """Decode the result of ``Envs.step``."""
        return AgentStep(*self._rows(range(len(result[-1])), *result))

    def batch(self, result: Any) -> AECBatch:
        """Decode the result of ``Envs.recv``."""
        env_ids, *step = result
        rows: Any = self._rows(env_ids, *step)
        return AECBatch(*(*rows, env_ids, self._acting(rows[5])))

    def _acting(self, live: dict[Any, Flags]) -> NDArray[Any]:
        """Return for each row the agent that must act, or ``None``."""
        acting = np.full(len(next(iter(live.values()))), None, object)
        for agent, rows in live.items():
            acting[rows] = agent
        return acting

    def list_reset(self, result: Any) -> AgentLists:
        """Decode the result of a reset of environments without ``possible_agents``."""
        return self._lists(result[-1], (0, 4))

    def list_step(self, result: Any) -> AgentLists:
        """Decode the result of a step of environments without ``possible_agents``."""
        return self._lists(result[-1], range(5))

    def _lists(self, infos: Sequence[Info], columns: Sequence[int]) -> AgentLists:
        nothing = AsIs(({},) * 5, [])  # of an environment on hold, or after a fault
        stepped = [info.get("final_info", info).get(AS_IS, nothing).value for info in infos]
        latest = [info.get(AS_IS, nothing) for info in infos]
        values = [[value[k] for value in stepped] for k in columns]
        final_obs, values[0] = values[0], [each.value[0] for each in latest]
        return AgentLists([each.agents for each in latest], final_obs, values)

    def _rows(
        self, env_ids: Any, observations: Any, _: Any, terminated: Any, truncated: Any, infos: Any
    ) -> tuple[Any, ...]:
        """Return the fields of :class:`AgentRows`."""
        ends = {k: info["final_info"] for k, info in enumerate(infos) if "final_info" in info}
        stepped = [ends.get(k, info) for k, info in enumerate(infos)]
        blocks = self._blocks(stepped)
        before = after = self._infos(stepped, blocks)
        if ends:
            for k in ends:  # the episode that has begun says who must act
                blocks[k, LIVE] = infos[k].get(AGENTS, self._empty)[LIVE]
            after = self._infos(infos, self._blocks(infos))
        for k, info in enumerate(infos):
            if "fault" in info:
                blocks[k, TRUNCATED] = truncated[k]  # the episode was lost, for all its agents
        # An environment on hold repeats its flags, without an info.
        over = (terminated | truncated) & np.fromiter(map(bool, infos), bool, len(infos))
        self._live[env_ids] = blocks[:, LIVE]
        names, table = self._agents.names, blocks.transpose(1, 2, 0)[:, self._columns]
        rewards = dict(zip(names, table[REWARDS].copy(), strict=True))
        flags = np.ascontiguousarray(table[TERMINATED:] != 0)
        columns = [dict(zip(names, rows, strict=True)) for rows in flags]
        final_infos = [info if k in ends else {} for k, info in enumerate(before)]
        final = {k: infos[k]["final_obs"] for k in ends}
        observations = {agent: observations[agent] for agent in names}
        return (
            rewards, *columns[:2], after, *columns[2:], over, final_infos, observations, final,
            self._agents,
        )  # fmt: skip

    def _blocks(self, infos: Sequence[Info]) -> Any:
        blocks = [info.get(AGENTS, self._empty) for info in infos]
        return np.array(blocks).reshape(len(infos), *self._empty.shape)

    def _infos(self, infos: Sequence[Info], blocks: Any) -> list[Info]:
        """Return the infos of agents that took part or must act, and what agym has added."""
        present = blocks[:, VALID:].any(axis=1)[:, self._columns].tolist()
        result = []
        for info, row in zip(infos, present, strict=True):
            agents: Info = {agent: {} for agent in compress(self._agents.names, row)}
            if len(info) > (AGENTS in info):  # more than the block
                agents |= info.get(INFOS, {})
                if "fault" in info:
                    agents["fault"] = info["fault"]
            result.append(agents)
        return result
