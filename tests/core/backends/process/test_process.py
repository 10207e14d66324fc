"""Worker processes: how they start, what they share, and how each of them ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from agym.backends import Process
from agym.core.backends.process import process_port
from agym.testing import World, assert_same
from agym.testing.law import play
from tests.support.backends import FORK
from tests.support.drivers import APIS, opened
from tests.support.envs.plain_envs import Counted, Probe, Tally
from tests.support.patience import patience


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_start_methods(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws run on forks: others have the same results and name a dead worker as well."""
    monkeypatch.setattr(process_port, "EXIT_CODE_SECONDS", patience())  # a fork server tells it
    api = "async" if method == "forkserver" else "sync"
    world = World(Process(start_method=method), api, autoreset="next_step", workers=2)
    with world.open(5) as envs, world.serial.open(5) as serial:
        assert_same(play(envs), play(serial))
        pid = envs.call("pid")[0]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(agym.WorkerDied, match="SIGKILL") as caught:
            envs.step([0] * 5)
        assert (caught.value.pid, caught.value.exitcode) == (pid, -signal.SIGKILL)
        assert envs.restart() == [0, 1]
        envs.reset()
        assert envs.step([4] * 5).observations[:, 2:].tolist() == [[1, 4]] * 5


@pytest.mark.parametrize(
    ("num_envs", "workers", "sizes"), [(7, 3, [2, 2, 3]), (3, 8, [1, 1, 1]), (1, None, [1])]
)
def test_environments_are_dealt_in_contiguous_ranges(
    num_envs: int, workers: int | None, sizes: list[int]
) -> None:
    with agym.make(Probe, num_envs, backend=FORK, workers=workers) as envs:
        pids = envs.pid()
        assert os.getpid() not in pids
        assert [len(list(group)) for _, group in groupby(pids)] == sizes


def test_a_worker_per_core_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_port, "available_cores", lambda: 2)
    with agym.make(Probe, 5, backend=FORK) as envs:
        assert len({*envs.pid()}) == 2


@pytest.mark.parametrize("api", APIS)
def test_each_environment_is_constructed_once_and_never_here(api: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    options: dict[str, Any] = {"backend": FORK, "workers": 2}
    with opened(api, partial(Counted, str(log)), 5, **options) as envs:
        assert envs.single_observation_space == Tally().observation_space
        envs.reset()
        envs.step(envs.action_space.sample())
    lines = [line.split() for line in log.read_text().splitlines()]
    assert Counter(what for what, _ in lines) == {"made": 5, "closed": 5}
    assert str(os.getpid()) not in {pid for _, pid in lines}


def test_workers_start_from_any_thread() -> None:
    def play(_: int) -> Any:
        with agym.make(Tally, 2, backend=FORK, workers=1) as envs:
            envs.reset()
            return envs.step([1, 2]).infos

    with ThreadPoolExecutor(2) as pool:
        results = [*pool.map(play, range(2))]
    assert results == [[{"now": 1, "action": 1}, {"now": 1, "action": 2}]] * 2


def test_a_runner_that_is_forgotten_ends_its_workers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    envs = agym.make(partial(Counted, str(log)), 2, backend=FORK, workers=2)
    envs.reset()
    del envs
    gc.collect()
    assert log.read_text().count("closed") == 2


async def test_arguments_and_answers_of_any_size() -> None:
    """Far more than a socket buffers, in both directions at once; answers can be written to."""
    async with agym.make_async(Probe, 2, backend=FORK, workers=2) as envs:
        for size in (10, 3_000_000):
            big = np.arange(size, dtype=np.uint8)
            for k, answers in enumerate(
                await asyncio.gather(*[envs.call("echo", big + k) for k in range(4)])
            ):
                for answer in answers:
                    assert np.array_equal(answer, big + k)
                    answer[:] = 7  # it is the only one that changes


def test_values_of_classes_that_only_the_caller_knows() -> None:
    class Local:
        def __init__(self, word: str) -> None:
            self.word = word

    with agym.make(Probe, 2, backend=FORK, workers=1) as envs:
        answers = envs.echo(Local("told"))
        assert [(type(answer), answer.word) for answer in answers] == [(Local, "told")] * 2


def test_a_worker_that_is_killed_in_the_middle_of_a_step() -> None:
    """All that waits for the worker fails, and other steps in flight go on."""
    with World(FORK, "async", workers=3).open(3) as player:
        player.reset()
        for i in (0, 1):
            player.script.set(i, "step", "wait")

        async def run(envs: agym.AsyncEnvs) -> None:
            pids = await envs.call("pid")
            some = envs.step([1], env_ids=[0])
            others = envs.step([1, 2], env_ids=[1, 2])
            behind = envs.render()
            os.kill(pids[0], signal.SIGKILL)
            with pytest.raises(agym.WorkerDied, match="environment 0"):
                await some
            await asyncio.to_thread(player.script.open, 1)
            assert (await others).observations[:, 3].tolist() == [1, 2]
            with pytest.raises(agym.WorkerDied):
                await behind

        player.run(run(player.envs))


@pytest.mark.parametrize("api", APIS)
def test_a_death_while_idle_names_the_last_operation(api: Any) -> None:
    with World(FORK, api, workers=2).open(4) as envs:
        envs.reset()
        pid = envs.stats().workers[0].pid
        envs.render([1])
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(agym.WorkerDied) as caught:
            envs.step([0], env_ids=[0])
        assert caught.value.operations[1] == "idle after render"


@pytest.mark.full
def test_a_fork_does_not_run_the_callers_sigterm_handler() -> None:
    """Its exit would be taken for a failure of the environment's ``close``."""

    def end(*_: object) -> None:
        sys.exit(5)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with World(FORK).open(1) as envs:
            envs.script.set(0, "close", "wait")  # the worker is terminated after a grace
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)
