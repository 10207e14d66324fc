"""What goes wrong in an environment, as SB3's users meet it."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.envs.faulty_envs import Exits, Hangs, Raises
from tests.support.envs.plain_envs import Probe, Tally
from tests.support.patience import deadline
from tests.support.training import SETUPS, each_place

FORKED = SETUPS["process"]


@each_place
def test_an_environment_raises_and_all_go_on_after_a_reset(options: dict[str, Any]) -> None:
    functions = [Tally, partial(Raises, "step"), Tally]
    vec_env = agym.sb3.AgymVecEnv(functions, **options)
    vec_env.reset()
    vec_env.step([0, 0, 0])
    with pytest.raises(agym.EnvError, match="boom") as caught:
        vec_env.step([0, 9, 0])
    assert caught.value.env_id == 1
    assert caught.value.__cause__ is not None
    with pytest.raises(agym.ResetNeededError):
        vec_env.step([0, 0, 0])
    vec_env.reset()
    observations, *_ = vec_env.step([1, 2, 3])
    assert observations[:, 1:].tolist() == [[1, 1], [1, 2], [1, 3]]
    vec_env.close()


@each_place
def test_methods_and_constructors_that_raise(options: dict[str, Any]) -> None:
    with pytest.raises(agym.EnvError, match="raised in make"):
        agym.sb3.AgymVecEnv([partial(Raises, "make")], **options)
    vec_env = agym.sb3.AgymVecEnv([partial(Raises, "render")], **options)
    with pytest.raises(agym.EnvError, match="boom"):
        vec_env.env_method("render")
    assert vec_env.env_method("add", 1) == [10.8]
    vec_env.close()


@each_place
def test_restarted_where_it_raised(options: dict[str, Any]) -> None:
    functions = [Tally, partial(Raises, "step"), Tally]
    vec_env = agym.sb3.AgymVecEnv(functions, on_fault="restart", **options)
    vec_env.reset()
    observations, rewards, dones, infos = vec_env.step([4, 9, 4])
    assert dones.tolist() == [False, True, False]
    assert rewards[1] == 0
    assert infos[1]["TimeLimit.truncated"] is True
    assert infos[1]["fault"].kind == "raised"
    assert infos[1]["terminal_observation"].tolist() == [1, 0, -1]  # the last that was known
    assert "fault" not in vec_env.reset_infos[1]
    assert vec_env.reset_infos[1]["options"] is None
    assert observations.tolist() == [[1, 1, 4], [1, 0, -1], [1, 1, 4]]
    *_, infos = vec_env.step([5, 5, 5])
    assert [info["now"] for info in infos] == [2, 1, 2]
    vec_env.close()


@pytest.mark.parametrize("way", ["exit", "kill", "timeout"])
def test_restarted_where_a_worker_ended(way: str) -> None:
    functions = [Tally, Tally, Tally, partial(Hangs) if way == "timeout" else partial(Exits, 3)]
    vec_env = agym.sb3.AgymVecEnv(
        functions, on_fault="restart", timeout=deadline(0.3) if way == "timeout" else None, **FORKED
    )
    vec_env.reset()
    vec_env.step([0] * 4)
    if way == "kill":
        os.kill(vec_env.stats().workers[1].pid, signal.SIGKILL)
    _, rewards, dones, infos = vec_env.step([0, 0, 0, 0 if way == "kill" else 9])
    assert dones.tolist() == [False, False, True, True]
    for i in (2, 3):
        assert infos[i]["TimeLimit.truncated"] is True
        assert infos[i]["fault"].kind == ("timeout" if way == "timeout" else "died")
        assert infos[i]["terminal_observation"].tolist() == [1, 1, 0]
    assert rewards.tolist() == [1.125, 1.125, 0, 0]
    *_, infos = vec_env.step([0] * 4)
    assert [info["now"] for info in infos] == [3, 3, 1, 1]
    vec_env.close()


def test_a_worker_that_died_is_named_and_can_be_replaced() -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally, Tally, Tally, partial(Exits, 3)], **FORKED)
    vec_env.reset()
    with pytest.raises(agym.WorkerDied) as caught:
        vec_env.step([0, 0, 0, 9])
    assert caught.value.exitcode == 3
    assert caught.value.env_ids == (2, 3)
    with pytest.raises(agym.WorkerDied):
        vec_env.reset()
    assert vec_env.runner.restart() == [2, 3]
    vec_env.reset()
    assert vec_env.step([0] * 4)[0][:, 1].tolist() == [1] * 4
    vec_env.close()


def test_a_missed_deadline() -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally, Hangs], timeout=deadline(0.3), **FORKED)
    vec_env.reset()
    with pytest.raises(agym.StepTimeout) as caught:
        vec_env.step([0, 9])
    assert caught.value.env_ids == (1,)
    vec_env.reset()
    assert vec_env.step([1, 2])[0][:, 2].tolist() == [1, 2]
    vec_env.close()


def test_options_of_one_reset_are_not_given_to_what_takes_its_place() -> None:
    functions = [partial(Raises, "step", length=3)] * 2
    vec_env = agym.sb3.AgymVecEnv(functions, backend="serial", on_fault="restart")
    vec_env.set_options([{"length": 5}, {}])
    vec_env.reset()
    vec_env.step([9, 0])
    dones = np.array([vec_env.step([0, 0])[2] for _ in range(3)])
    assert dones[:, 0].tolist() == [False, False, True]
    vec_env.close()


def test_chaos_reaches_it_too() -> None:
    policy = agym.FaultPolicy("restart", max_restarts=99)
    vec_env = agym.sb3.AgymVecEnv([Probe] * 4, on_fault=policy, **FORKED)
    with agym.chaos(vec_env.runner, kill=0.03, error=0.03, seed=1, ways=["kill"]) as chaos:
        vec_env.reset()
        faults = 0
        for _ in range(60):
            _, _, dones, infos = vec_env.step(np.zeros(4, int))
            faults += sum("fault" in info for info in infos)
            assert all(done for done, info in zip(dones, infos, strict=True) if "fault" in info)
        assert faults >= sum(chaos.injected.values()) > 0
    vec_env.close()
