"""Episodes that were over when a worker died: a replay has nothing to cut off."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.backends import FORK
from tests.support.envs.faulty_envs import Exits, Raises
from tests.support.envs.plain_envs import Tally

FORKED = {
    "backend": FORK, "workers": 1, "output": "array",
    "on_fault": "replay",
}  # fmt: skip


class Long(Exits):
    """Goes on for long, and ends its process when its action is 9."""

    def __init__(self) -> None:
        super().__init__(3)
        self.length = 1000


@pytest.mark.parametrize("parts", [False, True], ids=["batch", "parts"])
def test_what_had_terminated_is_reset(parts: bool) -> None:
    ids = [0, 1] if parts else None
    with agym.make([partial(Tally, 2), Long], autoreset="next_step", **FORKED) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            result = envs.step([1, 1], env_ids=ids)
        assert result.terminated.tolist() == [True, False]
        result = envs.step([1, 9], env_ids=ids)
        assert result.truncated.tolist() == [False, True]
        assert "fault" not in result.infos[0]
        assert result.infos[1]["fault"].culprit == 1
        assert result.observations[0].tolist() == [2, 0, -1]  # as it would have been


@pytest.mark.parametrize("setup", ["batch", "parts", "one by one"])
def test_what_was_cut_off_before_is_reset(setup: str) -> None:
    def step(actions: list[int]) -> Any:
        if setup != "one by one":
            return envs.step(actions, env_ids=[0, 1] if setup == "parts" else None)
        envs.send(actions)
        batch = envs.recv(min_envs=2)
        order = np.argsort(batch.env_ids)
        infos = [batch.infos[k] for k in order]
        return agym.StepResult(*(column[order] for column in batch[1:5]), infos)

    with agym.make([partial(Raises, "step"), Long], autoreset="next_step", **FORKED) as envs:
        envs.reset(seed=0)
        step([1, 1])
        result = step([9, 1])
        assert result.truncated.tolist() == [True, False]
        assert result.infos[0]["fault"].kind == "raised"
        result = step([1, 9])
        assert result.truncated.tolist() == [False, True]
        assert "fault" not in result.infos[0]
        assert result.observations[0].tolist() == [1, 0, -1]  # the first one of another
        assert step([1, 1]).observations[0].tolist() == [1, 1, 1]


def test_it_holds_still_as_before() -> None:
    with agym.make([partial(Tally, 2), Long], autoreset="disabled", **FORKED) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            held = envs.step([1, 1])
        for _ in range(2):
            result = envs.step([1, 9])
            assert result.terminated.tolist() == [True, False]
            assert result.truncated.tolist() == [False, True]
            assert result.observations[0].tolist() == held.observations[0].tolist()
            assert result.rewards.tolist() == [0, 0]
