"""The rule by which a backend is chosen, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.planning.choice import (
    CLEARLY,
    LEAST_BATCH,
    REPAID_IN,
    decide,
    describe_costs,
    explain,
    readable,
)
from agym.planning.model import Candidate, Profile, Requirements, candidates
from agym.planning.plans import Plan
from agym.planning.typical import typical

COMPUTES = Profile("Computes", 1e-3, 1e-5, 1e-3)


def two(serial: float, usual: float, worst: float = 0.0, start: float = 0.0) -> list[Candidate]:
    return [
        Candidate("serial", None, serial, serial),
        Candidate("process", 2, usual, worst or usual, start),
    ]


def chosen(found: list[Candidate]) -> str:
    best = decide(found).chosen
    assert best is not None
    return best.backend


def test_in_doubt_serial() -> None:
    assert chosen(two(1.0, 0.9)) == "serial"
    assert chosen(two(1.0, 0.77)) == "serial"
    assert chosen(two(1.0, 0.76)) == "process"


def test_the_pessimistic_end_must_be_clearly_better() -> None:
    assert chosen(two(1.0, 0.5, worst=0.8)) == "serial"
    assert chosen(two(1.0, 0.5, worst=0.7)) == "process"


def test_short_batches_stay() -> None:
    assert chosen(two(0.99 * LEAST_BATCH, LEAST_BATCH / 4)) == "serial"
    assert chosen(two(1.01 * LEAST_BATCH, LEAST_BATCH / 4)) == "process"


def test_workers_must_repay_their_start() -> None:
    saved = 0.5e-3 * REPAID_IN
    assert chosen(two(1e-3, 0.5e-3, start=1.01 * saved)) == "serial"
    assert chosen(two(1e-3, 0.5e-3, start=0.99 * saved)) == "process"


@given(
    serial=st.floats(1e-6, 1.0), usual=st.floats(1e-6, 1.0), spread=st.floats(1.0, 3.0),
    start=st.floats(0.0, 10.0),
)  # fmt: skip
def test_what_is_chosen_was_predicted_to_be_clearly_faster(
    serial: float, usual: float, spread: float, start: float
) -> None:
    if chosen(two(serial, usual, usual * spread, start)) == "process":
        assert serial >= LEAST_BATCH
        assert serial >= CLEARLY * usual * spread
        assert (serial - usual) * REPAID_IN >= start


def test_what_was_measured_counts_instead_of_the_prediction() -> None:
    serial, process = two(1e-3, 0.5e-3)
    assert chosen([serial, process]) == "process"
    assert chosen([serial, replace(process, measured=1.2e-3)]) == "serial"
    # Both were measured: no margin for what is not known is needed, nor a least batch.
    tried = [replace(serial, measured=100e-6), replace(process, measured=80e-6)]
    assert chosen(tried) == "process"


def test_the_fewest_workers_that_are_as_fast() -> None:
    found = [*two(1.0, 0.5), Candidate("process", 4, 0.49, 0.49), Candidate("process", 8, 0.4, 0.4)]
    best = decide(found).chosen
    assert best is found[-1]
    assert decide(found[:-1]).chosen is found[1]


def test_another_is_chosen_where_the_fastest_is_in_doubt() -> None:
    serial, doubtful = two(1.0, 0.4, worst=0.9)
    sure = Candidate("thread", 8, 0.5, 0.6)
    assert chosen([serial, sure, doubtful]) == "thread"


def test_whoever_asks_for_workers_gets_the_fastest() -> None:
    thread = Candidate("thread", 2, 100e-6, 150e-6)
    process = Candidate("process", 2, 60e-6, 80e-6)
    assert chosen([thread, process]) == "thread"
    assert decide([thread, process], workers_wanted=True).chosen is process


def test_where_serial_is_unable_the_next_is_the_simplest() -> None:
    serial, process = two(1e-3, 0.9e-3)
    thread = Candidate("thread", 1, 1e-3, 1.1e-3)
    blocked = replace(serial, remark="would block the event loop")
    assert chosen([blocked, thread, process]) == "thread"
    assert decide([blocked]).chosen is None


def test_what_cannot_be_pickled_stays_in_this_process() -> None:
    found = candidates(COMPUTES, typical(4), Requirements(8, obstacle="cannot be"))
    decision = decide(found)
    assert decision.chosen is not None
    assert decision.chosen.backend == "serial"
    assert {one.remark for one in found if one.backend == "process"} == {"cannot be"}
    assert "process cannot be" in explain(decision, found, Requirements(8))


def plan(num_envs: int, **ask: Any) -> Plan:
    needs, machine = Requirements(num_envs, **ask), typical(4)
    found = candidates(COMPUTES, machine, needs)
    decision = decide(found)
    assert decision.chosen is not None
    why = f"{explain(decision, found, needs)} {describe_costs(machine)}"
    return Plan("Computes", num_envs, tuple(found), decision.chosen, why, COMPUTES, machine)


def test_a_plan_prints_as_a_table() -> None:
    made = plan(8)
    lines = str(made).splitlines()
    (row,) = [line for line in lines if line.startswith("→")]
    assert row.split()[1:3] == ["process", "4"]
    assert readable(made.chosen.predicted) in row
    assert readable(made.chosen.worst) in row
    assert lines[-1] == made.why
    assert made.backend == "process"
    assert made.workers == 4


def test_a_plan_says_in_three_sentences_why() -> None:
    for made in (plan(8), plan(1), plan(8, overlap=1e-3)):
        assert made.why.count(". ") == 2
        assert made.why.endswith(".")
    assert plan(8).why == (
        "process ×4 is predicted to take 2.46 ms per batch, serial 8.01 ms. process ×4 is 2.74"
        " times as fast at its pessimistic end. These are a typical machine's costs, for 4 cores."
    )
    assert "with the 1 ms that the caller computes meanwhile" in plan(8, overlap=1e-3).why


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (two(100e-6, 50e-6), "Batches below 250 µs stay with the simplest backend."),
        (two(1.0, 0.9), "process ×2 is 1.11 times as fast at its pessimistic end; below 1.3"),
        (two(1e-3, 0.5e-3, start=60.0), "do not repay the 60 s that its workers take to start"),
        (two(1e-3, 0.5e-3)[:1], "No other backend can be chosen."),
    ],
)
def test_each_reason_is_said(found: list[Candidate], said: str) -> None:
    assert said in explain(decide(found), found, Requirements(2))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (2e-7, "0.2 µs"), (12.34e-6, "12.3 µs"), (2e-3, "2 ms"), (3.0, "3 s")],
)
def test_durations_have_units(value: float | None, text: str) -> None:
    assert readable(value) == text
