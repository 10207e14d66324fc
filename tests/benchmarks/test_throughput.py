from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from agym.core._system.extras import installed
from benchmarks.measuring.workloads import Workload
from benchmarks.reports.plot import save_plot
from benchmarks.reports.results import BARE, BOUND, Report, Row, Settings, Verdict, WorkloadResult
from benchmarks.reports.tables import show
from benchmarks.systems.runners import SYSTEMS
from benchmarks.throughput.command import run
from tests.support.patience import patience
from tests.support.scripts import install_command

# One run of the command is looked at by all, in one process.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("throughput")]

PNG = b"\x89PNG\r\n\x1a\n"
SB3 = ("SB3 Dummy", "SB3 Subproc")


@dataclass(frozen=True)
class Run:
    stdout: str
    stderr: str
    json: str
    report: Report


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the command itself, in a process of its own: fork servers end with it."""
    path = tmp_path_factory.mktemp("bench") / "result.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", "throughput", "CartPole-v1:8"),
            *("--seconds", "0.01", "--repeats", "2", "--workers", "2", "--json", str(path)),
        ],
        capture_output=True, text=True, timeout=patience(11),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = path.read_text(encoding="utf-8")
    return Run(done.stdout, done.stderr, text, Report.from_json(text))


@pytest.fixture
def report() -> Report:
    rows = [Row(kind.name, (10.0 + i, 12.0 + i)) for i, kind in enumerate(SYSTEMS)]
    workloads = (
        WorkloadResult("CartPole-v1 ×8", (rows[0], Row(BOUND, (20.0, 24.0)), *rows[1:])),
        WorkloadResult("ALE/Pong-v5 ×8", notes=("ale_py is not installed",)),
        WorkloadResult("Acrobot-v1 ×32", (rows[0], rows[1]), ("SB3 Subproc: why",), 0.5, 1.5),
    )
    targets = (
        Verdict("one", 1.6, 1.7, True), Verdict("two", 1.6, 1.5, False),
        Verdict("three", 1.6, None, None), Verdict("four", 200.0, 80.0, True, "MB"),
    )  # fmt: skip
    return Report(
        {"cpu": "A CPU", "cores": "2", "numpy": "2"}, Settings(), workloads, None, targets
    )


def shown(report: Report) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(show(report))
    return console.export_text()


@pytest.mark.full
def test_every_installed_system_is_measured(tiny: Run) -> None:
    (work,) = tiny.report.workloads
    wanted = [kind.name for kind in SYSTEMS if kind.why_not(Workload("CartPole-v1", 8)) is None]
    assert [row.system for row in work.rows] == [BARE, BOUND, *wanted[1:]]
    for row in work.rows:
        assert row.system in tiny.stdout
        assert len(row.rates) == 2
        assert min(row.rates) > 0


@pytest.mark.skipif(not installed("stable_baselines3"), reason="the extra sb3 is not installed")
def test_stable_baselines3_is_measured_where_installed(tiny: Run) -> None:
    assert {row.system for row in tiny.report.workloads[0].rows} >= {*SB3}
    assert "SB3 resets within the last step" in tiny.stdout


@pytest.mark.full
def test_bound_is_the_bare_environment_times_the_workers(tiny: Run) -> None:
    (work,) = tiny.report.workloads
    bare, bound = work.row(BARE), work.row(BOUND)
    assert bare is not None
    assert bound is not None
    assert bound.rates == tuple(2 * rate for rate in bare.rates)


def test_targets_of_the_work_are_judged(tiny: Run) -> None:
    assert len(tiny.report.targets) == 4
    for target in tiny.report.targets:
        assert target.target.startswith("CartPole-v1 ×8: agym")
        assert target.met is (target.measured >= target.wanted)  # type: ignore[operator]


def test_json_round_trip(tiny: Run) -> None:
    assert Report.from_json(tiny.json).to_json() == tiny.json
    assert tiny.report.settings == Settings(0.01, 2, 2)


def test_machine_is_described_without_names_and_paths(tiny: Run) -> None:
    machine = tiny.report.machine
    assert {"cpu", "cores", "system", "python", "agym-envs", "gymnasium", "numpy"} <= {*machine}
    assert machine["gymnasium"] in tiny.stdout
    assert not any("/" in value and Path(value).exists() for value in machine.values())


def test_synthetic_report_survives_json(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report


def test_tables_show_what_was_left_out_and_why(report: Report) -> None:
    text = shown(report)
    assert "ale_py is not installed" in text
    assert "SB3 Subproc: why" in text
    assert "used at most 50% of a core" in text
    assert "Acrobot-v1 ×32: other programs kept 1.5 cores busy" in text
    assert "Targets" not in text


@pytest.mark.usefixtures("fonts")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_plot_is_a_png(report: Report, tmp_path: Path, count: int) -> None:
    workloads = report.workloads[:count]
    path = tmp_path / "plot"
    save_plot(Report(report.machine, report.settings, workloads), path)
    assert path.read_bytes().startswith(PNG)


def test_work_without_its_package_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.measuring.workloads.installed", lambda module: module != "ale_py"
    )
    report = run([Workload("ALE/Pong-v5", 8)], Settings(), wants_startup=False)
    (work,) = report.workloads
    assert work.rows == ()
    assert install_command("atari") in work.notes[0]
    assert [target.met for target in report.targets] == [None] * 3


def test_start_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.throughput.command.STARTUP_WORKLOAD", Workload("CartPole-v1", 4)
    )
    report = run([], Settings(repeats=1), wants_startup=True)
    assert report.workloads == ()
    assert report.startup is not None
    assert report.startup.work == "CartPole-v1 ×4"
    assert "Start-up" in shown(report)
    assert Report.from_json(report.to_json()) == report
