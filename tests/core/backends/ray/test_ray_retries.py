"""Failed episodes on a cluster begin again, and costs and waits of actors are counted."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

import agym
from tests.support.envs.plain_envs import Tally
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import patience
from tests.support.scenarios import traps as traps  # a fixture

pytestmark = pytest.mark.usefixtures("cluster")

COUNT = 4


def ended(envs: Any, rounds: int, before: Any = lambda k: None) -> list[list[float]]:
    """The draws of the episodes that ended, by environment."""
    draws: list[list[float]] = [[] for _ in range(COUNT)]
    envs.reset(seed=3)
    for k in range(rounds):
        before(k)
        observations, _, terminated, _, _ = envs.step([1] * COUNT)
        for i in range(COUNT):
            if terminated[i]:
                draws[i].append(float(observations[i][0]))
    return draws


def test_episodes_of_a_dead_actor_and_of_what_raises_begin_again(traps: Traps) -> None:
    options: dict[str, Any] = {"autoreset": "next_step", "output": "array"}
    with agym.make(traps.factories(COUNT), backend="serial", **options) as envs:
        expected = ended(envs, 30)
    policy = agym.FaultPolicy("restart", retry=2, max_restarts=100)
    with agym.make(
        traps.factories(COUNT), backend="ray", workers=2, on_fault=policy, **options
    ) as envs:

        def before(k: int) -> None:
            if k == 3:
                pid = envs.stats().workers[1].pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
            if k == 14:
                traps.set(0, "step", "plain")

        told = ended(envs, 30, before)
    for mine, theirs in zip(told, expected, strict=True):
        assert mine
        assert mine == theirs[: len(mine)]


class Costs(Tally):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, "cost": 0.5}


def test_costs_of_actors_are_summed() -> None:
    """Actors report them now and then."""
    end = time.monotonic() + patience()
    with agym.make(Costs, 4, backend="ray", workers=2, autoreset="next_step") as envs:
        envs.reset()
        steps = 0
        while not envs.stats().cost:
            assert time.monotonic() < end
            envs.step([1] * 4)
            steps += 1
        assert 0 < envs.stats().cost <= 4 * 0.5 * steps
