"""Plays batches of many agents beside plain loops over each environment; compares every bit."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import agym


def legal_action(space: Space[Any], observation: Any, info: Any) -> Any:
    """A random action, among the legal ones if the observation or the info has a mask."""
    mask = None
    if isinstance(observation, dict):
        mask = observation.get("action_mask")
    if mask is None:
        mask = info.get("action_mask")
    return space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))


def equal(space: Space[Any], value: Any, expected: Any) -> bool:
    """Whether a value of a batch is the environment's value, in the dtype of its space."""
    if isinstance(space, spaces.Dict):
        return all(equal(part, value[key], expected[key]) for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return all(map(equal, space.spaces, value, expected))
    if space.dtype is None or not hasattr(space, "shape") or space.shape is None:
        return bool(value == expected)
    array = np.asarray(value)
    assert array.dtype == space.dtype
    assert array.dtype.kind != "f" or not np.isnan(array).any()
    return bool(np.array_equal(array, np.asarray(expected, space.dtype)))


def row(space: Space[Any], batch: Any, k: int) -> Any:
    """One row of a nested batch."""
    if isinstance(space, spaces.Dict):
        return {key: row(part, batch[key], k) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(row(part, leaf, k) for part, leaf in zip(space.spaces, batch, strict=True))
    return batch[k]


def same_info(info: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return info.keys() == expected.keys() and all(
            same_info(info[key], value) for key, value in expected.items()
        )
    return bool(np.array_equal(info, expected))


def compare_parallel(
    envs: agym.ParallelEnvs, make: Callable[[], Any], episodes: int, seed: int = 0
) -> int:
    """Step a batch and plain environments with the same random actions, until enough episodes.

    The batch must reset in the same step. Returns the number of environment steps.
    """
    n, agents = envs.num_envs, envs.possible_agents
    assert agents is not None
    for k, agent in enumerate(agents):
        envs.action_spaces[agent].seed(seed + k)
    plain = [make() for _ in range(n)]
    result: Any = envs.reset(seed)
    latest = [env.reset(seed=seed + k) for k, env in enumerate(plain)]
    # What the rows of absent agents keep.
    rows = [deepcopy(observations) for observations, _ in latest]
    ended = steps = 0
    while True:
        for k, env in enumerate(plain):
            for agent in agents:
                space = envs.observation_spaces[agent]
                seen = row(space, result.observations[agent], k)
                assert bool(result.live[agent][k]) == (agent in env.agents)
                if agent in rows[k]:
                    assert equal(space, seen, rows[k][agent]), (k, agent)
        if ended >= episodes:
            break
        actions = envs.sample_actions()  # also of agents that are absent
        chosen: list[dict[Any, Any]] = []
        for k, (env, (observations, infos)) in enumerate(zip(plain, latest, strict=True)):
            chosen.append({
                agent: legal_action(
                    envs.action_spaces[agent], observations[agent], infos.get(agent, {})
                )
                for agent in env.agents
            })  # fmt: skip
            for agent, action in chosen[-1].items():
                actions[agent][k] = action
        result = envs.step(actions)
        steps += n
        final = result.final_obs
        for k, env in enumerate(plain):
            observations, rewards, terminated, truncated, infos = env.step(chosen[k])
            for agent in agents:
                assert bool(result.valid[agent][k]) == (agent in rewards)
                assert result.rewards[agent][k] == rewards.get(agent, 0)
                assert result.terminated[agent][k] == terminated.get(agent, False)
                assert result.truncated[agent][k] == truncated.get(agent, False)
                if agent in observations:
                    space = envs.observation_spaces[agent]
                    assert equal(space, row(space, final[agent], k), observations[agent])
            assert bool(result.over[k]) == (not env.agents)
            reported = result.final_infos[k] if result.over[k] else result.infos[k]
            assert all(same_info(reported[agent], info) for agent, info in infos.items())
            rows[k].update(deepcopy(observations))
            if not env.agents:
                ended += 1
                observations, infos = env.reset()
                rows[k] = deepcopy(observations)
            latest[k] = observations, infos
    for env in plain:
        env.close()
    return steps


class PlainTurns:
    """One ``AECEnv`` and what a loop over ``last()`` is told, with the turns of the dead passed."""

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        self.env = make()
        self.env.reset(seed=seed)
        self.told: dict[Any, Any] = {}
        self._pass_dead()

    def step(self, action: Any) -> None:
        self.told = {}
        self.env.step(action)
        self._pass_dead()

    def restart(self) -> None:
        self.env.reset()
        self._pass_dead()

    def _pass_dead(self) -> None:
        while self.env.agents:
            agent = self.env.agent_selection
            self.last = self.env.last()
            observation, reward, terminated, truncated, info = self.last
            if self.env.agents and agent not in self.told:
                self.told[agent] = observation, reward, terminated, truncated, info
            if not (terminated or truncated):
                break
            self.env.step(None)


def compare_aec(
    envs: agym.AECEnvs, make: Callable[[], Any], episodes: int, seed: int = 0, min_envs: int = 1
) -> int:
    """Play first-k batches of turns beside plain loops; returns the number of turns."""
    assert envs.possible_agents is not None
    for k, agent in enumerate(envs.possible_agents):
        envs.action_spaces[agent].seed(seed + k)
    plain = [PlainTurns(make, seed + k) for k in range(envs.num_envs)]
    batch = envs.reset(seed)
    ended = turns = 0
    while True:
        actions = []
        masks = batch.action_masks
        for k, i in enumerate(batch.env_ids):
            env = plain[i]
            agent = batch.agents[k]
            assert agent == env.env.agent_selection
            space = envs.observation_spaces[agent]
            # A batch if the agents' spaces are equal, else a list.
            is_list = isinstance(batch.observations, list)
            seen = batch.observations[k] if is_list else row(space, batch.observations, k)
            assert equal(space, seen, env.last[0])
            if masks is not None:
                mask = env.last[0].get("action_mask", env.last[4].get("action_mask"))
                assert np.array_equal(masks[k], mask)
            actions.append(legal_action(envs.action_spaces[agent], env.last[0], env.last[4]))
        by_agent = batch.by_agent()
        assert sorted(k for turn in by_agent.values() for k in turn.rows) == [*range(len(actions))]
        if ended >= episodes:
            break
        sent = dict(zip(batch.env_ids.tolist(), actions, strict=True))
        envs.send(actions, batch.env_ids)
        for i, action in sent.items():
            plain[i].step(action)
        batch = envs.recv(min_envs)
        turns += len(batch.env_ids)
        final = batch.final_obs
        for k, i in enumerate(batch.env_ids):
            env = plain[i]
            for agent in envs.possible_agents:
                assert bool(batch.valid[agent][k]) == (agent in env.told)
                told = env.told.get(agent, (None, 0, False, False, {}))
                assert batch.rewards[agent][k] == told[1]
                assert (batch.terminated[agent][k], batch.truncated[agent][k]) == told[2:4]
                if agent in env.told:
                    space = envs.observation_spaces[agent]
                    assert equal(space, row(space, final[agent], k), told[0])
            assert bool(batch.over[k]) == (not env.env.agents)
            if not env.env.agents:
                ended += 1
                env.restart()
    for env in plain:
        env.env.close()
    return turns
