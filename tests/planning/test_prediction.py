"""What the cost model says, with costs that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.planning.choice import decide
from agym.planning.model import (
    Cost,
    Curve,
    Machine,
    Profile,
    Requirements,
    Span,
    candidates,
    efficiency,
    predict,
    worker_counts,
)

QUICK = Profile("Quick", 1e-3, 1e-5, 2e-6)
COMPUTES = Profile("Computes", 1e-3, 1e-5, 1e-3)
WAITS = Profile("Waits", 1e-3, 1e-5, 1e-2, waiting=0.99)

COSTS = {
    "serial": Cost(20e-6, 0.0, 1e-6, 1e-10, 1e-6, 1e-10),
    "thread": Cost(20e-6, 20e-6, 1e-6, 1e-10, 1e-6, 1e-10),
    "asyncio": Cost(40e-6, 0.0, 10e-6, 1e-10, 1e-6, 1e-10),
    "process": Cost(0.0, 0.0, 1e-6, 1e-10, 4e-6, 4e-10),
}
WORK = (20e-6, 1e-3)


def machine(cores: int = 4, slowdown: float = 1.1) -> Machine:
    usual, worst = ((o + s * WORK[0], o + s * WORK[1]) for o, s in (
        (50e-6, slowdown), (80e-6, 1.1 * slowdown),
    ))  # fmt: skip
    curve = Curve(WORK, usual, worst)
    counts = worker_counts(cores)
    return Machine(cores, COSTS, dict.fromkeys(counts, curve), dict.fromkeys(counts, 0.3))


def chosen(profile: Profile, cores: int = 4, **ask: Any) -> tuple[str, int | None]:
    best = decide(candidates(profile, machine(cores), Requirements(**ask))).chosen
    assert best is not None
    return best.backend, best.workers


seconds = st.floats(1e-7, 1e-1)
counts = st.integers(1, 4096)


@given(step=seconds, num_envs=counts)
def test_the_formula_of_the_literature_is_the_case_of_one_worker(
    step: float, num_envs: int
) -> None:
    profile = replace(QUICK, step=step)
    time, worst = predict(profile, machine(), Requirements(num_envs), "serial", None)
    assert worst == time
    overhead = time - num_envs * step
    assert efficiency(num_envs, step, overhead) == pytest.approx(num_envs * step / time)
    cost = COSTS["serial"]
    assert overhead == pytest.approx(cost.batch + num_envs * cost.host, rel=1e-6)


@given(
    step=seconds, waiting=st.floats(0, 1), num_envs=counts, workers=st.integers(1, 64),
    backend=st.sampled_from(["thread", "process"]), info=st.integers(0, 10_000),
    overlap=st.sampled_from([0.0, 1e-3]),
)  # fmt: skip
def test_more_work_never_takes_less(
    step: float,
    waiting: float,
    num_envs: int,
    workers: int,
    backend: str,
    info: int,
    overlap: float,
) -> None:
    profile = replace(QUICK, step=step, waiting=waiting, info_bytes=info)

    def times(profile: Profile, more: int = 0) -> Span:
        needs = Requirements(num_envs + more, overlap=overlap)
        return predict(profile, machine(), needs, backend, workers)

    time = times(profile)
    assert time.usual <= time.worst
    for larger in (
        times(profile, 1),
        times(replace(profile, step=2 * step)),
        times(replace(profile, observation_bytes=10_000)),
        times(replace(profile, table_infos=1.0)),
    ):
        assert time.usual <= larger.usual * (1 + 1e-9)
        assert time.worst <= larger.worst * (1 + 1e-9)


@given(num_envs=counts)
def test_infos_of_the_table_cost_the_caller_of_others_than_serial(num_envs: int) -> None:
    informing = replace(QUICK, table_infos=0.5)
    needs, info = Requirements(num_envs), machine().costs["process"].info
    for backend, each in (("serial", 0.0), ("thread", info / 4), ("process", info / 4)):
        without, with_infos = (
            predict(profile, machine(), needs, backend, 2) for profile in (QUICK, informing)
        )
        for before, after in zip(without, with_infos, strict=True):
            assert after - before == pytest.approx(num_envs * each, abs=1e-12)


@given(step=seconds, waiting=st.floats(0, 1), num_envs=counts, workers=st.integers(1, 64))
def test_no_more_is_computed_at_once_than_there_are_cores(
    step: float, waiting: float, num_envs: int, workers: int
) -> None:
    profile = replace(QUICK, step=step, waiting=waiting)
    time, _ = predict(profile, machine(3), Requirements(num_envs), "process", workers)
    assert time >= num_envs * profile.computing / 3
    assert time >= step


@given(work=st.lists(st.floats(1e-7, 1.0), min_size=2, max_size=2).map(sorted))
def test_a_curve_rises_and_is_never_below_the_work(work: list[float]) -> None:
    curve = machine().curves[4]
    less, more = map(curve.at, work)
    assert less.usual <= more.usual * (1 + 1e-9)
    assert less.usual >= work[0]
    assert less.worst >= less.usual


def test_between_two_points_a_curve_is_a_line() -> None:
    curve = Curve((1.0, 3.0), (2.0, 6.0), (3.0, 9.0))
    assert curve.at(2.0) == Span(4.0, 6.0)
    assert curve.at(0.5) == Span(1.5, 2.5)  # the overhead of the first point
    assert curve.at(6.0) == Span(12.0, 18.0)  # the slowdown of the last


def test_what_the_caller_computes_meanwhile_counts() -> None:
    """In its own thread it comes on top; beside processes it takes its share of the cores."""
    needs, busy = Requirements(8), Requirements(8, overlap=4e-3)
    for backend, workers, more in (("serial", None, 4e-3), ("process", 4, 0.0)):
        alone, _ = predict(COMPUTES, machine(), needs, backend, workers)
        both, _ = predict(COMPUTES, machine(), busy, backend, workers)
        least = max(alone + more, 4e-3, (8 * 1.001e-3 + 4e-3) / 4)
        assert both == pytest.approx(least, rel=0.01)


def test_of_more_workers_than_were_measured_each_has_less_of_a_core() -> None:
    few = predict(COMPUTES, machine(2), Requirements(8), "process", 2)
    many = predict(COMPUTES, machine(2), Requirements(8), "process", 8)
    assert many.usual >= few.usual * (1 - 1e-9)


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


def test_there_are_no_more_threads_than_256() -> None:
    found = candidates(WAITS, machine(), Requirements(1000))
    assert max(one.workers or 0 for one in found if one.backend == "thread") == 256


def test_an_event_loop_is_not_blocked_for_long() -> None:
    assert chosen(QUICK, num_envs=8, blocking=False) == ("serial", None)
    assert chosen(COMPUTES, num_envs=1, blocking=False)[0] == "thread"
    slow_to_reset = replace(QUICK, reset=0.1)
    assert chosen(slow_to_reset, num_envs=1, blocking=False)[0] != "serial"


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
    free, _ = predict(profile, machine(), Requirements(64), "asyncio", None)
    bound, _ = predict(profile, machine(), Requirements(64, max_concurrency=8), "asyncio", None)
    assert bound == pytest.approx(8 * free, rel=0.1)
