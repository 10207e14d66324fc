"""``env_ids=[]``, as in a loop in which no episode ended; a law states it of every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from tests.support.envs.plain_envs import Nested, Tally


@pytest.mark.parametrize("output", ["list", "array"])
def test_nested_and_unsized_spaces(output: str) -> None:
    def unsized() -> RandomEnv:
        space = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Text(4))
        return RandomEnv(space, spaces.Tuple((spaces.Text(3), spaces.Discrete(3))))

    for env, batches in ((Nested, [[], {"force": [], "gear": []}]), (unsized, [[], ([], [])])):
        with agym.make(env, 2, output=output) as envs:
            envs.reset(seed=0)
            for actions in batches:
                step = envs.step(actions, env_ids=[])
                assert len(step.rewards) == len(step.infos) == 0
            whole = envs.reset(env_ids=[]).observations
            assert len(whole if output == "list" else next(iter(whole.values()))) == 2


def test_torch() -> None:
    torch = pytest.importorskip("torch", reason="the extra `torch`")
    with agym.make(Tally, 2, output="torch") as envs:
        envs.reset()
        none = torch.zeros(0, dtype=torch.int64)
        step = envs.step(none, env_ids=none)
        assert step.observations.shape == (0, 3)
        assert step.terminated.dtype == torch.bool


def test_groups_and_out() -> None:
    with agym.make(Tally, 4, output="array") as envs:
        envs.reset(seed=0)
        group = envs.split(2)[1]
        out = np.zeros((2, 3))
        assert group.reset(env_ids=[], out=out).observations is out
        assert out[:, 0].tolist() == [1, 1]
        none = np.zeros((0, 3))
        assert group.step([], env_ids=[], out=none).observations is none


def test_a_video_of_no_environment_is_refused(tmp_path: Any) -> None:
    pytest.importorskip("av", reason="the extra `video`")
    with (
        agym.make("CartPole-v1", 2, render_mode="rgb_array") as envs,
        pytest.raises(agym.UsageError, match="env_ids"),
    ):
        agym.record(envs, tmp_path / "none.gif", env_ids=[])
