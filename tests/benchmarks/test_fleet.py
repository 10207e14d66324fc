"""Spares and hedged steps: both parts are measured and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agents.fleet import (
    AT_ONCE,
    FREE,
    LATE,
    OFF,
    PLACES,
    PLAIN,
    SPARES,
    FleetReport,
    Plan,
    show_fleet,
)
from tests.benchmarks.tiny import run


@pytest.mark.full
def test_both_parts_are_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "fleet", "--quick")
    assert {*done.data["spares"]} == {*PLACES}
    for systems in done.data["spares"].values():
        assert {*systems} == {FREE, PLAIN, SPARES}
        assert len({len(steps) for steps in systems.values()}) == 1
    assert {*done.data["hedge"]} == {OFF, AT_ONCE, LATE}
    assert "share of the reset time that spares hide" in done.stdout
    assert "99th percentile of a step" in done.stdout


def test_what_is_judged() -> None:
    spares = {"here": {FREE: [1.0, 0.0], PLAIN: [1.0, 10.0], SPARES: [1.0, 2.0]}}
    hedge = {OFF: [[1.0] * 90 + [10.0] * 10], AT_ONCE: [[1.0] * 100], LATE: [[1.0] * 100]}
    report = FleetReport({}, Plan(), spares, hedge)
    hidden, tail = report.targets
    assert (hidden.measured, hidden.met) == (0.8, False)
    assert (tail.measured, tail.met) == (1.0, True)
    assert show_fleet(report) is not None
