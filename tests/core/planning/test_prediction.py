"""How long batches are predicted to take, and what is chosen by that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.core.planning.choice import decide
from agym.core.planning.model import Profile, Requirements, candidates, predict

QUICK = Profile("Quick", 1e-3, 1e-5, 2e-6)
COMPUTES = Profile("Computes", 1e-3, 1e-5, 1e-3)
WAITS = Profile("Waits", 1e-3, 1e-5, 1e-2, waiting=0.99)


def chosen(profile: Profile, cores: int = 4, **ask: Any) -> tuple[str, int | None]:
    needs = Requirements(**ask, cores=cores)
    best, _ = decide(candidates(profile, needs), workers_wanted=needs.workers is not None)
    return best.backend, best.workers


seconds = st.floats(1e-7, 1e-1)
counts = st.integers(1, 4096)


@given(
    step=seconds, waiting=st.floats(0, 1), num_envs=counts, workers=st.integers(1, 64),
    backend=st.sampled_from(["thread", "process"]), infos=st.floats(0, 9),
)  # fmt: skip
def test_more_work_never_takes_less(
    step: float, waiting: float, num_envs: int, workers: int, backend: str, infos: float
) -> None:
    profile = replace(QUICK, step=step, waiting=waiting, infos=infos)

    def time(profile: Profile, more: int = 0) -> float:
        return predict(profile, Requirements(num_envs + more, cores=4), backend, workers)

    for larger in (
        time(profile, 1),
        time(replace(profile, step=2 * step)),
        time(replace(profile, infos=10.0)),
    ):
        assert time(profile) <= larger * (1 + 1e-9)


@given(step=seconds, waiting=st.floats(0, 1), num_envs=counts, workers=st.integers(1, 64))
def test_no_more_is_computed_at_once_than_there_are_cores(
    step: float, waiting: float, num_envs: int, workers: int
) -> None:
    profile = replace(QUICK, step=step, waiting=waiting)
    time = predict(profile, Requirements(num_envs, cores=3), "process", workers)
    assert time >= num_envs * step * (1 - waiting) / 3
    assert time >= step


@given(
    step=seconds, waiting=st.floats(0, 1), num_envs=counts, workers=st.integers(1, 16),
    backend=st.sampled_from(["serial", "thread", "process"]), others=st.integers(0, 3),
)  # fmt: skip
def test_nothing_gets_faster_beside_other_programs(
    step: float, waiting: float, num_envs: int, workers: int, backend: str, others: int
) -> None:
    profile = replace(QUICK, step=step, waiting=waiting)
    alone, crowded = (
        predict(profile, Requirements(num_envs, cores=4, others=busy), backend, workers)
        for busy in (others, others + 1)
    )
    assert alone <= crowded


def test_infos_are_a_reason_to_stay() -> None:
    assert chosen(QUICK, num_envs=1024)[0] == "process"
    assert chosen(replace(QUICK, infos=2.0), num_envs=1024) == ("serial", None)


def test_quick_environments_stay_in_this_thread() -> None:
    assert chosen(QUICK, num_envs=8) == ("serial", None)


@pytest.mark.parametrize(("microseconds", "backend"), [(180, "serial"), (200, "process")])
def test_two_processes_are_worth_a_batch_of_190_microseconds(
    microseconds: int, backend: str
) -> None:
    """Which the documentation says."""
    profile = replace(QUICK, step=microseconds * 1e-6 / 8)
    assert chosen(profile, cores=2, num_envs=8)[0] == backend


def test_many_quick_ones_are_worth_processes() -> None:
    assert chosen(QUICK, num_envs=1024) == ("process", 4)


def test_what_computes_goes_to_as_many_processes_as_cores() -> None:
    assert chosen(COMPUTES, num_envs=8) == ("process", 4)
    assert chosen(COMPUTES, num_envs=3) == ("process", 3)
    assert chosen(COMPUTES, num_envs=8, cores=1) == ("serial", None)


def test_more_cores_than_the_work_is_worth_are_left_alone() -> None:
    backend, workers = chosen(QUICK, num_envs=1024, cores=64)
    assert backend == "process"
    assert workers is not None
    assert workers < 32


def test_what_waits_gets_a_thread_each() -> None:
    assert chosen(WAITS, num_envs=64) == ("thread", 64)
    assert chosen(WAITS, num_envs=256, cores=1)[0] == "thread"


def test_threads_that_take_turns_are_not_many() -> None:
    found = candidates(COMPUTES, Requirements(8))
    assert [one.workers for one in found if one.backend == "thread"] == [1]


def test_there_are_no_more_threads_than_256() -> None:
    slow = replace(WAITS, step=10.0)
    assert chosen(slow, num_envs=1000) == ("thread", 256)


def test_an_event_loop_is_not_blocked_for_long() -> None:
    assert chosen(QUICK, num_envs=8, blocking=False) == ("serial", None)
    assert chosen(COMPUTES, num_envs=1, blocking=False)[0] == "thread"
    slow_to_reset = replace(QUICK, reset=0.1)
    assert chosen(slow_to_reset, num_envs=1, blocking=False)[0] != "serial"


def test_workers_that_are_asked_for_are_taken() -> None:
    assert chosen(QUICK, num_envs=8, workers=2)[1] == 2
    assert chosen(COMPUTES, num_envs=8, workers=2) == ("process", 2)


def test_coroutine_environments_live_on_loops() -> None:
    profile = replace(WAITS, waiting=1.0, coroutine=True)
    found = candidates(profile, Requirements(64))
    assert {one.backend for one in found} == {"asyncio", "process"}
    assert chosen(profile, num_envs=64) == ("asyncio", None)
    busy = replace(profile, waiting=0.2)
    assert chosen(busy, num_envs=64) == ("process", 4)


def test_what_cannot_be_pickled_stays_in_this_process() -> None:
    assert chosen(COMPUTES, num_envs=8, obstacle="cannot be") == ("serial", None)
    found = candidates(COMPUTES, Requirements(8, obstacle="cannot be"))
    assert {one.remark for one in found if one.backend == "process"} == {"cannot be"}
