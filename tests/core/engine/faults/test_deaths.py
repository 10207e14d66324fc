"""A worker that dies is noticed, whatever it was doing, and named; the others stay usable."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

import agym
from agym.backends import Process
from tests.support.drivers import Setup, each_api, played
from tests.support.envs.trapped_envs import DEATHS, Traps
from tests.support.patience import patience
from tests.support.scenarios import COROUTINES, PROCESS, over, rows, trapped

each_process = over(PROCESS, COROUTINES)
CALLS: dict[str, Any] = {
    "reset": lambda envs: envs.reset(),
    "step": lambda envs: envs.step([1, 2, 3, 4]),
    "render": lambda envs: envs.render(),
    "call": lambda envs: envs.call("add", 1),
}


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("where", CALLS)
@each_process
def test_it_dies_while_it_does_something(setup: Setup, where: str, how: str, traps: Traps) -> None:
    with played("sync", trapped(setup, traps), **setup.options) as envs:
        pids = envs.get_attr("_id"), envs.call("pid")
        envs.reset(seed=3)
        traps.set(1, where, how)
        with pytest.raises(agym.WorkerDied) as caught:
            CALLS[where](envs)
        error = caught.value
        assert (error.worker, error.pid, error.exitcode) == (0, pids[1][0], DEATHS[how])
        name = None if how == "exit" else signal.Signals(-DEATHS[how]).name
        assert error.signal == name
        assert error.env_ids == (0, 1)
        assert error.operations[1] == where
        assert error.operations.keys() == {0, 1}
        for part in (f"pid {error.pid}", name or "exit code 3", "0 to 1"):
            assert part in str(error)
        _bring_back(envs)


def _bring_back(envs: Any) -> None:
    """The other worker's environments go on; the dead ones are refused, and can be had again."""
    now = [row[0][1] for row in rows(envs.step([7, 8], env_ids=[2, 3]))]
    calls: list[Callable[[], Any]] = [
        lambda: envs.step([0] * 4),
        lambda: envs.step([0], env_ids=[1]),
        lambda: envs.reset(env_ids=[0]),
        lambda: envs.render([1]),
        lambda: envs.send([0], [0]),
    ]
    for call in calls:
        with pytest.raises(agym.WorkerDied, match="worker 0"):
            call()
    assert envs.restart() == [0, 1]
    assert envs.restart() == []
    with pytest.raises(agym.ResetNeededError, match=r"environment 0 was restarted.*\[0, 1\]"):
        envs.step([0] * 4)
    envs.reset(seed=5, env_ids=[0, 1])
    after = rows(envs.step([5, 6, 7, 8]))
    assert [row[0][1:] for row in after] == [[1, 5], [1, 6], [now[0] + 1, 7], [now[1] + 1, 8]]


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_whichever_way_it_was_started(start_method: str, traps: Traps) -> None:
    options = {"backend": Process(start_method=start_method), "workers": 2}
    with played("async", traps.factories(4), **options) as envs:
        envs.reset()
        traps.set(1, "step", "segv")
        with pytest.raises(agym.WorkerDied) as caught:
            envs.step([1, 2, 3, 4])
        assert caught.value.signal == "SIGSEGV"
        _bring_back(envs)


@each_api
@each_process
def test_it_is_killed_while_it_idles(api: str, setup: Setup, traps: Traps) -> None:
    """By the next call of its environments at the latest, and by a call that waits at once."""
    with played(api, trapped(setup, traps), **setup.options) as envs:
        envs.reset()
        victim = envs.call("pid")[3]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(agym.WorkerDied) as caught:
            _step_until_noticed(envs)
        error = caught.value
        assert (error.worker, error.pid, error.signal) == (1, victim, "SIGKILL")
        assert error.env_ids == (2, 3)
        assert envs.step([1, 1], env_ids=[0, 1]) is not None
        assert envs.restart([2]) == [2, 3]  # what died with it comes with it
        envs.reset(env_ids=[2, 3])
        assert [row[0][1] for row in rows(envs.step([0, 0], env_ids=[2, 3]))] == [1, 1]


