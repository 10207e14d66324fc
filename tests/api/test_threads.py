"""The sync API in several threads, what is not a law: other APIs, deadlines, deaths and forks."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from agym.testing import Script
from tests.support.backends import FORK
from tests.support.envs.plain_envs import Probe
from tests.support.patience import deadline
from tests.support.scripts import run


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize("library", ["gymnasium", "sb3"])
def test_a_vector_environment_refuses_a_second_thread(
    library: str, backend: str, script: Script
) -> None:
    """The second thread gets an error, and does not wait for the first."""
    if library == "sb3":
        pytest.importorskip("stable_baselines3")
    kind = agym.AgymVectorEnv if library == "gymnasium" else agym.sb3.AgymVecEnv
    envs: Any = kind(script.factories(3), backend=backend)
    with contextlib.closing(envs), ThreadPoolExecutor(1) as pool:
        envs.reset()
        actions = np.zeros(3, int)
        script.set(0, "step", "wait")
        call = pool.submit(envs.step, actions)
        with (
            Path(script.gate(0).path).open("w"),
            pytest.raises(agym.BusyError, match="environment 0"),
        ):
            envs.step(actions)
        assert len(call.result()[1]) == 3
        assert len(envs.step(actions)[1]) == 3


@pytest.mark.full
def test_a_missed_deadline_is_raised_in_its_thread_only(script: Script) -> None:
    factories = script.factories(3, length=99)
    with agym.make(factories, backend=FORK, workers=3, timeout=deadline(1.5)) as envs:
        envs.reset()
        script.set(0, "step", "wait")
        with ThreadPoolExecutor(2) as pool:
            late = pool.submit(envs[0].step, 1)
            for _ in range(20):
                assert envs[1].step(0)
            assert isinstance(late.exception(), agym.StepTimeout)


def test_a_worker_that_dies_while_threads_play() -> None:
    options: Any = {"backend": FORK, "workers": 2, "autoreset": "next_step"}
    with agym.make(Probe, 6, on_fault="restart", **options) as envs:
        envs.reset()

        def play(env: agym.EnvHandle[Any, int]) -> int:
            faults = 0
            for k in range(40):
                if env.index == 0 and k == 10:
                    os.kill(env.call("pid"), 9)
                faults += "fault" in env.step(0)[4]
            return faults

        with ThreadPoolExecutor(6) as pool:
            faults = [*pool.map(play, envs)]
        assert faults[0] == 1
        assert sum(faults) <= 6


@pytest.mark.full
def test_a_fork_while_another_thread_waits(tmp_path: Path) -> None:
    code, out, err = run(
        tmp_path,
        """
        import os, threading, warnings
        import agym
        from tests.support.envs.plain_envs import Tally

        warnings.simplefilter("ignore", DeprecationWarning)  # of forks in programs with threads
        envs = agym.make(Tally, 2, backend="process", autoreset="next_step")
        envs.reset()
        stop = threading.Event()

        def play():
            while not stop.is_set():
                envs[0].step(1)

        player = threading.Thread(target=play)
        player.start()
        for _ in range(10):
            child = os.fork()
            if not child:
                try:
                    envs[1].step(1)
                except agym.ClosedError:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        stop.set()
        player.join()
        envs.close()
        print("done")
        """,
    )
    assert (code, out, err) == (0, "done\n", "")
