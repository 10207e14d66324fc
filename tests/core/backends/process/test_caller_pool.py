"""Worker processes and the caller's thread, which steps the last range itself.

``tests/laws/test_backends.py`` has what is promised of every backend.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core.backends.options import ProcessWithCaller
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Counted, Result, Tally
from tests.support.equality import same
from tests.support.insides import backend_of
from tests.support.patience import patience

FORK = ProcessWithCaller(start_method="fork")
NUM_ENVS = 5
HERE = range(3, 5)  # with two workers


class Acts(Raises):
    """Takes its time for action 8, and raises at action 9."""

    def step(self, action: Any) -> Result:
        if action == 8:
            time.sleep(0.3)
        return super().step(action)

    def place(self) -> tuple[int, bool]:
        return os.getpid(), threading.current_thread() is threading.main_thread()

    def sees_a_loop(self) -> bool:
        return asyncio._get_running_loop() is not None


def make(env: Any = Acts, num_envs: int = NUM_ENVS, **options: Any) -> agym.Envs[Any, Any]:
    options = {"backend": FORK, "workers": 2, "autoreset": "next_step", **options}
    return agym.make(env, num_envs, **options)


@pytest.fixture
def envs() -> Iterator[agym.Envs[Any, Any]]:
    with make(partial(Acts, "nowhere")) as envs:
        yield envs


def test_the_last_range_is_stepped_here(envs: agym.Envs[Any, Any]) -> None:
    here = os.getpid()
    assert envs.workers == 2
    assert [pid == here for pid, _ in envs.call("place")] == [False] * 3 + [True] * 2
    assert [main for _, main in envs.call("place")] == [True] * NUM_ENVS
    envs.reset()
    envs.step([0] * NUM_ENVS)
    assert f"num_envs={NUM_ENVS}, backend='process'" in repr(envs)
    stats = envs.stats()
    assert [list(worker.env_ids) for worker in stats.workers] == [[0, 1, 2], [3, 4]]
    assert [worker.pid == here for worker in stats.workers] == [False, True]
    assert [env.steps for env in stats.envs] == [1] * NUM_ENVS
    busy = time.process_time() + 0.1
    while time.process_time() < busy:
        pass
    assert vars(envs.stats().cores)["program"] > 0  # this process is not counted as a worker
    with pytest.raises(agym.UsageError, match="this program runs some of them"):
        agym.chaos(envs, kill=0.1)


@pytest.mark.parametrize(
    ("num_envs", "workers", "sizes"),
    [(64, 2, [34, 30]), (16, 2, [8, 8]), (64, 4, [16, 16, 17, 15]), (3, 3, [1, 1, 1]), (1, 2, [1])],
)
def test_the_callers_range_is_a_little_shorter(
    num_envs: int, workers: int, sizes: list[int]
) -> None:
    with make(Tally, num_envs, workers=workers) as envs:
        assert [len(ids) for ids in backend_of(envs).ranges] == sizes
        assert len(envs.reset(seed=0).infos) == len(envs.step([0] * num_envs).infos) == num_envs


async def test_no_loop_is_seen(envs: agym.Envs[Any, Any]) -> None:
    """As in a notebook, where one runs."""
    with make(partial(Acts, "nowhere")) as envs:
        assert envs.call("sees_a_loop") == [False] * NUM_ENVS


# ---------------------------------------------------------------- what goes wrong


class Ends(Tally):
    """Raises ``SystemExit`` in a reset whose options say so; takes its time for action 9."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if options and options.pop("ends", False):
            raise SystemExit(3)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Result:
        if action == 9:
            time.sleep(0.3)
        return super().step(action)


def test_what_waits_for_a_row_is_sent_although_another_ends() -> None:
    """Resets that wait for a step are sent as its rows become free, in the thread that takes it."""
    with make(Ends, 6, workers=3) as envs, ThreadPoolExecutor(3) as threads:
        envs.reset()
        envs.send([9, 0, 9, 0, 0, 0])
        ended, *others = (
            threads.submit(envs.reset, env_ids=[i], options={"ends": i == 5} if i == 5 else None)
            for i in (5, 0, 3)
        )
        for other in others:
            assert other.result(patience()).observations
        with pytest.raises(SystemExit):
            ended.result(patience())
        assert sum(len(batch.env_ids) for batch in envs.as_completed()) == 6
        envs.reset()
        assert [row[1] for row in envs.step([1] * 6).observations] == [1] * 6


