"""Statistics: what they say, on every backend, and that they ask nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any

import psutil
import pytest

import agym
from agym.core._system.cpus import core_numbers
from agym.core._system.load import CoreUse, Load
from agym.core.engine.calls.traffic import BATCHES_PER_SAMPLE, Traffic
from agym.core.engine.hooks import Hooks
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.faulty_envs import Exits, Raises
from tests.support.envs.gated_envs import Gated, Gates
from tests.support.envs.plain_envs import Tally
from tests.support.insides import gauges_of
from tests.support.patience import patience

PROCESS = {"backend": FORK, "workers": 2}
EVERYWHERE = [
    pytest.param({"backend": "serial"}, Tally, id="serial"),
    pytest.param({"backend": "thread", "workers": 2}, Tally, id="thread"),
    pytest.param(PROCESS, Tally, id="process"),
    pytest.param({"backend": "asyncio"}, AsyncTally, id="asyncio"),
    pytest.param(PROCESS, AsyncTally, id="process-coroutines"),
]


class Lame(Tally):
    """Takes its time for a step."""

    def __init__(self, seconds: float) -> None:
        super().__init__(length=1000)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return super().step(action)


@pytest.mark.parametrize(("setup", "env"), EVERYWHERE)
def test_steps_and_episodes_are_counted(setup: dict[str, Any], env: Any) -> None:
    with agym.make(partial(env, length=5), 4, autoreset="next_step", **setup) as envs:
        envs.reset()
        for _ in range(12):  # with two resets
            envs.step([0] * 4)
        envs.step([0, 0], env_ids=[1, 2])
        envs.send([0], [3])
        envs.recv()
        stats = envs.stats()
        assert [env.steps for env in stats.envs] == [12, 13, 13, 13]
        assert [env.episodes for env in stats.envs] == [3] * 4
        assert [env.env_id for env in stats.envs] == [0, 1, 2, 3]
        assert all(env.faults == 0 for env in stats.envs)
        for env in stats.envs:
            assert env.p50 is not None
            assert env.p99 is not None
            assert 0 < env.p50 <= env.p99
        assert sorted(i for worker in stats.workers for i in worker.env_ids) == [0, 1, 2, 3]
        for worker in stats.workers:
            assert worker.pid is not None
            assert psutil.pid_exists(worker.pid)
            assert (worker.pid == os.getpid()) is (setup["backend"] != FORK)
            assert worker.rss is not None
            assert worker.rss > 1e6
            assert worker.restarts == 0
            assert 0 < worker.busy < 1
        assert stats.limit in ("environments", "transport", "caller")
        assert "4 environments, 51 steps" in str(stats)


def test_the_record_is_frozen() -> None:
    with agym.make(Tally, 1) as envs:
        stats = envs.stats()
        with pytest.raises(FrozenInstanceError):
            stats.limit = "you"  # type: ignore[misc]


@pytest.mark.parametrize("setup", [{"backend": "serial"}, PROCESS], ids=["serial", "process"])
def test_a_straggler_is_named_within_a_hundred_steps(setup: dict[str, Any]) -> None:
    factories = [partial(Lame, 0.00003)] * 15
    factories.insert(6, partial(Lame, 0.0003))
    with agym.make(factories, **setup) as envs:
        envs.reset()
        for _ in range(100):
            envs.step([0] * 16)
        stats = envs.stats()
        assert stats.stragglers == (6,)
        assert "stragglers: environment 6" in str(stats)
        assert stats.envs[6].p50 is not None
        assert stats.envs[6].p50 > 0.0002


MILLISECOND = 1_000_000


@pytest.mark.parametrize(
    ("there", "work", "back", "caller", "limit"),
    [
        (1, 20, 1, 2, "environments"),
        (1, 1, 1, 10, "caller"),
        (7, 10, 4, 2, "transport"),
        (1, 10, 12, 2, "transport"),
    ],
)
def test_what_limits_it(
    there: int, work: int, back: int, caller: int, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of a step takes as many milliseconds as given here."""
    now = MILLISECOND
    monkeypatch.setattr("agym.core.engine.calls.traffic.clock", lambda: now)
    gauges = gauges_of(4)
    workers = [range(2), range(2, 4)]
    traffic = Traffic(Hooks())
    for number in range(3 * BATCHES_PER_SAMPLE):
        _dispatch(traffic, number)
        now += there * MILLISECOND
        gauges.began[0] = gauges.began[2] = now
        gauges.ended[0] = now + MILLISECOND // 2  # of two workers the slower one counts
        now += work * MILLISECOND
        gauges.ended[2] = now
        now += back * MILLISECOND
        following, began = traffic.following
        if following == number:
            traffic.settle(began, gauges, workers)
        now += caller * MILLISECOND
    _dispatch(traffic, -1)
    stats = traffic.read(gauges, workers, [None, None], [0] * 4, [0, 0], crowded=False)
    parts = stats.queue, stats.work, stats.transport, stats.caller
    assert parts == pytest.approx([part / 1000 for part in (there, work, back, caller)])
    assert stats.limit == limit


def _dispatch(traffic: Traffic, number: int) -> None:
    """Dispatch a step as the engine does."""
    traffic.until_sample -= 1
    if traffic.returned or not traffic.until_sample:
        traffic.start(number)


