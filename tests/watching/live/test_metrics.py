"""The numbers beside the pictures: returns are those of Gymnasium's own statistics."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import agym
from agym.watching.live.metrics import Metrics
from tests.support.backends import FORK
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of


def test_what_json_cannot_hold_is_left_out() -> None:
    class Infinite(Tally):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, float("nan") if self.now == 1 else np.inf, *rest

    with agym.make([Infinite] * 2, backend="serial", autoreset="next_step") as envs:
        score = Metrics(envs.tap)
        score.start()
        envs.reset()
        for _ in range(6):
            envs.step([0, 0])
        score.log({"loss": np.float32(0.5), "bound": np.inf})
        numbers = json.loads(json.dumps(score.read(), allow_nan=False))
        assert numbers["dots"][0][1] is None
        assert numbers["curve"] == []
        assert numbers["logged"] == {"loss": [[score.step, 0.5]]}
        assert score.logged_csv().splitlines()[1:] == [
            f"{score.step},loss,0.5",
            f"{score.step},bound,inf",
        ]


def test_a_worker_that_hangs_is_seen(tmp_path: Any) -> None:
    setup = {"backend": FORK, "workers": 2}
    with agym.make([Tally] * 2, **setup) as envs:
        envs.reset()
        envs.step([0, 0])
        score = Metrics(envs.tap)
        assert [worker["stuck"] for worker in score.read()["workers"]] == [None, None]
        # As if worker 1 had begun a step two seconds ago, and not ended it.
        gauges = engine_of(envs).life.table.gauges
        gauges.began[1] = gauges.ended[1] + 1
        gauges.ended[1] -= 2_000_000_000
        gauges.began[1] -= 2_000_000_000
        assert [worker["stuck"] is None for worker in score.read()["workers"]] == [True, False]


async def test_batched_policies_are_shown_while_they_are_open() -> None:
    def act(observations: Any) -> Any:
        return [0] * len(observations)

    async with agym.make_async("CartPole-v1", 2, backend="serial") as envs:
        metrics = Metrics(envs.tap)
        async with agym.batched(act, update=lambda weights: None) as policy:
            await policy(1.0)
            await policy.update(None)
            (first,) = metrics.read()["policies"]
            await policy(2.0)
            (second,) = metrics.read()["policies"]
        assert metrics.read()["policies"] == []
    assert (first["name"], first["version"], first["batch"], first["rate"]) == ("act", 1, 1.0, None)
    assert second["rate"] > 0
    json.dumps(second, allow_nan=False)


def test_what_a_program_logs_is_checked() -> None:
    with agym.make("CartPole-v1", 2) as envs:
        metrics = Metrics(envs.tap)
        with pytest.raises(agym.UsageError, match=r"page.log\(loss='low'\) must be a number"):
            metrics.log({"entropy": 1.0, "loss": "low"})
        with pytest.raises(agym.UsageError, match="at most 32 charts"):
            metrics.log({f"loss_{k}": 1.0 for k in range(33)})
        assert metrics.read()["logged"] == {}