def test_a_restart_that_is_interrupted_can_be_repeated(tmp_path: Path) -> None:
    class Breaks(Tally):
        def __init__(self) -> None:
            super().__init__()
            if (tmp_path / "breaks").exists():
                raise KeyboardInterrupt

    with make(Breaks) as envs:
        envs.reset()
        (tmp_path / "breaks").touch()
        with pytest.raises(KeyboardInterrupt):
            envs.restart([4])
        (tmp_path / "breaks").unlink()
        envs.restart([4])
        envs.reset()
        assert [row[1] for row in envs.step([1] * NUM_ENVS).observations] == [1] * NUM_ENVS


@pytest.mark.parametrize("operation", ["step", "some", "send", "reset"])
@pytest.mark.parametrize("exception", ["keyboard-interrupt", "system-exit"])
def test_an_interrupt_here_leaves_nothing_half_done(exception: str, operation: str) -> None:
    """While the others are still stepping; what they finish later is not seen."""
    error = {"keyboard-interrupt": KeyboardInterrupt, "system-exit": SystemExit}[exception]
    where = "reset" if operation == "reset" else "step"
    calls: dict[str, Any] = {
        "step": lambda envs: envs.step([8, 8, 8, 1, 9]),
        "some": lambda envs: envs.step([8, 9], env_ids=[0, 4]),
        "send": lambda envs: envs.send([8, 9], [0, 4]),
        "reset": lambda envs: envs.reset(),
    }
    with make(partial(Acts, where, exception)) as envs:
        well = {"well": True}
        latest = envs.reset(seed=0, options=well).observations
        for _ in range(2):
            with pytest.raises(error):
                calls[operation](envs)
            with pytest.raises(agym.ResetNeededError, match=f"interrupted in {where}"):
                envs.step([1] * NUM_ENVS)
            some = envs.reset(env_ids=HERE, options=well)
            assert same(some.observations[:3], latest[:3])
            result = envs.step([2, 3], env_ids=HERE)
            assert [row[2] for row in result.observations] == [2, 3]
            envs.reset(seed=0, options=well)
            for k in range(1, 4):
                latest = envs.step([k, 1, 2, 3, 4]).observations
                assert [row[1:].tolist() for row in latest] == [[k, a] for a in (k, 1, 2, 3, 4)]


def test_ctrl_c_while_the_caller_waits() -> None:
    """The step goes on, as with worker processes alone."""
    with make(partial(Acts, "nowhere")) as envs:
        envs.reset()
        timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            envs.step([8, 1, 1, 1, 1])
        timer.join()
        envs.reset()
        assert [row[1] for row in envs.step([1] * NUM_ENVS).observations] == [1] * NUM_ENVS


@pytest.mark.parametrize("during", ["step", "pause"])
def test_a_worker_that_is_killed_takes_its_own_range_along(
    during: str, envs: agym.Envs[Any, Any]
) -> None:
    envs.reset()
    pid = envs.stats().workers[0].pid
    assert pid is not None
    timer = threading.Timer(0.1 if during == "step" else 0.0, os.kill, [pid, signal.SIGKILL])
    timer.start()
    if during == "pause":
        timer.join()
    with pytest.raises(agym.WorkerDied, match="SIGKILL") as caught:
        envs.step([8, 1, 1, 1, 1])
    timer.join()
    assert [*caught.value.env_ids] == [0, 1, 2]
    assert [worker.pid for worker in envs.stats().workers] == [None, os.getpid()]
    assert len(envs.step([1, 1], env_ids=HERE).rewards) == 2
    assert envs.restart() == [0, 1, 2]
    envs.reset()
    for k in range(1, 4):
        assert [row[1] for row in envs.step([1] * NUM_ENVS).observations] == [k] * NUM_ENVS


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("way", ["close", "interrupted", "killed", "forgotten"])
def test_all_that_were_made_are_closed(way: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    envs = make(partial(Counted, str(log)))
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
    with pytest.raises(KeyboardInterrupt):
        make([*[Tally] * 4, partial(Raises, "make", "keyboard-interrupt")], None)


def test_a_fork_has_none_of_it(envs: agym.Envs[Any, Any]) -> None:
    envs.reset()
    child = os.fork()
    if not child:
        try:
            envs.step([1] * NUM_ENVS)
        except agym.ClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(envs.step([1] * NUM_ENVS).rewards) == NUM_ENVS
