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
LOOPS = replace(WAITS, waiting=1.0, coroutine=True)


def of_batch(seconds: float) -> Profile:
    return replace(QUICK, step=seconds / 8)


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


CASES: dict[str, tuple[Profile, dict[str, Any], tuple[str, int | None]]] = {
    "quick": (QUICK, {"num_envs": 8}, ("serial", None)),
    "many quick": (QUICK, {"num_envs": 1024}, ("process", 4)),
    "many quick with infos": (replace(QUICK, infos=2.0), {"num_envs": 1024}, ("serial", None)),
    "a batch of 180 us": (of_batch(180e-6), {"num_envs": 8, "cores": 2}, ("serial", None)),
    "a batch of 200 us": (of_batch(200e-6), {"num_envs": 8, "cores": 2}, ("process", 2)),
    "computes": (COMPUTES, {"num_envs": 8}, ("process", 4)),
    "fewer than cores": (COMPUTES, {"num_envs": 3}, ("process", 3)),
    "one core": (COMPUTES, {"num_envs": 8, "cores": 1}, ("serial", None)),
    "cannot be pickled": (COMPUTES, {"num_envs": 8, "obstacle": "cannot be"}, ("serial", None)),
    "a thread each": (WAITS, {"num_envs": 64}, ("thread", 64)),
    "at most 256 threads": (replace(WAITS, step=10.0), {"num_envs": 1000}, ("thread", 256)),
    "beside a loop": (QUICK, {"num_envs": 8, "blocking": False}, ("serial", None)),
    "blocks a loop": (COMPUTES, {"num_envs": 1, "blocking": False}, ("thread", 1)),
    "resets block a loop": (
        replace(QUICK, reset=0.1), {"num_envs": 1, "blocking": False}, ("process", 1)
    ),
    "workers wanted": (COMPUTES, {"num_envs": 8, "workers": 2}, ("process", 2)),
    "coroutines": (LOOPS, {"num_envs": 64}, ("asyncio", None)),
    "busy coroutines": (replace(LOOPS, waiting=0.2), {"num_envs": 64}, ("process", 4)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_chosen(case: str) -> None:
    """The documentation says that two processes are worth a batch of 190 us."""
    profile, ask, expected = CASES[case]
    assert chosen(profile, **ask) == expected


def test_more_cores_than_the_work_is_worth_are_left_alone() -> None:
    backend, workers = chosen(QUICK, num_envs=1024, cores=64)
    assert backend == "process"
    assert workers is not None
    assert workers < 32


def test_not_all_backends_are_candidates() -> None:
    found = candidates(COMPUTES, Requirements(8, obstacle="cannot be"))
    assert {one.remark for one in found if one.backend == "process"} == {"cannot be"}
    assert [one.workers for one in found if one.backend == "thread"] == [1]
    assert {one.backend for one in candidates(LOOPS, Requirements(64))} == {"asyncio", "process"}
