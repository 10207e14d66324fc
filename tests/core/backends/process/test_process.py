"""Worker processes: how they start, what they share, and how each of them ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from agym.backends import Process
from agym.core._system.cpus import core_numbers
from agym.core.backends.process.worker_process import THREAD_VARIABLES
from tests.support.backends import FORK
from tests.support.drivers import APIS, opened
from tests.support.envs.faulty_envs import Exits
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Counted, Probe, Tally
from tests.support.patience import deadline
from tests.support.skips import needs_linux

METHODS = ("spawn", "forkserver", "fork")
each_method = pytest.mark.parametrize("method", METHODS)


# ---------------------------------------------------------------- start


@pytest.mark.usefixtures("fork_server")
@each_method
def test_start_methods(method: str) -> None:
    with (
        agym.make("CartPole-v1", 5, backend=Process(start_method=method), workers=2) as envs,
        agym.make("CartPole-v1", 5) as serial,
    ):
        serial.action_space.seed(0)
        ours, theirs = envs.reset(seed=1), serial.reset(seed=1)
        for _ in range(30):
            assert np.array_equal(ours.observations, theirs.observations)
            actions = serial.action_space.sample()
            ours, theirs = envs.step(actions), serial.step(actions)


def test_environments_are_dealt_in_contiguous_ranges() -> None:
    with agym.make(Probe, 7, backend=FORK, workers=3) as envs:
        pids = envs.pid()
        assert os.getpid() not in pids
        assert [len(list(group)) for _, group in groupby(pids)] == [2, 2, 3]


def test_no_more_workers_than_environments() -> None:
    with agym.make(Probe, 3, backend=FORK, workers=8) as envs:
        assert len(set(envs.pid())) == 3
        envs.reset()
        envs.step([0, 0, 0])


def test_a_worker_per_core_by_default() -> None:
    with agym.make(Probe, 4, backend=FORK) as envs:
        assert len(set(envs.pid())) <= len(core_numbers())


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


@pytest.mark.once
@needs_linux  # elsewhere a worker has a thread that watches its caller
@pytest.mark.usefixtures("fork_server")
@each_method
def test_thread_pools_are_capped_in_workers_and_not_here(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with agym.make(Probe, 2, backend=Process(start_method=method), workers=2) as envs:
        for name in THREAD_VARIABLES:
            assert envs.environment(name) == ["1", "1"]
        if method != "fork":  # a fork has the libraries loaded already
            assert envs.native_threads() == [1, 1]
    assert dict(os.environ) == before


@needs_linux
def test_shared_memory_has_no_name() -> None:
    with agym.make(Probe, 2, backend=Process(start_method="spawn"), workers=2) as envs:
        envs.reset()
        for maps in envs.maps():
            assert "memfd:agym" in maps
            assert "/dev/shm" not in maps


def test_workers_start_from_any_thread() -> None:
    results: list[Any] = []

    def play() -> None:
        with agym.make(Tally, 2, backend=FORK, workers=1) as envs:
            envs.reset()
            results.append(envs.step([1, 2]).infos)

    threads = [threading.Thread(target=play) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[{"now": 1, "action": 1}, {"now": 1, "action": 2}]] * 2


def test_a_runner_that_is_forgotten_ends_its_workers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    envs = agym.make(partial(Counted, str(log)), 2, backend=FORK, workers=2)
    envs.reset()
    del envs
    gc.collect()
    assert log.read_text().count("closed") == 2


# ---------------------------------------------------------------- data


def test_large_arguments_and_answers() -> None:
    """Far more than a socket buffers, in both directions at once."""
    big = np.arange(3_000_000, dtype=np.uint8)

    async def main() -> None:
        async with agym.make_async(Probe, 4, backend=FORK, workers=2) as envs:
            pending = [envs.call("echo", big + k) for k in range(4)]
            for k, answers in enumerate(await asyncio.gather(*pending)):
                assert all(np.array_equal(answer, big + k) for answer in answers)

    asyncio.run(main())


def test_answers_can_be_written_to() -> None:
    with agym.make(Probe, 1, backend=FORK) as envs:
        for size in (10, 1_000_000):
            (first,) = envs.echo(np.zeros(size))
            first[:] = 1
            (second,) = envs.echo(np.zeros(size))
            assert first.all()
            assert not second.any()


def test_values_of_classes_that_only_the_caller_knows() -> None:
    class Local:
        def __init__(self, word: str) -> None:
            self.word = word

    with agym.make(Probe, 2, backend=FORK, workers=1) as envs:
        answers = envs.echo(Local("told"))
        assert [type(answer) for answer in answers] == [Local] * 2
        assert [answer.word for answer in answers] == ["told"] * 2


# ---------------------------------------------------------------- death


def assert_others_are_usable(envs: Any) -> None:
    """Environments 2 and 3 go on, 0 and 1 are told to be dead each time, and nobody hangs."""
    for use in (
        partial(envs.step, [0, 0, 0, 0]),
        partial(envs.step, [0], env_ids=[1]),
        envs.reset,
        envs.render,
        partial(envs.get_attr, "length"),
    ):
        with pytest.raises(agym.WorkerDied):
            use()
    envs.reset(env_ids=[2, 3])
    assert len(envs.step([0, 0], env_ids=[2, 3]).infos) == 2
    assert len(envs.render(env_ids=[3])) == 1


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@each_method
@pytest.mark.parametrize("api", APIS)
def test_a_killed_worker(api: str, method: str) -> None:
    options: dict[str, Any] = {"backend": Process(start_method=method), "workers": 2}
    with opened(api, partial(Probe, length=99), 4, **options) as envs:
        envs.reset()
        pids = envs.call("pid")
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(agym.WorkerDied, match="environments 0 to 1") as caught:
            envs.step([0, 0, 0, 0])
        error = caught.value
        assert error.env_ids == (0, 1)
        assert error.exitcode == -signal.SIGKILL
        assert (error.pid, error.worker) == (pids[0], 0)
        assert "SIGKILL" in str(error)
        assert_others_are_usable(envs)


@pytest.mark.once
@pytest.mark.parametrize("api", APIS)
def test_an_environment_that_exits(api: str) -> None:
    factories = [Exits] * 4
    with opened(
        api,
        [partial(factory, 3) for factory in factories],
        backend=FORK,
        workers=2,
    ) as envs:
        envs.reset()
        with pytest.raises(agym.WorkerDied, match="exit code 3") as caught:
            envs.step([0, 9, 0, 0])
        assert caught.value.env_ids == (0, 1)
        assert caught.value.exitcode == 3
        assert_others_are_usable(envs)


@pytest.mark.full
def test_an_environment_that_exits_in_its_constructor() -> None:
    factories = [Tally, Tally, partial(Exits, 5, at_once=True), Tally]
    with pytest.raises(agym.WorkerDied, match="exit code 5") as caught:
        agym.make(factories, backend=FORK, workers=2)
    assert caught.value.env_ids == (2, 3)


async def test_a_worker_killed_in_the_middle_of_a_step(gates: Gates) -> None:
    async with agym.make_async(gates.factories, backend=FORK, workers=3) as envs:
        await envs.reset()
        pids = await envs.call("pid")
        some = envs.step([1], env_ids=[0])
        others = envs.step([1, 2], env_ids=[1, 2])
        behind = envs.render()
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(agym.WorkerDied, match="environment 0"):
            await some
        gates.open(1)
        assert (await others).observations[:, 2].tolist() == [1, 2]
        with pytest.raises(agym.WorkerDied):
            await behind
        result = await envs.step([3, 4], env_ids=[1, 2])
        assert result.observations[:, 1:].tolist() == [[2, 3], [2, 4]]


@pytest.mark.full
def test_all_workers_killed() -> None:
    with agym.make(Probe, 4, backend=FORK, workers=2) as envs:
        envs.reset()
        for pid in set(envs.pid()):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ExceptionGroup) as caught:
            envs.step([0, 0, 0, 0])
        assert {type(error) for error in caught.value.exceptions} == {agym.WorkerDied}
        with pytest.raises(agym.WorkerDied):
            envs.reset()


@pytest.mark.full
def test_a_worker_that_hangs_is_ended_by_close(gates: Gates) -> None:
    """Also one that ignores SIGTERM; the fixture proves that nothing is left of it."""

    async def main() -> None:
        async with agym.make_async(gates.factories, backend=FORK, workers=2) as envs:
            await envs.reset()
            await envs.call("ignore_sigterm")
            envs.step([1, 0, 0])

    asyncio.run(main())


class NeverCloses(Probe):
    def close(self) -> None:
        time.sleep(60)


@pytest.mark.full
def test_a_fork_does_not_run_the_callers_sigterm_handler() -> None:
    """Its exit would be taken for a failure of the environment's ``close``."""

    def end(*_: object) -> None:
        sys.exit(5)

    before = signal.signal(signal.SIGTERM, end)
    try:
        envs = agym.make(NeverCloses, 1, backend=FORK)
        envs.close()  # terminates the worker after a grace
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)


