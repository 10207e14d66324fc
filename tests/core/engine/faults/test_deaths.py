"""A worker that dies: what the laws do not state."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import pytest

import agym
from agym.backends import Process
from tests.support.drivers import each_api
from tests.support.worlds import PROCESS, steps_of


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_death_is_reported_with_any_start_method(start_method: Any) -> None:
    world = replace(PROCESS, api="async", backend=Process(start_method=start_method))
    with world.open(4, length=9) as envs:
        envs.reset()
        envs.script.set(1, "step", "segv")
        with pytest.raises(agym.WorkerDied) as caught:
            envs.step([1, 2, 3, 4])
        assert caught.value.signal == "SIGSEGV"
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        assert steps_of(envs.step([0] * 4)) == [[1, 0], [1, 0], [2, 0], [2, 0]]


@each_api
def test_a_death_while_idle_names_the_last_operation(api: Any) -> None:
    with replace(PROCESS, api=api).open(4) as envs:
        envs.reset()
        pid = envs.stats().workers[0].pid
        envs.render([1])
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(agym.WorkerDied) as caught:
            envs.step([0], env_ids=[0])
        assert caught.value.operations[1] == "idle after render"