def test_what_a_step_takes_is_told() -> None:
    """By environments that say themselves how long they took."""
    with agym.make(partial(Lame, 0.02), 4, **PROCESS) as envs:
        envs.reset()
        for _ in range(20):
            envs.step([0] * 4)
            time.sleep(0.01)
        stats = envs.stats()
        assert stats.work >= 2 * 0.02 * 0.99
        assert stats.caller >= 0.01
        # Of the first and the seventeenth step, which are followed.
        assert 2 * (stats.work + stats.queue + stats.transport + stats.caller) <= stats.seconds


def test_faults_and_restarts_are_counted() -> None:
    with agym.make(partial(Exits, 3), 4, on_fault="restart", **PROCESS) as envs:
        envs.reset()
        first = envs.stats()
        envs.step([0, 9, 0, 0])
        stats = envs.stats()
        assert [env.faults for env in stats.envs] == [1, 1, 0, 0]
        assert [worker.restarts for worker in stats.workers] == [1, 0]
        assert stats.workers[0].pid != first.workers[0].pid
        assert stats.workers[1].pid == first.workers[1].pid
    with agym.make(partial(Raises, "step"), 2) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError):
            envs.step([0, 9])
        assert [env.faults for env in envs.stats().envs] == [0, 1]


async def test_they_ask_nobody(gates: Gates) -> None:
    """While an environment stands at its gate, and after its worker died."""
    factories = [partial(Gated, path) for path in gates.paths]
    async with agym.make_async(factories, backend=FORK, workers=3) as envs:
        await envs.reset()
        pending = envs.step([1, 0, 0])
        assert envs.stats().workers[0].pid is not None
        gates.open(0)
        await pending
        assert envs.stats().envs[0].steps == 1
        pid = envs.stats().workers[2].pid
        assert pid is not None
        psutil.Process(pid).kill()
        with pytest.raises(agym.WorkerDied):
            await envs.step([0, 0, 0])
        stats = envs.stats()
        assert (stats.workers[2].pid, stats.workers[2].rss) == (None, None)
    last = envs.stats()
    assert last.envs == stats.envs
    assert envs.stats() is last


@pytest.mark.parametrize("on_fault", ["restart", "replay"])
@pytest.mark.parametrize(
    "setup",
    [{"backend": "serial"}, {"backend": "thread"}, PROCESS],
    ids=["serial", "thread", "process"],
)
def test_mended_faults_are_printed(setup: dict[str, Any], on_fault: str) -> None:
    options = {"on_fault": on_fault, "autoreset": "next_step", **setup}
    with agym.make(partial(Raises, "step"), 4, **options) as envs:
        envs.reset()
        assert "faults" not in str(envs.stats())
        for actions in ([0, 9, 0, 9], [0, 0, 0, 0], [0, 9, 0, 0]):
            envs.step(actions)
        stats = envs.stats()
        assert [env.faults for env in stats.envs] == [0, 2, 0, 1]
        assert "  faults: 3, in environments 1, 3" in str(stats).splitlines()


def test_bystanders_of_a_mended_worker_are_printed() -> None:
    with agym.make(partial(Exits, 3), 4, on_fault="replay", **PROCESS) as envs:
        envs.reset()
        envs.step([0, 9, 0, 0])
        assert "  faults: 2, in environments 0, 1" in str(envs.stats()).splitlines()


@pytest.fixture
def busy_loops() -> Iterator[list[int]]:
    """A busy loop per core, in other programs than this one."""
    code = "import os\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\nwhile True: pass"
    with ExitStack() as stack:
        pids = []
        for _ in core_numbers():
            started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            stack.enter_context(started)
            assert started.stdout is not None
            pids.append(int(started.stdout.readline()))
            stack.callback(os.kill, pids[-1], signal.SIGKILL)
        yield pids


def test_who_crowds_the_cores_is_said(busy_loops: list[int]) -> None:
    """Whoever spins beside other programs notices it, and sleeps from then on."""
    end = time.monotonic() + patience()
    with agym.make(Tally, 4, **PROCESS, output="array", autoreset="next_step") as envs:
        envs.reset()
        while True:
            envs.step([0] * 4)
            stats = envs.stats()
            if stats.crowded and stats.cores is not None and stats.cores.others > 0.1:
                break
            assert time.monotonic() < end, stats
        assert "; its cores are crowded, see stats()" in repr(envs)
    assert f"crowded cores: of {len(core_numbers())}, this program used" in str(stats)
    assert 'fewer workers, or backend="serial", may be faster now' in str(stats)


def test_a_program_that_crowds_its_own_cores_is_told() -> None:
    with agym.make(Tally, 2, backend="serial") as envs:
        envs.reset()
        stats = envs.stats()
        assert stats.cores is None
        assert "crowded" not in str(stats)
        crowded = replace(stats, cores=CoreUse(2, 1.5, 0.4, 0.1), crowded=True)
    assert "crowded cores: of 2, this program used 1.5, its workers 0.4" in str(crowded)
    assert "set OMP_WAIT_POLICY=passive before importing torch" in str(crowded)


def test_processes_are_counted_as_what_they_are() -> None:
    load, begun = Load(), time.monotonic()
    spin = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        as_worker, as_part = load.read([child.pid]), load.read()
        child.stdin.close()
    seconds = time.monotonic() - begun
    assert as_worker.workers * seconds >= 0.25
    assert as_part.workers == 0.0
    assert as_part.program > as_worker.program
    assert as_part.cores == len(core_numbers())
