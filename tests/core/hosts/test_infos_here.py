"""Infos of a step in the caller's thread, which do not pass through the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import agym
from tests.support.envs.plain_envs import Result, Tally
from tests.support.equality import same


class Keeps(Tally):
    """Gives the same info each time, and changes it in between; raises in some step."""

    def __init__(self, raises_in: int = 0, length: int = 100) -> None:
        super().__init__(length)
        self.info: dict[str, Any] = {"n": 0, "array": np.zeros(2), "nested": {"list": [0]}}
        self.raises_in = raises_in

    def step(self, action: Any) -> Result:
        observation, reward, terminated, truncated, _ = super().step(action)
        self.info["n"] += 1
        self.info["array"] += 1
        self.info["nested"]["list"][0] += 1
        if self.info["n"] == self.raises_in:
            raise ValueError("now")
        if action == 3:
            return observation, reward, terminated, truncated, {}
        return observation, reward, terminated, truncated, self.info


def numbers(infos: list[dict[str, Any]]) -> list[list[float]]:
    """What each info says in three ways; nothing if it is empty."""
    return [
        [info["n"], info["array"][0], info["nested"]["list"][0]] if info else [] for info in infos
    ]


def test_infos_are_the_callers_own() -> None:
    with agym.make(Keeps, 3, backend="serial", autoreset="next_step") as envs:
        envs.reset(seed=0)
        first = envs.step([0] * 3).infos
        second = envs.step([0] * 3).infos
        assert numbers(first) == [[1] * 3] * 3
        assert numbers(second) == [[2] * 3] * 3


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_infos_of_earlier_steps_do_not_come_back(backend: Any) -> None:
    """Steps of some environments use the table, in which older infos may be left."""
    with agym.make(Keeps, 3, backend=backend, workers=None, autoreset="next_step") as envs:
        envs.reset(seed=0)
        envs.send([0, 0, 0])
        envs.recv(min_envs=3)
        for actions in ([0, 3, 0], [3, 3, 3], [0, 0, 3]):
            infos = envs.step(actions).infos
            assert [bool(info) for info in infos] == [action != 3 for action in actions]
            (partial,) = envs.step([3], env_ids=[1]).infos
            assert partial == {}
        assert numbers(envs.step([0, 0, 0]).infos) == [[5] * 3, [8] * 3, [5] * 3]


def test_infos_of_the_others_are_there_when_one_raises() -> None:
    made = [Keeps(), Keeps(raises_in=2), Keeps()]
    with agym.make([lambda env=env: env for env in made], backend="serial") as envs:
        envs.reset(seed=0)
        envs.step([0] * 3)
        with pytest.raises(agym.EnvError, match="environment 1 raised"):
            envs.step([0] * 3)
        envs.reset(seed=0, env_ids=[1])
        assert numbers(envs.step([0] * 3).infos) == [[3] * 3] * 3


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_infos_around_an_episodes_end_are_those_of_the_table(autoreset: Any) -> None:
    def play(backend: Any) -> list[Any]:
        factories = [lambda: Keeps(length=3), lambda: Keeps(length=2)]
        with agym.make(factories, backend=backend, autoreset=autoreset) as envs:
            envs.reset(seed=0)
            return [envs.step([0, 3]).infos for _ in range(9)]

    assert same(play("serial"), play("thread"))
