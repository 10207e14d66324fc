from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.overhead.efficiency_plot import save_efficiency_plot
from benchmarks.reports.count_plot import save_count_plot
from benchmarks.reports.plot import save_plot
from benchmarks.reports.results import BARE, BOUND, Report, Row, Settings, WorkloadResult


@pytest.fixture(scope="session")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have matplotlib open its fonts, which it keeps open, for every kind of chart."""
    path: Path = tmp_path_factory.mktemp("fonts") / "plot"
    rows = Row(BARE, (1000.0,)), Row(BOUND, (2000.0,)), Row("agym serial", (100.0,))
    # Over several powers of ten, and within one: their ticks are written differently.
    workloads = tuple(
        WorkloadResult(f"{env} ×{count}", rows)
        for env, count in [("E", 1), ("E", 300), ("F", 2), ("F", 3)]
    )
    report = Report({}, Settings(), workloads)
    save_plot(report, path)
    save_count_plot(workloads, path)
    save_efficiency_plot(report, workloads, path)
