"""Programs tell no infos where none are wanted."""

from __future__ import annotations

from functools import partial

import pytest
from gymnasium.vector import SyncVectorEnv

import agym
from tests.support.envs import plain_envs as single
from tests.support.envs.vector_envs import MODES


def program(num_envs: int, mode: str) -> SyncVectorEnv:
    return SyncVectorEnv([single.Tally] * num_envs, autoreset_mode=MODES[mode])


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_told(mode: str) -> None:
    with agym.make(partial(program, mode=mode), 3, backend="vector", autoreset=mode,
                   infos="none") as envs:  # fmt: skip
        assert envs.reset(seed=0)[1] == [{}] * 3
        ended = 0
        for _ in range(12):
            _, _, terminated, _, infos = envs.step([1] * 3)
            ended += sum(terminated)
            for info in infos:
                assert info.keys() <= {"final_obs", "final_info"}
                assert info.get("final_info", {}) == {}
        assert ended > 6
