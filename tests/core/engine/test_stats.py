"""Statistics: what they say, on every backend, and that they ask nobody."""

from __future__ import annotations

import asyncio
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

import pytest

import agym
from agym.core._system.cpus import core_numbers
from agym.core._system.load import CoreUse, Load
from agym.core.engine.calls.traffic import BATCHES_PER_SAMPLE, Traffic
from agym.core.engine.hooks import Hooks
from agym.testing import ScriptedEnv, World
from tests.support.insides import backend_of, gauges_of
from tests.support.patience import patience
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over


class Slow(ScriptedEnv):
    """Computes for some seconds in each step."""

    def __init__(self, seconds: float) -> None:
        super().__init__(length=10**6)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return super().step(action)


@over(SERIAL, THREAD, PROCESS, ASYNCIO, COROUTINES)
def test_steps_and_episodes_are_counted(world: World) -> None:
    with replace(world, autoreset="next_step").open(4, length=5) as envs:
        envs.reset()
        for _ in range(12):  # with two resets
            envs.step([0] * 4)
        envs.step([0, 0], env_ids=[1, 2])
        envs.send([0], [3])
        envs.recv()
        stats = envs.stats()
    assert [env.env_id for env in stats.envs] == [0, 1, 2, 3]
    assert [env.steps for env in stats.envs] == [12, 13, 13, 13]
    assert [(env.episodes, env.faults) for env in stats.envs] == [(3, 0)] * 4
    for env in stats.envs:
        assert 0 < (env.p50 or 0) <= (env.p99 or 0)
    assert sorted(i for worker in stats.workers for i in worker.env_ids) == [0, 1, 2, 3]
    for worker in stats.workers:
        assert (worker.pid == os.getpid()) is ("processes" not in world.has)
        assert (worker.rss or 0) > 1e6
        assert worker.restarts == 0
        assert 0 < worker.busy < 1
    assert stats.limit in ("environments", "transport", "caller")
    assert "4 environments, 51 steps" in str(stats)
    with pytest.raises(FrozenInstanceError):
        stats.limit = "you"


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


def test_the_parts_of_a_step_add_up() -> None:
    """Of environments whose time for a step is known."""
    with PROCESS.open_envs(partial(Slow, 0.02), 4) as envs:
        envs.reset()
        for _ in range(20):
            envs.step([0] * 4)
            time.sleep(0.01)
        stats = envs.stats()
        assert stats.work >= 2 * 0.02 * 0.99
        assert stats.caller >= 0.01
        # Of the first and the seventeenth step, which are followed.
        assert 2 * (stats.work + stats.queue + stats.transport + stats.caller) <= stats.seconds


@pytest.mark.parametrize("on_fault", ["restart", "replay"])
@over(SERIAL, THREAD, PROCESS)
def test_faults_are_counted(world: World, on_fault: str) -> None:
    with world.open(4, on_fault=on_fault) as envs:
        envs.reset()
        first = envs.stats()
        assert "faults" not in str(first)
        for i in (1, 3, 1):
            envs.script.set(i, "step", "raise")
            envs.step([0] * 4)
            envs.reset()
        stats = envs.stats()
        assert [env.faults for env in stats.envs] == [0, 2, 0, 1]
        assert "  faults: 3, in environments 1, 3" in str(stats).splitlines()
        if world is PROCESS:
            envs.script.set(1, "step", "exit")
            envs.step([0] * 4)
            stats = envs.stats()  # of a death, also the other environment of the worker tells
            assert "  faults: 5, in environments 0, 1, 3" in str(stats).splitlines()
            assert [worker.restarts for worker in stats.workers] == [1, 0]
            before, now = ([worker.pid for worker in each.workers] for each in (first, stats))
            assert before[0] != now[0]
            assert before[1] == now[1]


def test_statistics_ask_no_environment() -> None:
    """They are there while an environment steps, after its worker died, and after closing."""

    async def check(player: Any) -> Any:
        pending = player.envs.step([0] * 4)
        assert player.envs.stats().workers[0].pid is not None
        await asyncio.to_thread(player.script.open, 0)
        await pending
        assert player.envs.stats().envs[0].steps == 1

    with replace(PROCESS, api="async").open(4) as envs:
        envs.reset()
        envs.script.set(0, "step", "wait")
        envs.run(check(envs))
        envs.script.set(3, "step", "kill")
        with pytest.raises(agym.WorkerDied):
            envs.step([0] * 4)
        stats = envs.stats()
        assert (stats.workers[1].pid, stats.workers[1].rss) == (None, None)
    last = envs.envs.stats()
    assert last.envs == stats.envs
    assert envs.envs.stats() is last


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
    with replace(PROCESS, autoreset="next_step").open() as envs:
        backend_of(envs.envs).spinning.limit = patience()  # who never spins, notices nothing
        envs.reset()
        while True:
            envs.step([0] * 4)
            stats, text = envs.stats(), repr(envs.envs)
            said = stats.crowded and "; its cores are crowded, see stats()" in text
            if said and stats.cores is not None and stats.cores.others > 0.1:
                break
            assert time.monotonic() < end, (stats, text)
    assert f"crowded cores: of {len(core_numbers())}, this program used" in str(stats)
    assert 'fewer workers, or backend="serial", may be faster now' in str(stats)


def test_a_program_that_crowds_its_own_cores_is_told() -> None:
    with SERIAL.open() as envs:
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
    assert as_part.program * seconds >= 0.25
    assert as_part.cores == len(core_numbers())
