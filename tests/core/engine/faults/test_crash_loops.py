"""Workers that die again and again are given up, and can be asked for once more."""

from __future__ import annotations

import time
from typing import Any

import pytest

import agym
from tests.support.drivers import Setup, each_api, played
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import deadline
from tests.support.scenarios import COROUTINES, PROCESS, THREAD, over, trapped, wait_for_threads

each_process = over(PROCESS, COROUTINES)


def options(setup: Setup, limit: int, window: float = 60.0, **more: Any) -> dict[str, Any]:
    policy = agym.FaultPolicy("restart", max_restarts=limit, restart_window=window)
    return {**setup.options, "on_fault": policy, "autoreset": "next_step", **more}


@each_api
@each_process
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_worker_is_given_up(api: str, setup: Setup, limit: int, traps: Traps) -> None:
    with played(api, trapped(setup, traps), **options(setup, limit)) as envs:
        envs.reset(seed=3)
        for _ in range(limit):
            traps.set(1, "step", "exit")
            while "fault" not in envs.step([1] * 4).infos[1]:
                pass
            envs.reset(env_ids=[1])
        before = envs.step([1, 1], env_ids=[2, 3]).observations[:, 1].tolist()
        traps.set(1, "step", "exit")
        with pytest.raises(agym.CrashLoopError, match="max_restarts") as caught:
            _step_on(envs)
        error = caught.value
        assert error.env_ids == (0, 1)
        assert len(error.faults) == limit + 1
        assert {fault.exitcode for fault in error.faults} == {3}
        with pytest.raises(agym.CrashLoopError):
            envs.reset()
        assert envs.step([1, 1], env_ids=[2, 3]) is not None
        assert before
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        assert envs.step([2] * 4).observations[:2, 1].tolist() == [1, 1]
        assert envs.stats().workers[1].restarts == 0


def _step_on(envs: Any) -> None:
    for _ in range(3):
        envs.step([0] * 4)


@pytest.mark.once
@each_process
def test_old_failures_are_forgotten(setup: Setup, traps: Traps) -> None:
    with played("sync", trapped(setup, traps), **options(setup, 1, window=0.2)) as envs:
        envs.reset(seed=3)
        for _ in range(3):
            traps.set(1, "step", "exit")
            envs.step([1] * 4)
            envs.step([1] * 4)
            time.sleep(0.25)
        assert not traps.is_set(1, "step")


@each_process
def test_a_reset_that_always_kills(setup: Setup, traps: Traps) -> None:
    with played("sync", trapped(setup, traps), **options(setup, 3)) as envs:
        traps.set(1, "reset", "kill", always=True)
        with pytest.raises(agym.CrashLoopError) as caught:
            envs.reset()
        assert len(caught.value.faults) == 4
        envs.reset(env_ids=[2, 3])
        assert envs.step([1, 1], env_ids=[2, 3]).observations[:, 1].tolist() == [1, 1]


@each_process
@pytest.mark.parametrize("limit", [0, 2])
def test_a_constructor_that_always_kills(setup: Setup, limit: int, traps: Traps) -> None:
    traps.set(1, "make", "exit", always=True)
    with (
        pytest.raises(agym.CrashLoopError) as caught,
        played("sync", trapped(setup, traps), **options(setup, limit)),
    ):
        pass
    assert len(caught.value.faults) == limit + 1
    assert {fault.operation for fault in caught.value.faults} == {"make"}


@each_process
def test_first_k_of_a_worker_that_is_given_up(setup: Setup, traps: Traps) -> None:
    """It is told once; the others' results come."""
    with played("sync", trapped(setup, traps), **options(setup, 0)) as envs:
        envs.reset(seed=3)
        traps.set(0, "step", "kill")
        envs.send([5, 6, 7, 8])
        got, errors = [], 0
        while True:
            try:
                got += envs.recv().env_ids.tolist()
            except agym.CrashLoopError:
                errors += 1
            except agym.NothingSentError:
                break
        assert errors == 1
        assert {2, 3} <= {*got} <= {1, 2, 3}
        assert len(got) == len({*got})


@pytest.mark.filterwarnings("ignore:worker 0, a thread")
def test_a_thread_that_hangs_again_and_again(traps: Traps) -> None:
    with played("sync", traps.factories(4), **options(THREAD, 1, timeout=deadline(0.2))) as envs:
        envs.reset(seed=3)
        traps.set(1, "step", "hang", always=True)
        assert "fault" in envs.step([1] * 4).infos[1]
        envs.step([1] * 4)
        with pytest.raises(agym.CrashLoopError) as caught:
            envs.step([1] * 4)
        assert [fault.kind for fault in caught.value.faults] == ["timeout"] * 2
        traps.clear(1, "step")
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        assert envs.step([1] * 4).observations[:2, 1].tolist() == [1, 1]
        traps.release()
    wait_for_threads()
