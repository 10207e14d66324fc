"""The grid: its cells, what is the best of several, and what is drawn of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agym.errors import UsageError
from benchmarks.measuring.workloads import Workload, sample_actions
from benchmarks.reports.count_plot import curves
from benchmarks.reports.results import (
    AT_ONCE,
    BARE,
    BOUND,
    LOOP,
    Report,
    Row,
    Settings,
    WorkloadResult,
)
from benchmarks.systems.peers import PEERS, Peer, TianshouShmem, TorchRLParallel
from benchmarks.systems.runners import AgymOneProcess, AgymOther, AgymProcess, AgymThreads
from benchmarks.throughput.cells import (
    AUTO,
    FIXED,
    OTHERS,
    SYSTEMS,
    Best,
    Cell,
    judge_cells,
    undecided,
)
from benchmarks.throughput.grid import (
    ENVS,
    grid_workloads,
    grouped_notes,
    parse_counts,
    run_grid,
)
from tests.benchmarks.tiny import FEW, PNG, few_systems, run
from tests.support.patience import patience


def cell_result(num_envs: int, bare: float, **rates: float) -> WorkloadResult:
    names = {"auto": AUTO, "serial": "agym serial", "process": "agym process",
             "sync": "Gymnasium Sync", "dummy": "SB3 Dummy"}  # fmt: skip
    rows = [Row(names[name], (rate, 2 * rate)) for name, rate in rates.items()]
    return WorkloadResult(f"E ×{num_envs}", (Row(BARE, (bare, 2 * bare)), *rows))


@pytest.mark.full
def test_command_measures_every_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fonts: None
) -> None:
    few_systems(monkeypatch)
    done = run(
        tmp_path, "grid", "CartPole-v1", "Null-v0", "--num-envs", "1,2",
        "--seconds", "0.002", "--repeats", "2", "--minutes", "0.1", plot="grid.png",
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
    assert (tmp_path / "grid.png").read_bytes().startswith(PNG)


def test_by_default_there_are_twelve_environments_and_four_counts() -> None:
    workloads = grid_workloads(ENVS, parse_counts("1,8,64,512"))
    assert len({*workloads}) == 48


def test_every_system_has_a_name_of_its_own() -> None:
    assert len({kind.name for kind in SYSTEMS}) == len(SYSTEMS) == 4 + len(FIXED) + len(OTHERS)


def test_counts_are_read() -> None:
    assert parse_counts("8, 1,64,8") == (1, 8, 64)
    for text in ("", "1,", "0", "-1", "8;9", "x"):
        with pytest.raises(UsageError, match="write 1,8,64"):
            parse_counts(text)


def test_best_is_the_fastest() -> None:
    cell = Cell.of(cell_result(8, 100_000.0, auto=90.0, serial=45.0, process=100.0, sync=30.0))
    assert cell is not None
    assert cell.fixed == Best("agym process", 0.9)
    assert cell.peer == Best("Gymnasium Sync", 3.0)
    assert [verdict.met for verdict in cell.verdicts()] == [False, True]


def test_the_other_auto_is_compared_where_one_was_asked() -> None:
    result = cell_result(8, 100_000.0, auto=90.0, serial=45.0, process=100.0)
    cell = Cell.of(result)
    assert cell is not None
    assert cell.other is None
    row = Row(AgymOther.name, (100.0, 200.0), "process ×2")
    cell = Cell.of(replace(result, rows=(*result.rows, row)))
    assert cell is not None
    assert cell.other == Best("process ×2", 0.9)
    *_, verdict = cell.verdicts()
    assert (verdict.wanted, verdict.met) == (0.95, False)
    assert verdict.target.endswith("against the other auto, process ×2")


@pytest.mark.full
def test_another_checkout_is_asked_for_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgymOther, "checkout", Path(__file__).parents[2], raising=False)
    work = Workload("CartPole-v1", 2)
    other = AgymOther(work, sample_actions(work), 2)
    try:
        assert other.choice == "serial"
        other.reset()
        assert other.run(0.01) > 0
    finally:
        other.close()


def test_more_is_wanted_where_a_batch_takes_long_and_cores_help() -> None:
    def factors(loop: float, at_once: float, *, busy: bool = False) -> tuple[float, float]:
        result = cell_result(100, 150_000.0, auto=1.2, dummy=1.0, serial=1.0)
        rows = [*result.rows, Row(LOOP, (loop, loop)), Row(AT_ONCE, (at_once, at_once))]
        cell = Cell.of(replace(result, rows=tuple(rows)), busy=busy)
        assert cell is not None
        return cell.fixed_factor, cell.peer_factor

    assert factors(110_000.0, 200_000.0) == (0.95, 1.0)  # 0.9 ms
    assert factors(90_000.0, 120_000.0) == (0.95, 1.0)  # two cores are 1.33 times one
    assert factors(90_000.0, 180_000.0) == (0.95, 1.3)
    assert factors(90_000.0, 180_000.0, busy=True) == (0.9, 1.0)


def test_more_slices_are_taken_while_they_may_change_a_verdict() -> None:
    def result(*ratios: float) -> WorkloadResult:
        rows = (
            Row(BARE, (1.0,) * len(ratios)), Row(AUTO, ratios, "serial"),
            Row("agym serial", (1.0,) * len(ratios)),
        )  # fmt: skip
        return WorkloadResult("E ×8", rows)

    assert not undecided(result(1.0, 1.0, 0.9, 1.0, 1.0))  # met
    assert undecided(result(1.0, 1.0, 0.9, 0.9, 1.0))  # met, but not for sure
    assert not undecided(result(0.8, 0.8, 0.9, 0.9, 1.0))  # missed
    assert undecided(result(0.9, 0.9, 0.9, 1.0, 1.0))
    assert undecided(result(0.8, 0.85, 0.85, 0.93, 0.93), busy=True)
    assert not undecided(WorkloadResult("E ×8"))


@pytest.mark.full
def test_slices_end_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.throughput.grid.SYSTEMS", FEW)
    monkeypatch.setattr("benchmarks.throughput.grid.undecided", lambda work, busy: True)
    work = Workload("Null-v0", 2)
    for limit, most in ((0.0, 2), (1.0, 1_000)):
        (result,) = run_grid([work], Settings(0.002, 2, 2, limit)).workloads
        counts = {len(row.rates) for row in result.rows}
        assert len(counts) == 1
        assert 2 <= counts.pop() <= most


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
