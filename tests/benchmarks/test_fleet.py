"""Hedged steps: they are measured and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agents.fleet import AT_ONCE, LATE, OFF, FleetReport, Plan, show_fleet
from tests.benchmarks.tiny import run


@pytest.mark.full
def test_hedged_steps_are_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "fleet", "--quick")
    assert {*done.data["hedge"]} == {OFF, AT_ONCE, LATE}
    assert "99th percentile of a step" in done.stdout


def test_what_is_judged() -> None:
    hedge = {OFF: [[1.0] * 90 + [10.0] * 10], AT_ONCE: [[1.0] * 100], LATE: [[1.0] * 100]}
    report = FleetReport({}, Plan(), hedge)
    (tail,) = report.targets
    assert (tail.measured, tail.met) == (1.0, True)
    assert show_fleet(report) is not None
