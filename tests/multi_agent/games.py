"""Environments with many agents in which much can happen: births, deaths, masks, reused arrays."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

# Agents of two kinds, which die at different times; its version depends on that of PettingZoo.
KNIGHTS = "butterfly/knights_archers_zombies-v" + (
    "11" if find_spec("pettingzoo.butterfly.knights_archers_zombies_v11") else "10"
)


class Colony(ParallelEnv[str, Any, Any]):
    """Agents are born and die at random, and every observation is written into one array.

    ``kinds`` of agents have different spaces; without ``named`` there are no ``possible_agents``.
    ``options={"kill": t}`` ends the process in step ``t``; ``options={"raise": t}`` raises there.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "colony_v0", "render_modes": ["rgb_array"]}

    def __init__(
        self, kinds: int = 2, each: int = 3, *, same_spaces: bool = False, deaths: bool = True,
        nested: bool = False, named: bool = True, max_cycles: int = 30,
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        self._all: list[Any] = [f"kind{k}_{i}" for k in range(kinds) for i in range(each)]
        if named:
            self.possible_agents = self._all
        self.agents: list[str] = []
        self.deaths, self.nested, self.max_cycles = deaths, nested, max_cycles
        self.render_mode = render_mode
        self._spaces: dict[str, Any] = {}
        for k in range(kinds):
            width = 3 if same_spaces else 3 + k
            space: spaces.Space[Any] = spaces.Box(-1, 1, (width,), np.float32)
            if nested:
                mask = spaces.MultiBinary(4)
                space = spaces.Dict({
                    "action_mask": mask,
                    "observation": spaces.Tuple([space, spaces.Discrete(9), spaces.Text(5)]),
                })  # fmt: skip
            for i in range(each):
                self._spaces[f"kind{k}_{i}"] = space, spaces.Discrete(4)
        self.state_space = spaces.Box(-1, 1, (2,), np.float32)
        self._array = np.zeros(9, np.float32)
        self.np_random = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Any:
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self._options = dict(options or {})
        self._time = 0
        self.agents = list(self._all)
        self._to_come: list[str] = []
        if self.deaths:
            self._to_come = [agent for agent in self.agents if self.np_random.random() < 0.3]
            self.agents = [agent for agent in self.agents if agent not in self._to_come]
            self.agents = self.agents or [self._to_come.pop()]
        return self._observations(self.agents), self._infos(self.agents)

    def _observations(self, agents: list[str]) -> Any:
        self._array[:] = self.np_random.uniform(-1, 1, 9)
        return {agent: self._observation(agent) for agent in agents}

    def _observation(self, agent: str) -> Any:
        space = self.observation_space(agent)
        if not self.nested:
            return self._array[: space.shape[0]]
        view = self._array[: space["observation"][0].shape[0]]
        self.mask = self.np_random.integers(0, 2, 4).astype(np.int8)
        self.mask[3] = 1
        word = "".join(self.np_random.choice([*"abc"], 3))
        return {"action_mask": self.mask, "observation": (view, self._time % 9, word)}

    def _infos(self, agents: list[str]) -> Any:
        infos: dict[str, Any] = {agent: {} for agent in agents}
        for agent in agents[::2]:
            infos[agent] = {"time": self._time, "array": np.full(2, self._time)}
        return infos

    def step(self, actions: dict[str, Any]) -> Any:
        assert actions.keys() == set(self.agents), (actions, self.agents)
        assert all(self.action_space(agent).contains(a) for agent, a in actions.items())
        self._time += 1
        if self._time == self._options.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._time == self._options.get("raise"):
            raise ValueError("as asked for")
        acting = list(self.agents)
        rewards = {a: float(self.np_random.normal()) + int(actions[a]) for a in acting}
        dies = {a: self.deaths and self.np_random.random() < 0.1 for a in acting}
        over = self._time >= self.max_cycles
        terminated = {agent: bool(dies[agent]) for agent in acting}
        truncated = {agent: over and not dies[agent] for agent in acting}
        self.agents = [agent for agent in acting if not (dies[agent] or over)]
        born = []
        if self.agents and self._to_come and self.np_random.random() < 0.3:
            born = [self._to_come.pop()]
        self.agents += born
        infos = self._infos(acting)
        return self._observations(acting + born), rewards, terminated, truncated, infos

    def state(self) -> Any:
        return self._array[:2]

    def render(self) -> Any:
        return np.full((4, 6, 3), self._time, np.uint8)

    def close(self) -> None:
        pass


class Odd(Colony):
    """Names in no order, also numbers; observations that are sequences; roles that differ."""

    def __init__(self, *, reverse: bool = False) -> None:
        super().__init__(deaths=False, max_cycles=4)
        self._all = ["zoe", "piston_2", "piston_10", 7, "alice", "piston_2x"]
        if reverse:
            self._all.reverse()
        self.possible_agents = self._all
        sequence = spaces.Sequence(spaces.Discrete(3))
        box = spaces.Box(-1, 1, (3,), np.float32)
        for k, agent in enumerate(sorted(self._all, key=str)):
            self._spaces[agent] = (sequence if agent == "zoe" else box), spaces.Discrete(2 + k % 2)

    def _observation(self, agent: str) -> Any:
        if agent == "zoe":
            return (self._time % 3, 1)
        return self._array[:3] + len(str(agent))

    def step(self, actions: Any) -> Any:
        observations, rewards, *others = super().step(actions)
        return observations, {agent: float(len(str(agent))) for agent in rewards}, *others
