"""Worker processes and the caller's thread, which steps the last range itself.

``tests/laws/test_backends.py`` has what is promised of every backend, and
``tests/core/backends/test_ctrl_c_in_steps.py`` what happens by Ctrl-C at any line.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core.backends.options import ProcessWithCaller
from agym.testing import World, assert_same
from agym.testing.laws.lifecycle import made
from tests.support.envs.plain_envs import Counted, Tally
from tests.support.insides import backend_of
from tests.support.patience import patience

FORK = ProcessWithCaller(start_method="fork")
WORLD = World(FORK, "sync", "next_step", workers=2)
NUM_ENVS = 5
HERE = range(3, 5)


@pytest.fixture
def envs() -> Iterator[Any]:
    with WORLD.open(NUM_ENVS, length=100) as envs:
        envs.reset()
        yield envs


def assert_usable(envs: Any) -> None:
    envs.reset()
    for k in range(1, 4):
        assert envs.step([k] * NUM_ENVS).observations[:, 2:].tolist() == [[k, k]] * NUM_ENVS


@contextmanager
def while_the_worker_steps(envs: Any, act: Callable[[], Any]) -> Iterator[None]:
    """Act while the caller has stepped its range, and waits for environment 1."""
    for i in (0, 1):
        envs.script.set(i, "step", "wait")

    def run() -> None:
        envs.script.open(0)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


def test_the_last_range_is_stepped_here(envs: Any) -> None:
    here = os.getpid()
    assert [pid == here for pid in envs.call("pid")] == [False] * 3 + [True] * 2
    envs.step([0] * NUM_ENVS)
    assert f"num_envs={NUM_ENVS}, backend='process'" in repr(envs.envs)
    stats = envs.stats()
    assert [list(worker.env_ids) for worker in stats.workers] == [[0, 1, 2], [3, 4]]
    assert [worker.pid == here for worker in stats.workers] == [False, True]
    assert [env.steps for env in stats.envs] == [1] * NUM_ENVS
    busy = time.process_time() + 0.1
    while time.process_time() < busy:
        pass
    assert vars(envs.stats().cores)["program"] > 0  # this process is not counted as a worker
    with pytest.raises(agym.UsageError, match="this program runs some of them"):
        agym.chaos(envs.envs, kill=0.1)


@pytest.mark.parametrize(
    ("num_envs", "workers", "sizes"),
    [(64, 2, [34, 30]), (16, 2, [8, 8]), (64, 4, [16, 16, 17, 15]), (3, 3, [1, 1, 1]), (1, 2, [1])],
)
def test_the_callers_range_is_a_little_shorter(
    num_envs: int, workers: int, sizes: list[int]
) -> None:
    with agym.make(Tally, num_envs, backend=FORK, workers=workers) as envs:
        assert [len(ids) for ids in backend_of(envs).ranges] == sizes
        assert len(envs.reset(seed=0).infos) == len(envs.step([0] * num_envs).infos) == num_envs


# ---------------------------------------------------------------- what goes wrong


def test_what_waits_for_a_row_is_sent_although_another_ends() -> None:
    """Resets that wait for a step are sent as its rows become free, in the thread that takes it."""
    with WORLD.with_options(workers=3).open(6) as envs, ThreadPoolExecutor(3) as threads:
        envs.reset()
        for i in (0, 2):
            envs.script.set(i, "step", "wait")
        envs.script.set(5, "reset", "system exit")
        envs.send([0] * 6)
        ended, *others = (threads.submit(envs.reset, env_ids=[i]) for i in (5, 0, 3))
        for i in (0, 2):
            envs.script.open(i)
        for other in others:
            assert len(other.result(patience()).observations) == 6
        with pytest.raises(SystemExit):
            ended.result(patience())
        assert sum(len(batch.env_ids) for batch in envs.as_completed()) == 6
        envs.reset()
        assert envs.step([1] * 6).observations[:, 2].tolist() == [1] * 6


def test_a_restart_that_is_interrupted_can_be_repeated(envs: Any) -> None:
    envs.script.set(4, "make", "interrupt")
    with pytest.raises(KeyboardInterrupt):
        envs.restart([4])
    envs.restart([4])
    assert_usable(envs)


@pytest.mark.parametrize("operation", ["step", "some", "send", "reset"])
@pytest.mark.parametrize("act", ["interrupt", "system exit"])
def test_an_interrupt_here_leaves_nothing_half_done(act: str, operation: str, envs: Any) -> None:
    """While the others are still stepping; what they finish later is not seen."""
    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: envs.step([8] * NUM_ENVS),
        "some": lambda: envs.step([8, 8], env_ids=[0, 4]),
        "send": lambda: envs.send([8, 8], [0, 4]),
        "reset": envs.reset,
    }
    where = "reset" if operation == "reset" else "step"
    latest = envs.reset(seed=0).observations
    for _ in range(2):
        envs.script.set(0, where, "wait")
        envs.script.set(4, where, act)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            calls[operation]()
        with pytest.raises(agym.ResetNeededError, match=f"interrupted in {where}"):
            envs.step([1] * NUM_ENVS)
        assert_same(envs.reset(env_ids=HERE).observations[:3], latest[:3])
        assert envs.step([2, 3], env_ids=HERE).observations[:, 3].tolist() == [2, 3]
        envs.script.open(0)
        assert_usable(envs)
        latest = envs.reset(seed=0).observations


def test_ctrl_c_while_the_caller_waits(envs: Any) -> None:
    """The step goes on, as with worker processes alone."""
    interrupt = partial(signal.raise_signal, signal.SIGINT)
    with while_the_worker_steps(envs, interrupt), pytest.raises(KeyboardInterrupt):
        envs.step([1] * NUM_ENVS)
    envs.script.open(1)
    assert_usable(envs)


@pytest.mark.parametrize("during", ["step", "pause"])
def test_a_worker_that_is_killed_takes_its_own_range_along(during: str, envs: Any) -> None:
    kill = partial(os.kill, envs.stats().workers[0].pid, signal.SIGKILL)
    killing = while_the_worker_steps(envs, kill) if during == "step" else nullcontext(kill())
    with killing, pytest.raises(agym.WorkerDied, match="SIGKILL") as caught:
        envs.step([1] * NUM_ENVS)
    assert [*caught.value.env_ids] == [0, 1, 2]
    assert [worker.pid for worker in envs.stats().workers] == [None, os.getpid()]
    assert len(envs.step([1, 1], env_ids=HERE).rewards) == 2
    envs.script.clear(1, "step")  # it may have died before that
    assert envs.restart() == [0, 1, 2]
    assert_usable(envs)


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("way", ["close", "interrupted", "killed", "forgotten"])
def test_all_that_were_made_are_closed(way: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    envs = agym.make(partial(Counted, str(log)), NUM_ENVS, backend=FORK, workers=2)
    envs.reset()
    if way == "interrupted":
        with pytest.raises(KeyboardInterrupt), envs:
            raise KeyboardInterrupt
    if way == "killed":
        os.kill(int(envs.stats().workers[0].pid or 0), signal.SIGKILL)
    if way == "forgotten":
        del envs
        gc.collect()
    else:
        envs.close()
        envs.close()
    lines = [line.split() for line in log.read_text().splitlines()]
    told = Counter((what, pid == str(os.getpid())) for what, pid in lines)
    there = 0 if way == "killed" else 3
    assert told["made", True] == told["closed", True] == 2
    assert (told["made", False], told["closed", False]) == (3, there)


def test_interrupted_while_it_is_made() -> None:
    with pytest.raises(KeyboardInterrupt), made(WORLD, [3], "interrupt"):
        pass


def test_a_fork_has_none_of_it(envs: Any) -> None:
    child = os.fork()
    if not child:
        try:
            envs.step([1] * NUM_ENVS)
        except agym.ClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert_usable(envs)
