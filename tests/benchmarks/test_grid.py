"""The grid: its cells, what is the best of several, and what is drawn of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agym.errors import UsageError
from benchmarks.measuring.workloads import Workload, sample_actions
from benchmarks.reports.count_plot import curves
from benchmarks.reports.results import BARE, BOUND, Report, Row, Settings, WorkloadResult
from benchmarks.systems.peers import PEERS, Peer, TianshouShmem, TorchRLParallel
from benchmarks.systems.runners import AgymOneProcess, AgymProcess, AgymThreads
from benchmarks.throughput.cells import AUTO, FIXED, OTHERS, SYSTEMS, Best, Cell, judge_cells
from benchmarks.throughput.grid import ENVS, grid_workloads, grouped_notes, parse_counts
from tests.benchmarks.tiny import FEW, PNG, few_systems, run
from tests.support.patience import patience


def cell_result(num_envs: int, bare: float, **rates: float) -> WorkloadResult:
    names = {"auto": AUTO, "serial": "agym serial", "process": "agym process",
             "sync": "Gymnasium Sync", "dummy": "Tianshou Dummy"}  # fmt: skip
    rows = [Row(names[name], (rate, 2 * rate)) for name, rate in rates.items()]
    return WorkloadResult(f"E ×{num_envs}", (Row(BARE, (bare, 2 * bare)), *rows))


@pytest.mark.full
def test_command_measures_every_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fonts: None
) -> None:
    few_systems(monkeypatch)
    done = run(
        tmp_path, "grid", "CartPole-v1", "Null-v0", "--num-envs", "1,2",
        "--seconds", "0.002", "--repeats", "2", plot="grid.png",
    )  # fmt: skip
    names = ["CartPole-v1 ×1", "CartPole-v1 ×2", "Null-v0 ×1", "Null-v0 ×2"]
    assert [work["work"] for work in done.data["workloads"]] == names
    for work in done.data["workloads"]:
        systems = [row["system"] for row in work["rows"]]
        assert systems == [BARE, BOUND, *(kind.name for kind in FEW[1:])]
        assert work["work"] in done.stdout
    targets = done.data["targets"]
    assert [target["wanted"] for target in targets] == [0.95, 1.0] * 4
    assert all(
        target["target"].startswith(name) for target, name in zip(targets[::2], names, strict=True)
    )
    assert "of 4" in done.stdout
    assert (tmp_path / "grid.png").read_bytes().startswith(PNG)


def test_by_default_there_are_twelve_environments_and_four_counts() -> None:
    workloads = grid_workloads(ENVS, parse_counts("1,8,64,512"))
    assert len({*workloads}) == 48


def test_every_system_has_a_name_of_its_own() -> None:
    assert len({kind.name for kind in SYSTEMS}) == len(SYSTEMS) == 2 + len(FIXED) + len(OTHERS)


def test_counts_are_read() -> None:
    assert parse_counts("8, 1,64,8") == (1, 8, 64)
    for text in ("", "1,", "0", "-1", "8;9", "x"):
        with pytest.raises(UsageError, match="write 1,8,64"):
            parse_counts(text)


def test_best_is_what_agym_is_least_ahead_of() -> None:
    cell = Cell.of(cell_result(8, 100_000.0, auto=90.0, serial=45.0, process=100.0, sync=30.0))
    assert cell is not None
    assert cell.fixed == Best("agym process", 0.9)
    assert cell.peer == Best("Gymnasium Sync", 3.0)
    assert [verdict.met for verdict in cell.verdicts()] == [False, True]


def test_more_is_wanted_where_a_batch_takes_long() -> None:
    short = Cell.of(cell_result(19, 150_000.0, auto=1.4, dummy=1.0))  # 19 × 4.4 µs
    long = Cell.of(cell_result(46, 150_000.0, auto=1.4, dummy=1.0))  # 46 × 4.4 µs
    assert short is not None
    assert long is not None
    assert (short.peer_factor, long.peer_factor) == (1.0, 1.5)
    assert [v.met for v in (*short.verdicts(), *long.verdicts())] == [None, True, None, False]


def test_cell_without_environments_is_not_judged() -> None:
    assert judge_cells([WorkloadResult("E ×1", notes=("it is not installed",))]) == ()


def test_notes_stand_once_with_the_cells_that_they_concern() -> None:
    workloads = (
        WorkloadResult("E ×1", notes=("a",)), WorkloadResult("E ×8", notes=("a", "b")),
        WorkloadResult("F ×8", notes=("a", "b")),
    )  # fmt: skip
    assert [*grouped_notes(Report({}, Settings(), workloads))] == ["a.", "b (E ×8, F ×8)."]


def test_curves_are_milliseconds_by_environment_system_and_count() -> None:
    workloads = [cell_result(1, 2000.0, auto=1000.0), cell_result(4, 2000.0, auto=2000.0)]
    assert curves(workloads) == {
        "E": {BARE: {1: pytest.approx(1 / 3), 4: pytest.approx(4 / 3)},
              AUTO: {1: pytest.approx(2 / 3), 4: pytest.approx(4 / 3)}}
    }  # fmt: skip


def test_fixed_choices_ask_for_workers_as_they_say() -> None:
    work = Workload("Null-v0", 3)
    for kind, workers in ((AgymOneProcess, 1), (AgymProcess, 2), (AgymThreads, 3)):
        system = kind(work, sample_actions(work), 2)
        try:
            system.reset()
            assert len(system._envs.stats().workers) == workers
        finally:
            system.close()


# ---------------------------------------------------------------- peers


def test_peer_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.systems.peers.installed", lambda package: False)
    for kind in PEERS:
        assert issubclass(kind, Peer)
        reason = kind.why_not(Workload("CartPole-v1", 1))
        assert reason == f"{kind.package} is not installed: pip install {kind.package}"


def test_process_per_environment_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.systems.peers.installed", lambda package: True)
    for kind in (TianshouShmem, TorchRLParallel):
        assert kind.why_not(Workload("CartPole-v1", kind.max_processes)) is None
        reason = kind.why_not(Workload("CartPole-v1", kind.max_processes + 1))
        assert reason is not None
        assert str(kind.max_processes) in reason


PEERS_STEP = """
from benchmarks.systems.peers import PEERS
from benchmarks.measuring.workloads import Workload, sample_actions

if __name__ == "__main__":
    workloads = Workload("CartPole-v1", 2), Workload("Pendulum-v1", 2)
    for work in workloads:
        actions = sample_actions(work)
        for kind in PEERS:
            if kind.why_not(work) is None and not (kind.process_per_env and work != workloads[0]):
                system = kind(work, actions, 2)
                system.reset()
                assert system.run(0.05) > 0
                system.close()
                print(kind.name)
"""


@pytest.mark.full
def test_every_peer_that_is_installed_steps(tmp_path: Path) -> None:
    """In a process of its own, since some leave fork servers, or write where they run."""
    script = tmp_path / "peers_step.py"
    script.write_text(PEERS_STEP)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(5.5),
    )
    assert done.returncode == 0, done.stderr
    wanted = {kind.name for kind in PEERS if kind.why_not(Workload("CartPole-v1", 2)) is None}
    assert {*done.stdout.split("\n")} - {""} == wanted


def test_actions_are_the_same_in_every_form() -> None:
    work = Workload("Null-v0", 2)
    actions = sample_actions(work)
    for kind in FEW:
        chosen = kind.choose(object.__new__(kind), actions)
        np.testing.assert_array_equal(np.asarray(chosen[0]), actions.batches[0])
