"""Vector environments for the tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


@dataclass
class Trap:
    """What the programs of a test do wrong, and what happened to them.

    Attributes:
        where: The next such call raises ``error``: ``"make"``, ``"reset"``, ``"step"``, ...
        always: So do all that follow.
        gate: Where set, a step waits for it.
        gates_one_program: Whether programs that are made from now on do not wait for it.
        made: The number of environments of each program that was made.
        closed: How many programs were closed.
        threads: The threads in which anything was done.
    """

    where: str = ""
    always: bool = False
    error: BaseException = field(default_factory=lambda: ValueError("boom"))
    gate: threading.Event | None = None
    gates_one_program: bool = False
    made: list[int] = field(default_factory=list)
    closed: int = 0
    threads: set[int] = field(default_factory=set)

    def spring(self, where: str) -> None:
        self.threads.add(threading.get_ident())
        if self.where == where:
            self.where = self.where if self.always else ""
            raise self.error


class Tally(VectorEnv[Any, Any, Any]):
    """Observes ``[id within the program, steps, episodes]``; environment i ends after 3 + i steps.

    The reward is the action; infos have masks, and are told in odd steps.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, trap: Trap | None = None, wrong: str = "") -> None:
        self.trap = trap or Trap()
        self.wrong = wrong
        self.trap.spring("make")
        self.trap.made.append(num_envs)
        if self.trap.gates_one_program:
            self.trap.gate = None
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 10**6, (3,), np.int64)
        self.single_action_space = spaces.Discrete(10)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.steps, self.episodes = np.zeros((2, num_envs), np.int64)
        self.lengths = 3 + np.arange(num_envs)
        self.over = np.zeros(num_envs, bool)
        self.gravity = 9.8
        self.started = False

    def _observe(self) -> Any:
        return np.stack([np.arange(self.num_envs), self.steps, self.episodes], axis=1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.trap.spring("reset")
        self.started = True
        self.steps[:] = 0
        self.episodes += 1
        self.over[:] = False
        info = {"seed": np.full(self.num_envs, -1 if seed is None else seed)}
        return self._observe(), info if options is None else {**info, **options}

    def step(self, actions: Any) -> Any:
        assert self.started, "call reset first"
        self.trap.spring("step")
        if self.trap.gate is not None:
            self.trap.gate.wait()
        self.steps += 1
        self.steps[self.over] = 0
        self.episodes[self.over] += 1
        rewards = np.where(self.over, 0.0, actions)
        self.over = self.steps >= self.lengths
        odd = self.steps % 2 == 1
        info = {"twice": self.steps * 2, "_twice": odd, "nested": {"steps": self.steps.copy()}}
        result: Any = (self._observe(), rewards, self.over.copy(), np.zeros_like(odd), info)
        return self._spoil(result)

    def _spoil(self, result: Any) -> Any:
        observations, rewards, terminated, truncated, info = result
        return {
            "": result,
            "rows": (observations[:-1], rewards, terminated, truncated, info),
            "shape": (observations[:, :2], rewards, terminated, truncated, info),
            "dtype": (observations.astype(float), rewards, terminated, truncated, info),
            "none": (None, rewards, terminated, truncated, info),
            "rewards": (observations, rewards[:-1], terminated, truncated, info),
            "flags": (observations, rewards, terminated[:, None], truncated, info),
            "four": (observations, rewards, terminated, info),
            "info": (observations, rewards, terminated, truncated, 5),
        }[self.wrong]

    def render(self) -> Any:
        self.trap.spring("render")
        return tuple(f"frame {i}" for i in range(self.num_envs))

    def close(self, **_: Any) -> None:
        self.trap.closed += 1
        self.trap.spring("close")
