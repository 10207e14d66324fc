"""The inline way of a step: what it must leave behind when it ends in another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pytest

import agym
from agym.backends import BackendSpec
from agym.core.backends.serial import SerialPool, SerialPort
from agym.core.protocol.messages.completions import Completion
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of, leases_of


class Large(gym.Env[Any, Any]):
    """Its observations are leased; action 1 is Ctrl-C."""

    observation_space = gym.spaces.Box(0, 255, (100, 1000), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros((100, 1000), np.uint8), {}

    def step(self, action: Any) -> Any:
        if action == 1:
            raise KeyboardInterrupt
        return np.ones((100, 1000), np.uint8), 0.0, False, False, {}


def test_an_interrupted_step_gives_its_plane_back() -> None:
    """Otherwise batches would be copied from then on. A step of all must follow a reset of all."""
    with agym.make([Large] * 2, backend="serial", output="array", autoreset="next_step") as envs:
        for _ in range(6):
            envs.reset()
            with pytest.raises(KeyboardInterrupt):
                envs.step([0, 1])
            with pytest.raises(agym.ResetNeededError, match=r"was interrupted in step"):
                envs.step([0, 0])
        envs.reset()
        taken = [leases_of(envs).take(set()) for _ in engine_of(envs).life.table.leasable]
        assert None not in taken


class LatePort(SerialPort):
    """Its completions are found by the second look only."""

    looked = False

    def step_inline(self, number: int, plane: int, parts: Any) -> Literal[False]:
        if super().step_inline(number, plane, parts):
            self._completions.append(Completion(number, 0, self.ids.stop, None))
        self.looked = False
        return False

    def collect(self) -> Sequence[Completion]:
        looked, self.looked = self.looked, True
        return super().collect() if looked else ()

    def news(self) -> bool:
        return True


class LatePool(SerialPool):
    kind = LatePort


@dataclass(frozen=True, kw_only=True)
class Late(BackendSpec):
    name = "late"
    port = LatePool


def test_a_step_in_line_that_goes_on_is_waited_for() -> None:
    with agym.make([Tally] * 2, backend=Late(), output="array", autoreset="next_step") as envs:
        envs.reset()
        for _ in range(3):
            result = envs.step([1, 2])
            assert result.rewards.shape == (2,)
