"""Whose a batch is, and for how long: observations, infos and actions."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from tests.support.drivers import each_setup
from tests.support.envs.plain_envs import Echo, Result, Tally

pytestmark = each_setup


class ReusesArray(gymnasium.Env[Any, Any]):
    """Writes every observation into the same array, which is in its infos, too."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 99) -> None:
        self.length = length
        self.array = np.zeros(4, np.float32)
        self.info = {"plain": self.array, "nested": [{"deep": self.array}]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.array[:] = 0
        return self.array, self.info

    def step(self, action: Any) -> Result:
        self.array += 1
        return self.array, 1.0, bool(self.array[0] >= self.length), False, self.info


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_infos_are_the_callers_for_ever(setup: dict[str, Any], mode: Any) -> None:
    with agym.make(partial(ReusesArray, 3), 2, autoreset=mode, **setup) as envs:
        _, infos = envs.reset()
        rounds = [infos, *(envs.step([0, 0]).infos for _ in range(4))]
    wanted = {"next_step": [0, 1, 2, 3, 0], "same_step": [0, 1, 2, 0, 1], "disabled": [0, 1, 2, 3]}
    for infos, k in zip(rounds, wanted[mode], strict=mode != "disabled"):
        for info in infos:
            assert info["plain"].tolist() == [k] * 4
            assert info["nested"][0]["deep"].tolist() == [k] * 4
    if mode == "same_step":
        assert [info["final_info"]["plain"].tolist() for info in rounds[3]] == [[3] * 4] * 2


class ContainsItself(Tally):
    """Gives an info that contains itself."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        info: dict[str, Any] = {}
        info["itself"] = [info]
        return observation, info


def test_an_info_may_contain_itself(setup: dict[str, Any]) -> None:
    with agym.make(ContainsItself, 2, **setup) as envs:
        _, infos = envs.reset()
    for info in infos:
        inner = info["itself"][0]
        assert inner["itself"][0] is inner


@pytest.mark.parametrize("output", ["list", "array"])
def test_batches_can_be_written_to(setup: dict[str, Any], output: Any) -> None:
    with agym.make(ReusesArray, 2, output=output, **setup) as envs:
        first = envs.reset()
        first.observations[0][:] = 77
        second = envs.step([0, 0])
        assert np.array(second.observations).tolist() == [[1] * 4] * 2


def test_actions_are_the_environments_for_ever(setup: dict[str, Any]) -> None:
    space = spaces.Box(-1, 1, (2,), np.float32)
    env = partial(Echo, spaces.Discrete(2), [0], space)
    with agym.make(env, 2, **setup) as envs:
        envs.reset()
        actions = np.zeros((2, 2), np.float32)
        for k in range(4):
            actions[:] = k / 4
            envs.step(actions)
        for received in envs.what_was_received():
            assert [action.tolist() for action in received] == [[k / 4] * 2 for k in range(4)]
