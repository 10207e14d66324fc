"""What the cost model says, with costs that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.planning.model import (
    Candidate,
    Cost,
    Profile,
    Requirements,
    Transport,
    candidates,
    choose,
    efficiency,
    predict,
)
from agym.planning.plans import Plan, explain, readable

QUICK = Profile("Quick", 1e-3, 1e-5, 2e-6)
COMPUTES = Profile("Computes", 1e-3, 1e-5, 1e-3)
WAITS = Profile("Waits", 1e-3, 1e-5, 1e-2, waiting=0.99)

COSTS = {
    "serial": Cost(20e-6, 0.0, 0.0, 1e-6, 1e-10, 1e-6, 1e-10),
    "thread": Cost(20e-6, 20e-6, 0.0, 1e-6, 1e-10, 1e-6, 1e-10),
    "asyncio": Cost(40e-6, 0.0, 0.0, 10e-6, 1e-10, 1e-6, 1e-10),
    "process": Cost(20e-6, 20e-6, 50e-6, 1e-6, 1e-10, 4e-6, 4e-10),
}


def machine(cores: int = 4) -> Transport:
    return Transport(cores, 1e-3, COSTS)


def chosen(profile: Profile, cores: int = 4, **ask: Any) -> tuple[str, int | None]:
    best = choose(candidates(profile, machine(cores), Requirements(**ask)))
    assert best is not None
    return best.backend, best.workers


seconds = st.floats(1e-7, 1e-1)
counts = st.integers(1, 4096)


@given(step=seconds, num_envs=counts)
def test_the_formula_of_the_literature_is_the_case_of_one_worker(
    step: float, num_envs: int
) -> None:
    profile = replace(QUICK, step=step)
    time = predict(profile, machine(), Requirements(num_envs), "serial", None)
    overhead = time - num_envs * step
    assert efficiency(num_envs, step, overhead) == pytest.approx(num_envs * step / time)
    cost = COSTS["serial"]
    assert overhead == pytest.approx(cost.batch + num_envs * cost.host, rel=1e-6)


@given(
    step=seconds, waiting=st.floats(0, 1), num_envs=counts, workers=st.integers(1, 64),
    backend=st.sampled_from(["thread", "process"]), info=st.integers(0, 10_000),
)  # fmt: skip
def test_more_work_never_takes_less(
    step: float, waiting: float, num_envs: int, workers: int, backend: str, info: int
) -> None:
    profile = replace(QUICK, step=step, waiting=waiting, info_bytes=info)
    time = predict(profile, machine(), Requirements(num_envs), backend, workers)
    more = predict(profile, machine(), Requirements(num_envs + 1), backend, workers)
    longer = predict(
        replace(profile, step=2 * step), machine(), Requirements(num_envs), backend, workers
    )
    larger = predict(
        replace(profile, observation_bytes=10_000),
        machine(),
        Requirements(num_envs),
        backend,
        workers,
    )
    assert time <= more
    assert time <= longer
    assert time < larger


@given(step=seconds, waiting=st.floats(0, 1), num_envs=counts, workers=st.integers(1, 64))
def test_no_more_is_computed_at_once_than_there_are_cores(
    step: float, waiting: float, num_envs: int, workers: int
) -> None:
    profile = replace(QUICK, step=step, waiting=waiting)
    time = predict(profile, machine(3), Requirements(num_envs), "process", workers)
    assert time >= num_envs * profile.computing / 3
    assert time >= step


def test_quick_environments_stay_in_this_thread() -> None:
    assert chosen(QUICK, num_envs=8) == ("serial", None)


def test_many_quick_ones_are_worth_processes() -> None:
    assert chosen(QUICK, num_envs=1024) == ("process", 4)


def test_what_computes_goes_to_as_many_processes_as_cores() -> None:
    assert chosen(COMPUTES, num_envs=8) == ("process", 4)
    assert chosen(COMPUTES, num_envs=3) == ("process", 3)
    assert chosen(COMPUTES, num_envs=8, cores=1) == ("serial", None)


def test_what_waits_gets_a_thread_each() -> None:
    assert chosen(WAITS, num_envs=64) == ("thread", 64)
    assert chosen(WAITS, num_envs=256, cores=1)[0] == "thread"


def test_threads_that_take_turns_are_not_many() -> None:
    found = candidates(COMPUTES, machine(), Requirements(8))
    assert [one.workers for one in found if one.backend == "thread"] == [1]


def test_threads_that_compute_at_once_are_as_many_as_cores() -> None:
    profile = replace(COMPUTES, parallel=True)
    found = candidates(profile, machine(6), Requirements(8))
    assert [one.workers for one in found if one.backend == "thread"] == [1, 2, 4, 6]
    assert [one.workers for one in found if one.backend == "process"] == [1, 2, 4, 6]


def test_there_are_no_more_threads_than_256() -> None:
    found = candidates(WAITS, machine(), Requirements(1000))
    assert max(one.workers or 0 for one in found if one.backend == "thread") == 256


def test_an_event_loop_is_not_blocked_for_long() -> None:
    assert chosen(QUICK, num_envs=8, blocking=False) == ("serial", None)
    assert chosen(COMPUTES, num_envs=1, blocking=False)[0] == "thread"
    slow_to_reset = replace(QUICK, reset=0.1)
    assert chosen(slow_to_reset, num_envs=1, blocking=False)[0] != "serial"


def test_what_cannot_be_pickled_stays_in_this_process() -> None:
    found = candidates(COMPUTES, machine(), Requirements(8, obstacle="cannot be"))
    best = choose(found)
    assert best is not None
    assert best.backend == "serial"
    assert {one.remark for one in found if one.backend == "process"} == {"cannot be"}
    assert "process cannot be" in explain(best, found, Requirements(8))


def test_only_what_can_honour_the_options() -> None:
    assert chosen(QUICK, num_envs=1, fault_tolerant=True)[0] == "thread"
    assert chosen(QUICK, num_envs=8, workers=2)[1] == 2


def test_coroutine_environments_live_on_loops() -> None:
    profile = replace(WAITS, coroutine=True)
    found = candidates(profile, machine(), Requirements(64))
    assert {one.backend for one in found} == {"asyncio", "process"}
    assert chosen(profile, num_envs=64) == ("asyncio", None)
    busy = replace(profile, waiting=0.2)
    assert chosen(busy, num_envs=64) == ("process", 4)


def test_of_a_loop_only_some_are_busy_at_once() -> None:
    profile = replace(WAITS, coroutine=True)
    free = predict(profile, machine(), Requirements(64), "asyncio", None)
    bound = predict(profile, machine(), Requirements(64, max_concurrency=8), "asyncio", None)
    assert bound == pytest.approx(8 * free, rel=0.1)


def test_the_simpler_of_two_that_are_as_quick() -> None:
    found = [Candidate("serial", None, 1.04), Candidate("process", 2, 1.0)]
    assert choose(found) is found[0]
    found = [Candidate("serial", None, 1.06), Candidate("process", 2, 1.0)]
    assert choose(found) is found[1]
    assert choose([Candidate("serial", None, 1.0, "cannot end what hangs")]) is None


def test_a_plan_prints_as_a_table() -> None:
    found = candidates(COMPUTES, machine(), Requirements(8))
    best = choose(found)
    assert best is not None
    plan = Plan("Computes", 8, tuple(found), best, explain(best, found, Requirements(8)), COMPUTES)
    lines = str(plan).splitlines()
    (row,) = [line for line in lines if line.startswith("→")]
    assert row.split()[1:3] == ["process", "4"]
    assert readable(best.predicted) in row
    assert lines[-1] == plan.why
    assert "times as fast as" in plan.why
    assert plan.backend == "process"
    assert plan.workers == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (2e-7, "0.2 µs"), (12.34e-6, "12.3 µs"), (2e-3, "2 ms"), (3.0, "3 s")],
)
def test_durations_have_units(value: float | None, text: str) -> None:
    assert readable(value) == text
