"""Chaos: what is injected, where, how often, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import agym
from agym.core.hosts.fault_injection import ChaosError
from agym.faults.chaos import Injection
from agym.testing import World
from tests.support.drivers import each_api
from tests.support.patience import deadline
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over, steps_of

WORLDS = (SERIAL, THREAD, ASYNCIO, PROCESS, COROUTINES)
PATIENT = agym.FaultPolicy("restart", max_restarts=10_000)
RESTART: dict[str, Any] = {"length": 10**6, "on_fault": PATIENT, "autoreset": "next_step"}


def faults_of(envs: Any, steps: int) -> Counter[str]:
    """Step, and count the faults of the environments that caused them, by kind."""
    counts: Counter[str] = Counter()
    for _ in range(steps):
        *_, truncated, infos = envs.step([0] * envs.num_envs)
        for i, info in enumerate(infos):
            if (fault := info.get("fault")) is not None:
                assert truncated[i]
                counts[fault.kind] += fault.culprit in (None, i)
    return counts


@each_api
@over(*WORLDS)
def test_every_error_really_happens(world: World, api: Any) -> None:
    with replace(world, api=api).open(4, **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs.envs, error=0.1) as chaos:
            counts = faults_of(envs, 50)
        assert chaos.injected["error"] == sum(chaos.injected.values()) > 5
        assert counts == {"raised": chaos.injected["error"]}
        assert faults_of(envs, 20) == {}  # it has stopped


@each_api
@over(PROCESS, COROUTINES)
def test_every_kill_really_happens_in_different_ways(world: World, api: Any) -> None:
    with replace(world, api=api).open(4, **RESTART) as envs:
        envs.reset(seed=0)
        codes = set()
        with agym.chaos(envs.envs, kill=0.3) as chaos:
            while chaos.injected["kill"] < 4:
                infos = envs.step([0] * 4).infos
                codes |= {info["fault"].exitcode for info in infos if "fault" in info}
        assert sum(each.restarts for each in envs.stats().workers) == chaos.injected["kill"]
        assert codes == {-9, -11, 1}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:worker .*abandoned:RuntimeWarning")
@over(THREAD, ASYNCIO, PROCESS, COROUTINES)
def test_every_hang_really_happens_and_is_ended(world: World) -> None:
    limit = deadline(0.3)
    seconds = 3 * limit if world is THREAD else 60.0
    with world.open(4, **RESTART, timeout=limit) as envs:
        envs.reset(seed=0)
        counts: Counter[str] = Counter()
        with agym.chaos(envs.envs, hang=0.05, hang_seconds=seconds) as chaos:
            while chaos.injected["hang"] < 2:
                counts += faults_of(envs, 1)
        assert counts["timeout"] >= 2
    for thread in threading.enumerate():
        if thread.name.startswith("agym-"):  # it was abandoned
            thread.join()


@over(*WORLDS)
def test_delays_only_take_time(world: World) -> None:
    with world.open(4, **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs.envs, delay=0.2, delay_seconds=0.001) as chaos:
            assert faults_of(envs, 20) == {}
        assert chaos.injected["delay"] > 4


def test_without_recovery_the_faults_are_raised() -> None:
    with PROCESS.open(4) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs.envs, error=1.0), pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step([0] * 4)
        errors: Any = caught.value.exceptions
        assert {type(error.exception) for error in errors} == {ChaosError}
        envs.reset()
        with (
            agym.chaos(envs.envs, kill=1.0),
            pytest.raises((agym.WorkerDied, agym.AgymErrorGroup)),
        ):
            envs.step([0] * 4)
        envs.restart()
        envs.reset()
        assert steps_of(envs.step([0] * 4)) == [[1, 0]] * 4


def injections(seed: int | None, world: World = SERIAL, **rates: float) -> list[Injection]:
    with world.open(4, **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs.envs, **rates, seed=seed, delay_seconds=0.0) as chaos:  # type: ignore[arg-type]
            faults_of(envs, 25)
        return [*chaos.injections]


@pytest.mark.once
@pytest.mark.parametrize(
    ("world", "seed", "rates"),
    [
        *((world, 3, {"error": 0.05, "delay": 0.05}) for world in WORLDS),
        (PROCESS, 1, {"error": 0.05, "kill": 0.02}),
    ],
)
def test_a_seed_repeats_the_injections(world: World, seed: int, rates: dict[str, float]) -> None:
    first = injections(seed, world, **rates)
    assert first == injections(seed, world, **rates)
    assert {kind for _, kind in first} == {*rates}
    assert len({env_id for env_id, _ in first}) >= 3


def test_another_seed_or_none_leads_to_other_injections() -> None:
    runs = [tuple(injections(seed, error=0.2)) for seed in (3, 4, None, None)]
    assert len({*runs}) == 4


def test_rates_are_per_step_of_an_environment() -> None:
    with SERIAL.open(10, on_fault=PATIENT, autoreset="next_step", length=10**6) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs.envs, error=0.1, seed=1) as chaos:
            faults_of(envs, 400)
    assert 320 < chaos.injected["error"] < 480


@pytest.mark.full
def test_a_worker_is_killed_once_at_a_time() -> None:
    with PROCESS.open(4, **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs.envs, kill=1.0) as chaos:
            envs.step([0] * 4)
        assert [injection.env_id for injection in chaos.injections] == [0, 2]


@pytest.mark.full
def test_only_environments_of_the_group_fail() -> None:
    with SERIAL.open(4, **RESTART) as envs:
        one, other = envs.split(2)
        envs.reset(seed=0)
        with agym.chaos(other, error=0.5) as chaos:
            for _ in range(20):
                assert faults_of(one, 1) == {}
                other.step([0, 0])
                envs.step([0] * 4)
        assert {injection.env_id for injection in chaos.injections} == {*other.env_ids}


@pytest.mark.full
def test_steps_that_are_sent_fail_too() -> None:
    with replace(PROCESS, api="async").open(4, **RESTART) as envs:
        envs.reset(seed=0)
        counts: Counter[str] = Counter()
        with agym.chaos(envs.envs, error=0.1, kill=0.02) as chaos:
            envs.send([0] * 4)
            while sum(chaos.injected.values()) < 12 or not chaos.injected["kill"]:
                batch = envs.recv(1)
                counts.update(info["fault"].kind for info in batch.infos if "fault" in info)
                envs.send([0] * len(batch.env_ids), batch.env_ids)
        batch = envs.recv(4)
        counts.update(info["fault"].kind for info in batch.infos if "fault" in info)
        assert counts["raised"] <= chaos.injected["error"]
        assert counts["died"] >= chaos.injected["kill"] > 0


def test_a_step_behind_a_reset_is_spared() -> None:
    async def reset_and_step(envs: Any) -> Any:
        reset = envs.envs.reset(seed=0)
        with agym.chaos(envs.envs, error=1.0) as chaos:
            step = envs.envs.step([0, 0])
            await asyncio.to_thread(envs.script.open, 0)
            await reset
            assert steps_of(await step) == [[1, 0]] * 2
        assert chaos.injections == []

    with replace(PROCESS, api="async", workers=1).open(2) as envs:
        envs.script.set(0, "reset", "wait")
        envs.run(reset_and_step(envs))


def test_closed_chaos_makes_room_for_another() -> None:
    with SERIAL.open(2, length=9) as envs:
        envs.reset(seed=0)
        first = agym.chaos(envs.envs, error=1.0)
        with pytest.raises(agym.UsageError, match=r"close\(\) it first"):
            agym.chaos(envs.envs, delay=0.1)
        first.close()
        second = agym.chaos(envs.envs, delay=1.0, delay_seconds=0.0)
        first.close()
        envs.step([0, 0])
        second.close()
        assert first.injections == []
        envs.step([0, 0])
        assert second.injected == {"kill": 0, "hang": 0, "error": 0, "delay": 2}


@pytest.mark.parametrize(
    ("world", "options", "names"),
    [
        (SERIAL, {"kill": 0.1}, "backend='process'"),
        (THREAD, {"kill": 0.1}, "kill=0.1"),
        (ASYNCIO, {"kill": 0.1}, "kill=0.1"),
        (SERIAL, {"hang": 0.1}, "backend='serial'"),
        (THREAD, {"hang": 0.1}, "timeout="),
        (PROCESS, {"hang": 0.1}, "timeout="),
        (SERIAL, {"error": -0.1}, "error=-0.1"),
        (SERIAL, {"error": 1.1}, "from 0 to 1"),
        (SERIAL, {"error": True}, "error=True"),
        (SERIAL, {"error": "much"}, "error='much'"),
        (SERIAL, {"error": float("nan")}, "error=nan"),
        (SERIAL, {"error": 0.6, "delay": 0.6}, "add up to 1.2"),
        (SERIAL, {"delay_seconds": -1}, "delay_seconds=-1"),
        (SERIAL, {"hang_seconds": float("inf")}, "hang_seconds=inf"),
        (SERIAL, {"ways": ()}, "ways="),
        (SERIAL, {"ways": ("poison",)}, "poison"),
    ],
)
def test_bad_options_are_refused(world: World, options: dict[str, Any], names: str) -> None:
    with world.open(2) as envs:
        with pytest.raises(agym.UsageError) as caught:
            agym.chaos(envs.envs, **options)
        assert names in str(caught.value)
