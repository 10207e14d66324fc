"""Batched policies beside their function and beside TorchRL: every part is measured and judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.agents.batched import (
    ASKERS,
    BatchedReport,
    Drill,
    Plan,
    drill_cancellation,
    show_batched,
)
from benchmarks.reports.results import Row
from tests.benchmarks.tiny import run


def test_cost_and_cancellation_are_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "batched", "--quick", "--part", "cost", "--part", "cancel")
    assert {*done.data["cost"]} == {"plain function", "coroutine function", "function alone"}
    drill = done.data["drill"]
    assert drill["answered"] + drill["cancelled"] == drill["requests"] == 2000
    assert drill["lost"] == drill["crossed"] == 0
    assert "coroutine function: added per request" in done.stdout


@pytest.mark.full
def test_torchrl_is_measured_beside(tmp_path: Path) -> None:
    pytest.importorskip("torchrl", reason="the extra `torchrl`")
    path = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks", "batched", "--quick", "--part", "torchrl"]
    # In a process of its own, since the peer warns, and patches what it imports.
    subprocess.run([*command, "--json", str(path)], check=True, capture_output=True)
    rows = json.loads(path.read_text())["frames"]["4"]
    assert all(rate > 0 for row in rows for rate in row["rates"])
    assert sum("AsyncBatchedCollector" in row["system"] for row in rows) == 3


def test_cancelled_requests_are_counted() -> None:
    drill = drill_cancellation(10 * ASKERS + 7)
    assert drill.answered + drill.cancelled == 10 * ASKERS + 7
    assert drill.cancelled > ASKERS


def test_what_is_slower_or_loses_is_judged() -> None:
    report = BatchedReport(
        {},
        Plan(),
        {"plain function": [60.0], "coroutine function": [40.0], "function alone": [1.0]},
        Drill(10, answered=8, cancelled=1, crossed=1, lost=1),
        {4: [Row("agym", (90.0,)), Row("another", (100.0,))]},
    )
    assert [target.met for target in report.targets] == [False, True, False, False, False]
    assert show_batched(report) is not None
