"""A worker that dies is noticed, whatever it was doing, and named; the others stay usable."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest

import agym
from agym.backends import Process
from tests.support.drivers import Setup, each_api, played
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import patience
from tests.support.scenarios import COROUTINES, PROCESS, over, rows, trapped

each_process = over(PROCESS, COROUTINES)


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
        assert envs.step([7, 8], env_ids=[2, 3]) is not None
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        assert [row[0][1] for row in rows(envs.step([0] * 4))] == [1, 1, 3, 3]


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
def test_a_restart_fails_by_an_exit_and_the_next_does_not(setup: Setup, traps: Traps) -> None:
    """Other failures of a restart are those of a law."""
    with played("sync", trapped(setup, traps), **setup.options) as envs:
        envs.reset()
        traps.set(1, "step", "exit")
        with pytest.raises(agym.WorkerDied):
            envs.step([0] * 4)
        traps.set(1, "make", "system-exit")
        with pytest.raises((agym.WorkerDied, agym.EnvError), match="boom"):
            envs.restart()
        assert envs.restart() == [0, 1]
        envs.reset()
        assert [row[0][1] for row in rows(envs.step([0] * 4))] == [1] * 4
