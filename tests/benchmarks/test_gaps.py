"""``python -m benchmarks gaps``: how long an event loop does nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.agents.gaps import SYSTEMS, Gaps, Heartbeat
from benchmarks.app import app


def test_a_heartbeat_sees_a_loop_that_is_blocked() -> None:
    async def main() -> list[float]:
        with Heartbeat(asyncio.get_running_loop()) as heart:
            await asyncio.sleep(0.02)
            time.sleep(0.1)  # noqa: ASYNC251
            await asyncio.sleep(0.02)
            time.sleep(0.15)  # noqa: ASYNC251  # after which no beat comes
        return heart.gaps

    gaps = sorted(asyncio.run(main()))
    assert gaps[-1] >= 0.15
    assert gaps[-2] >= 0.1
    assert sum(gaps) >= 0.29


@pytest.mark.parametrize(("p99", "met"), [(4.9, True), (5.1, False)])
def test_the_limit_is_for_the_99th_percentile(p99: float, met: bool) -> None:
    row = Gaps("name", 1.0, 1.0, [p99], [80.0], p99, aim=True)
    assert row.judge().met is met


@pytest.mark.full
def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = CliRunner().invoke(app, ["gaps", "--quick", "--json", str(path)])
    assert done.exit_code == 0, done.output
    report = json.loads(path.read_text(encoding="utf-8"))
    assert [row["name"] for row in report["rows"]] == [system.name for system in SYSTEMS]
    for row in report["rows"]:
        assert 0 < row["p50"] <= row["all_p99"] <= max(row["longest"])
        assert row["steps"] > 0
        assert row["name"].split(",")[0] in done.output
    assert len(report["targets"]) == sum(system.aim for system in SYSTEMS)
