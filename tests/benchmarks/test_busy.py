"""``busy``: neighbours that really run, and targets that follow from the cells."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import typer

from benchmarks.measuring.neighbours import ONE_LOOP, QUIET, TWO_LOOPS
from benchmarks.reports.results import Row, Settings, WorkloadResult
from benchmarks.systems.runners import AgymAuto, AgymProcess, AgymSerial, GymnasiumSync
from benchmarks.throughput.busy import (
    Beside,
    BusyReport,
    is_steady,
    judge,
    parse_neighbours,
)
from tests.benchmarks.tiny import PNG, few_systems, run

SYNC, SERIAL = GymnasiumSync.name, AgymSerial.name
PROCESS, AUTO = AgymProcess.name, AgymAuto.name


def cell(num_envs: int, **rates: float) -> WorkloadResult:
    names = {"sync": SYNC, "serial": SERIAL, "process": PROCESS, "auto": AUTO}
    rows = tuple(Row(names[name], (rate, rate)) for name, rate in rates.items())
    return WorkloadResult(f"E ×{num_envs}", rows)


def test_neighbours_end_with_the_benchmark() -> None:
    with TWO_LOOPS.running() as pids:
        programs = [psutil.Process(pid) for pid in pids]
        assert len(programs) == 2
        children = psutil.Process().children(recursive=True)
        assert not set(programs) & set(children)
    for program in programs:
        with suppress(psutil.NoSuchProcess):
            while program.status() != psutil.STATUS_ZOMBIE:  # whoever adopted it may not reap it
                time.sleep(0.01)
    with QUIET.running() as pids:
        assert pids == []


def test_neighbours_have_names() -> None:
    assert parse_neighbours(" 1 ") is ONE_LOOP
    with pytest.raises(typer.BadParameter, match="learner"):
        parse_neighbours("3")


@pytest.mark.parametrize(
    ("batch_seconds", "factors"),
    [(2e-3, {PROCESS: 0.95, AUTO: 0.95}), (0.5e-3, {PROCESS: 0.85, AUTO: 0.95}),
     (0.1e-3, {AUTO: 0.95})],
)  # fmt: skip
def test_targets_depend_on_the_quiet_batch(batch_seconds: float, factors: dict[str, float]) -> None:
    quiet = cell(100, sync=100 / batch_seconds, serial=1.0)
    work = cell(100, sync=90.0, serial=100.0, process=90.0, auto=96.0)
    verdicts = [*judge(work, "one busy loop", quiet)]
    assert [verdict.wanted for verdict in verdicts] == [*factors.values()]
    measured = {PROCESS: 0.9, AUTO: 0.96}
    for verdict, name in zip(verdicts, factors, strict=True):
        assert verdict.target == f"E ×100 next to one busy loop: {name} against {SERIAL}"
        assert verdict.measured == pytest.approx(measured[name])
        assert verdict.met is (measured[name] >= verdict.wanted)


def test_cells_that_vary_are_not_judged() -> None:
    assert is_steady(Row("", (100.0, 105.0, 110.0, 115.0, 300.0)))
    assert not is_steady(Row("", (60.0, 70.0, 100.0, 130.0, 140.0)))
    quiet = cell(100, sync=1000.0)
    work = WorkloadResult("E ×100", (Row(SYNC, (50.0, 100.0)), Row(PROCESS, (50.0, 100.0))))
    assert not [*judge(work, "a learner", quiet)]
    assert not [*judge(cell(100, process=1.0), "a learner", quiet)]
    assert not [*judge(cell(100, sync=1.0, process=1.0), "a learner", None)]


def test_the_quiet_cells_are_not_judged() -> None:
    quiet = Beside(QUIET.name, (cell(8, sync=10.0, process=1.0, auto=1.0),))
    busy = Beside(ONE_LOOP.name, (cell(8, sync=10.0, process=1.0, auto=1.0),))
    report = BusyReport({}, Settings(), (quiet, busy))
    assert len(report.targets) == 2
    assert all(ONE_LOOP.name in verdict.target for verdict in report.targets)


@pytest.mark.full
def test_it_measures_beside_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fonts: None
) -> None:
    few_systems(monkeypatch)
    done = run(
        tmp_path, "busy", "CartPole-v1:2", "--beside", "0,1", "--seconds", "0.01",
        "--repeats", "2", plot="busy.png",
    )  # fmt: skip
    assert [part["neighbours"] for part in done.data["parts"]] == ["nothing", "one busy loop"]
    for part in done.data["parts"]:
        (work,) = part["workloads"]
        assert {row["system"] for row in work["rows"]} >= {SYNC, PROCESS, AUTO}
    assert "Next to one busy loop" in done.stdout
    assert (tmp_path / "busy.png").read_bytes().startswith(PNG)