def _step_until_noticed(envs: Any) -> None:
    end = time.monotonic() + patience()
    while time.monotonic() < end:
        envs.step([0, 0], env_ids=[2, 3])


@each_api
def test_its_last_operation_is_told_when_it_idled(api: str, traps: Traps) -> None:
    with played(api, traps.factories(4), **PROCESS.options) as envs:
        envs.reset()
        pid = envs.call("pid")[0]
        envs.render([1])
        os.kill(pid, signal.SIGKILL)
        _wait_for_end(pid)
        with pytest.raises(agym.WorkerDied) as caught:
            envs.step([0], env_ids=[0])
        assert caught.value.operations[1] == "idle after render"


def _wait_for_end(pid: int) -> None:
    end = time.monotonic() + patience()
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.002)


@each_process
def test_all_workers_die(setup: Setup, traps: Traps) -> None:
    with played("sync", trapped(setup, traps), **setup.options) as envs:
        envs.reset()
        for i in (1, 2):
            traps.set(i, "step", "exit")
        with pytest.raises(ExceptionGroup) as caught:
            envs.step([0] * 4)
        errors: Any = caught.value.exceptions
        assert sorted(error.env_ids for error in errors) == [(0, 1), (2, 3)]
        assert envs.restart() == [0, 1, 2, 3]
        envs.reset()
        assert [row[0][1] for row in rows(envs.step([0] * 4))] == [1] * 4


@each_api
@each_process
@pytest.mark.parametrize("how", ["kill", "exit"])
def test_it_dies_while_the_first_environments_are_made(
    api: str, setup: Setup, how: str, traps: Traps
) -> None:
    traps.set(2, "make", how)
    with (
        pytest.raises(agym.WorkerDied) as caught,
        played(api, trapped(setup, traps), **setup.options),
    ):
        pass
    assert caught.value.env_ids == (2, 3)
    assert caught.value.exitcode == DEATHS[how]
    assert set(caught.value.operations.values()) == {"make"}


@each_process
@pytest.mark.parametrize("how", ["kill", "exit", "plain", "system-exit"])
def test_a_restart_fails_and_the_next_does_not(setup: Setup, how: str, traps: Traps) -> None:
    with played("sync", trapped(setup, traps), **setup.options) as envs:
        envs.reset()
        traps.set(1, "step", "exit")
        with pytest.raises(agym.WorkerDied):
            envs.step([0] * 4)
        traps.set(1, "make", how)
        with pytest.raises((agym.WorkerDied, agym.EnvError)) as caught:
            envs.restart()
        if how not in DEATHS:
            assert "boom" in str(caught.value)
        with pytest.raises((agym.WorkerDied, agym.EnvError)):
            envs.step([0], env_ids=[0])
        assert envs.step([5, 6], env_ids=[2, 3]) is not None
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        assert [row[0][1:] for row in rows(envs.step([5, 6, 7, 8]))][:2] == [[1, 5], [1, 6]]


@pytest.mark.parametrize("setup", [PROCESS, COROUTINES], ids=["plain", "coroutines"])
def test_environments_are_restarted_that_live(setup: Setup, traps: Traps) -> None:
    """Their worker stays; only they are made anew."""
    with played("sync", trapped(setup, traps), **setup.options) as envs:
        envs.reset(seed=3)
        pids = envs.call("pid")
        envs.step([0] * 4)
        assert envs.restart([1, 2]) == [1, 2]
        assert envs.call("pid") == pids
        envs.reset(env_ids=[1, 2])
        assert [row[0][1] for row in rows(envs.step([0] * 4))] == [2, 1, 1, 2]


async def test_environments_are_restarted_that_are_busy(traps: Traps) -> None:
    async with agym.make_async(traps.factories(4), **PROCESS.options) as envs:
        await envs.reset()
        traps.set(1, "step", "hang")
        step = envs.step([0, 0], env_ids=[0, 1])
        with pytest.raises(agym.BusyError, match="environment 1 is busy with step"):
            envs.restart([1, 2])
        traps.release()
        await step
        assert await envs.restart([1, 2]) == [1, 2]
