"""The rule by which a backend is chosen, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agym.core.planning import choosing
from agym.core.planning.choice import Plan, decide, readable
from agym.core.planning.choosing import plan_for
from agym.core.planning.model import Candidate, Profile, Requirements
from tests.support.envs.plain_envs import Tally

COMPUTES = Profile("Computes", 1e-3, 1e-5, 1e-3)


def two(serial: float, process: float) -> list[Candidate]:
    return [Candidate("serial", None, serial), Candidate("process", 2, process)]


def chosen(found: list[Candidate], **ask: Any) -> str:
    return decide(found, **ask)[0].backend


def test_in_doubt_serial() -> None:
    assert chosen(two(1.0, 0.9)) == "serial"
    assert chosen(two(1.0, 0.87)) == "serial"
    assert chosen(two(1.0, 0.86)) == "process"


def test_what_was_measured_counts_instead_of_the_prediction() -> None:
    serial, process = two(1e-3, 0.5e-3)
    assert chosen([serial, process]) == "process"
    assert chosen([serial, replace(process, measured=1.2e-3)]) == "serial"
    # Both were measured: no margin for what is not known is needed.
    tried = [replace(serial, measured=100e-6), replace(process, measured=80e-6)]
    assert chosen(tried) == "process"


def test_whoever_asks_for_workers_gets_the_fastest() -> None:
    found = [Candidate("thread", 2, 100e-6), Candidate("process", 2, 90e-6)]
    assert chosen(found) == "thread"
    assert chosen(found, workers_wanted=True) == "process"


def test_where_serial_is_unable_the_next_is_the_simplest() -> None:
    serial, process = two(1e-3, 0.9e-3)
    thread = Candidate("thread", 1, 1e-3)
    assert chosen([replace(serial, remark="would block"), thread, process]) == "thread"


def plan(num_envs: int, monkeypatch: pytest.MonkeyPatch, cores: int = 4, others: int = 0) -> Plan:
    monkeypatch.setattr(choosing, "busy_cores", lambda: others)
    needs = Requirements(num_envs, cores=cores)
    return plan_for(COMPUTES, [Tally] * num_envs, needs, Tally)


def test_a_plan_prints_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(8, monkeypatch)
    lines = str(made).splitlines()
    (row,) = [line for line in lines if line.startswith("→")]
    assert row.split()[1:3] == ["process", "4"]
    assert readable(made.chosen.predicted) in row
    assert lines[-1] == made.why
    assert made.backend == "process"
    assert made.workers == 4


def test_a_plan_says_in_three_sentences_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(8, monkeypatch).why == (
        "process ×4 is predicted to take 2.09 ms per batch, serial is predicted to take 8 ms."
        " process ×4 is 3.83 times as fast. A step of one environment was measured to take 1 ms,"
        " and worker processes would have 4 cores."
    )
    assert plan(8, monkeypatch, 2, others=1).why == (
        "serial is predicted to take 8 ms per batch, process ×1 is predicted to take 8.06 ms."
        " process ×1 is 0.99 times as fast; below 1.15 times, the simpler backend is chosen."
        " A step of one environment was measured to take 1 ms,"
        " and other work keeps 1 of 2 cores busy."
    )
    assert decide(two(1e-3, 0.5e-3)[:1])[1] == "No other backend is possible."


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (2e-7, "0.2 µs"), (12.34e-6, "12.3 µs"), (2e-3, "2 ms"), (3.0, "3 s")],
)
def test_durations_have_units(value: float | None, text: str) -> None:
    assert readable(value) == text
