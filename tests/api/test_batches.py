"""Whose a batch is, and for how long: observations, infos and actions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from tests.support.drivers import SETUPS
from tests.support.envs.plain_envs import ContainsItself, Echo, ReusesBuffer

pytestmark = pytest.mark.parametrize("setup", SETUPS)


@pytest.mark.parametrize("output", ["list", "array"])
def test_batches_are_the_callers_for_ever(setup: dict[str, Any], output: Any) -> None:
    actions = np.zeros((3, 2), np.float32)
    with agym.make(partial(ReusesBuffer, 99), 3, output=output, **setup) as envs:
        batches = [envs.reset(), *(envs.step(actions) for _ in range(6))]
        envs.reset(env_ids=[1])
        envs[0].step(actions[0])
        for k, batch in enumerate(batches):
            assert np.array(batch.observations).tolist() == [[k] * 4] * 3
        for batch in batches[1:]:
            assert list(batch.rewards) == [1.0] * 3
    # And they outlive the environments.
    assert np.array(batches[3].observations).tolist() == [[3] * 4] * 3


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_infos_are_the_callers_for_ever(setup: dict[str, Any], mode: Any) -> None:
    actions = np.zeros((2, 2), np.float32)
    with agym.make(partial(ReusesBuffer, 3, informs=True), 2, autoreset=mode, **setup) as envs:
        _, infos = envs.reset()
        rounds = [infos, *(envs.step(actions).infos for _ in range(4))]
    wanted = {"next_step": [0, 1, 2, 3, 0], "same_step": [0, 1, 2, 0, 1], "disabled": [0, 1, 2, 3]}
    for infos, k in zip(rounds, wanted[mode], strict=mode != "disabled"):
        for info in infos:
            assert info["plain"].tolist() == [k] * 4
            assert info["nested"][0]["deep"].tolist() == [k] * 4
    if mode == "same_step":
        assert [info["final_info"]["plain"].tolist() for info in rounds[3]] == [[3] * 4] * 2


def test_an_info_may_contain_itself(setup: dict[str, Any]) -> None:
    with agym.make(ContainsItself, 2, **setup) as envs:
        _, infos = envs.reset()
    for info in infos:
        inner = info["itself"][0]
        assert inner["itself"][0] is inner


@pytest.mark.parametrize("output", ["list", "array"])
def test_batches_can_be_written_to(setup: dict[str, Any], output: Any) -> None:
    with agym.make(partial(ReusesBuffer, 99), 2, output=output, **setup) as envs:
        first = envs.reset()
        first.observations[0][:] = 77
        second = envs.step(np.zeros((2, 2), np.float32))
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
