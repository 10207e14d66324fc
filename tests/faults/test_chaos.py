"""Chaos: what is injected, where, how often, and who is refused."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core.hosts.fault_injection import ChaosError
from agym.faults.chaos import Injection
from benchmarks.soak.probes import CounterEnv
from tests.support.backends import FORK
from tests.support.drivers import APIS, opened
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.gated_envs import Gated, Gates
from tests.support.patience import deadline

AsyncCounter = partial(AsyncTally, CounterEnv)

SETUPS: dict[str, dict[str, Any]] = {
    "serial": {"env": CounterEnv, "backend": "serial"},
    "thread": {"env": CounterEnv, "backend": "thread", "workers": 2},
    "asyncio": {"env": AsyncCounter, "backend": "asyncio"},
    "process": {"env": CounterEnv, "backend": FORK, "workers": 2},
    "coroutines": {"env": AsyncCounter, "backend": FORK, "workers": 2},
}
PATIENT = agym.FaultPolicy("restart", max_restarts=10_000)
RESTART: dict[str, Any] = {"num_envs": 4, "on_fault": PATIENT, "autoreset": "next_step"}

each_api = pytest.mark.parametrize("api", APIS)


def told(envs: Any, steps: int) -> Counter[str]:
    """Step so often, and count the faults that were told of the environments that caused them."""
    counts: Counter[str] = Counter()
    for _ in range(steps):
        *_, truncated, infos = envs.step([0] * len(envs))
        for i, info in enumerate(infos):
            fault = info.get("fault")
            if fault is not None:
                assert truncated[i]
                counts[fault.kind] += fault.culprit in (None, i)
    return counts


@each_api
@pytest.mark.parametrize("setup", SETUPS)
def test_every_error_really_happens(setup: str, api: str) -> None:
    with opened(api, **SETUPS[setup], **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(getattr(envs, "envs", envs), error=0.1) as chaos:
            counts = told(envs, 50)
        assert chaos.injected["error"] == sum(chaos.injected.values()) > 5
        assert counts == {"raised": chaos.injected["error"]}
        assert told(envs, 20) == {}  # it has stopped


@pytest.mark.full
@each_api
@pytest.mark.parametrize("setup", ["process", "coroutines"])
def test_every_kill_really_happens(setup: str, api: str) -> None:
    with opened(api, **SETUPS[setup], **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(getattr(envs, "envs", envs), kill=0.04) as chaos:
            while chaos.injected["kill"] < 3:
                told(envs, 1)
        workers = envs.envs.stats().workers if api == "async" else envs.stats().workers
        assert sum(worker.restarts for worker in workers) == chaos.injected["kill"]


def test_kills_come_in_all_ways_in_turn() -> None:
    with agym.make(**SETUPS["process"], **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs, kill=0.3) as chaos:
            codes: list[int] = []
            while chaos.injected["kill"] < 4:
                infos = envs.step([0] * 4).infos
                faults = [info["fault"] for info in infos if "fault" in info]
                codes += {f.worker: f.exitcode for f in faults if f.culprit == f.env_id}.values()
        assert {*codes} == {-9, -11, 1}


@pytest.mark.full
@pytest.mark.parametrize("setup", ["thread", "asyncio", "process", "coroutines"])
def test_every_hang_really_happens_and_is_ended(setup: str) -> None:
    limit = deadline(0.3)
    with agym.make(**SETUPS[setup], **RESTART, timeout=limit) as envs:
        envs.reset(seed=0)
        threads = setup == "thread"
        with agym.chaos(envs, hang=0.05, hang_seconds=3 * limit if threads else 60.0) as chaos:
            counts: Counter[str] = Counter()
            with pytest.warns(RuntimeWarning) if threads else contextlib.nullcontext():
                while chaos.injected["hang"] < 2:
                    counts += told(envs, 1)
        assert counts["timeout"] >= 2
    for thread in threading.enumerate():
        if thread.name.startswith("agym-"):  # it was left behind
            thread.join()


@pytest.mark.parametrize("setup", SETUPS)
def test_delays_only_take_time(setup: str) -> None:
    with agym.make(**SETUPS[setup], **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs, delay=0.2, delay_seconds=0.001) as chaos:
            assert told(envs, 20) == {}
        assert chaos.injected["delay"] > 4


def test_with_on_fault_raise_the_trainer_gets_them() -> None:
    with agym.make(CounterEnv, 2, backend=FORK, workers=2) as envs:
        envs.reset(seed=0)
        chaos = agym.chaos(envs, error=1.0)
        with pytest.raises(ExceptionGroup) as caught:
            envs.step([0, 0])
        assert all(isinstance(error, agym.EnvError) for error in caught.value.exceptions)
        assert all(isinstance(error.__cause__, Exception) for error in caught.value.exceptions)
        chaos.close()
        envs.reset()
        with agym.chaos(envs, kill=1.0), pytest.raises((agym.WorkerDied, ExceptionGroup)):
            envs.step([0, 0])
        envs.restart()
        envs.reset()
        assert envs.step([0, 0]).observations == [1, 1]


def test_the_error_is_one_of_its_own() -> None:
    with agym.make(CounterEnv, 1) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs, error=1.0), pytest.raises(agym.EnvError) as caught:
            envs.step([0])
        assert isinstance(caught.value.__cause__, ChaosError)


def injections(seed: int | None, setup: str = "serial", **rates: float) -> list[Injection]:
    with agym.make(**SETUPS[setup], **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs, **rates, seed=seed, delay_seconds=0.0) as chaos:  # type: ignore[arg-type]
            told(envs, 25)
        return [*chaos.injections]


@pytest.mark.once
@pytest.mark.parametrize("setup", SETUPS)
def test_same_seed_same_strikes(setup: str) -> None:
    first = injections(3, setup, error=0.05, delay=0.05)
    assert first == injections(3, setup, error=0.05, delay=0.05)
    assert first != injections(4, setup, error=0.05, delay=0.05)
    assert {kind for _, kind in first} == {"error", "delay"}
    assert len({env_id for env_id, _ in first}) == 4


@pytest.mark.full
def test_same_seed_same_kills() -> None:
    first = injections(1, "process", error=0.05, kill=0.02)
    assert {kind for _, kind in first} == {"error", "kill"}
    assert first == injections(1, "process", error=0.05, kill=0.02)


def test_without_a_seed_it_is_another_run_each_time() -> None:
    assert injections(None, error=0.2) != injections(None, error=0.2)


def test_rates_are_per_step_of_an_environment() -> None:
    with agym.make(CounterEnv, 10, on_fault=PATIENT) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs, error=0.1, seed=1) as chaos:
            told(envs, 400)
    assert 320 < chaos.injected["error"] < 480


@pytest.mark.full
def test_one_worker_is_struck_once_at_a_time() -> None:
    with agym.make(**SETUPS["process"], **RESTART) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs, kill=1.0) as chaos:
            envs.step([0] * 4)
        assert [injection.env_id for injection in chaos.injections] == [0, 2]


@pytest.mark.full
def test_of_a_group_only_its_environments_are_struck() -> None:
    with agym.make(CounterEnv, 4, on_fault=PATIENT) as envs:
        groups = envs.split(2)
        envs.reset(seed=0)
        with agym.chaos(groups[1], error=0.5) as chaos:
            for _ in range(20):
                assert told(groups[0], 1) == {}
                told(groups[1], 1)
                envs.step([0] * 4)
        assert {injection.env_id for injection in chaos.injections} == {*groups[1].env_ids}


@pytest.mark.full
async def test_steps_that_are_sent_are_struck_too() -> None:
    async with agym.make_async(**SETUPS["process"], **RESTART) as envs:
        await envs.reset(seed=0)
        told: Counter[str] = Counter()
        with agym.chaos(envs, error=0.1, kill=0.02) as chaos:
            envs.send([0] * 4)
            while sum(chaos.injected.values()) < 12 or not chaos.injected["kill"]:
                batch = await envs.recv(1)
                told.update(info["fault"].kind for info in batch.infos if "fault" in info)
                envs.send([0] * len(batch.env_ids), batch.env_ids)
        batch = await envs.recv(4)
        told.update(info["fault"].kind for info in batch.infos if "fault" in info)
        assert told["raised"] <= chaos.injected["error"]
        assert told["died"] >= chaos.injected["kill"] > 0


class WaitsInReset(Gated):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.wait()
        return super().reset(seed=seed, options=options)


async def test_a_step_behind_a_reset_is_spared(tmp_path: Path) -> None:
    gates = Gates(tmp_path, 2)
    factories = [partial(WaitsInReset, path) for path in gates.paths]
    async with agym.make_async(factories, backend=FORK, workers=1) as envs:
        reset = envs.reset(seed=0)
        with agym.chaos(envs, error=1.0) as chaos:
            step = envs.step([0, 0])
            for i in range(2):
                await asyncio.to_thread(gates.open, i)
            await reset
            result = await step
        assert chaos.injections == []
        assert result.observations[:, 1].tolist() == [1, 1]


def test_close_is_final_and_makes_room_for_another() -> None:
    with agym.make(CounterEnv, 2) as envs:
        envs.reset(seed=0)
        first = agym.chaos(envs, error=1.0)
        with pytest.raises(agym.UsageError, match=r"close\(\) it first"):
            agym.chaos(envs, delay=0.1)
        first.close()
        second = agym.chaos(envs, delay=1.0, delay_seconds=0.0)
        first.close()
        envs.step([0, 0])
        second.close()
        assert first.injections == []
        assert second.injected == {"kill": 0, "hang": 0, "error": 0, "delay": 2}
        envs.step([0, 0])
        assert sum(second.injected.values()) == 2


@pytest.mark.parametrize(
    ("setup", "options", "names"),
    [
        ("serial", {"kill": 0.1}, "backend='process'"),
        ("thread", {"kill": 0.1}, "kill=0.1"),
        ("asyncio", {"kill": 0.1}, "kill=0.1"),
        ("serial", {"hang": 0.1}, "backend='serial'"),
        ("thread", {"hang": 0.1}, "timeout="),
        ("process", {"hang": 0.1}, "timeout="),
        ("serial", {"error": -0.1}, "error=-0.1"),
        ("serial", {"error": 1.1}, "from 0 to 1"),
        ("serial", {"error": True}, "error=True"),
        ("serial", {"error": "much"}, "error='much'"),
        ("serial", {"error": float("nan")}, "error=nan"),
        ("serial", {"error": 0.6, "delay": 0.6}, "add up to 1.2"),
        ("serial", {"delay_seconds": -1}, "delay_seconds=-1"),
        ("serial", {"hang_seconds": float("inf")}, "hang_seconds=inf"),
        ("serial", {"ways": ()}, "ways="),
        ("serial", {"ways": ("poison",)}, "poison"),
    ],
)
def test_refusals(setup: str, options: dict[str, Any], names: str) -> None:
    with agym.make(**SETUPS[setup], num_envs=2) as envs:
        with pytest.raises(agym.UsageError) as caught:
            agym.chaos(envs, **options)
        assert names in str(caught.value)
        envs.reset()
        envs.step([0, 0])


def test_what_is_not_open_is_refused() -> None:
    envs = agym.make_async(CounterEnv, 2)
    with pytest.raises(agym.ClosedError, match="not open yet"):
        agym.chaos(envs, error=0.1)
    asyncio.run(envs.aclose())
    with agym.make(CounterEnv, 2) as closed:
        pass
    with pytest.raises(agym.ClosedError, match="closed"):
        agym.chaos(closed, error=0.1)
    with pytest.raises(agym.UsageError, match="CounterEnv"):
        agym.chaos(CounterEnv(), error=0.1)  # type: ignore[arg-type]