# ---------------------------------------------------------------- deadlines


@pytest.mark.once
@pytest.mark.parametrize("api", APIS)
def test_a_missed_deadline(api: str, gates: Gates) -> None:
    with opened(
        api,
        gates.factories,
        backend=FORK,
        workers=3,
        timeout=deadline(0.5),
    ) as envs:
        envs.reset()
        with pytest.raises(agym.StepTimeout, match="environment 1") as caught:
            envs.step([2, 1, 2])
        assert caught.value.env_ids == (1,)
        assert caught.value.operation == "step"
        # The others go on, while another takes its worker's place.
        quick = envs.step([4, 5], env_ids=[0, 2])
        assert [list(o)[1:] for o in quick.observations] == [[2, 4], [2, 5]]
        observations, _ = envs.reset(env_ids=[1])
        assert [list(o) for o in observations] == [[1, 2, 4], [1, 0, -1], [1, 2, 5]]
        result = envs.step([6, 2, 8])
        assert [list(o)[1:] for o in result.observations] == [[3, 6], [1, 2], [3, 8]]
        assert [info["action"] for info in result.infos] == [6, 2, 8]


@pytest.mark.full
def test_a_missed_deadline_of_a_call(gates: Gates) -> None:
    with agym.make(gates.factories, backend=FORK, workers=3, timeout=deadline(0.5)) as envs:
        with pytest.raises(agym.StepTimeout) as caught:
            envs.wait()
        assert caught.value.operation == "call"
        assert caught.value.env_ids == (0, 1, 2)
        assert len(envs.reset().observations) == 3


def test_no_deadline_is_missed_by_quick_operations() -> None:
    with agym.make(Tally, 2, backend=FORK, workers=1, timeout=30) as envs:
        envs.reset()
        for _ in range(100):
            envs.step([0, 0])
