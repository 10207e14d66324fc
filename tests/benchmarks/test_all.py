"""The other figures of speed: scale, start-up, memory, variants; and all of them in one report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agym.api.options.options import OPTION_NAMES
from benchmarks.measuring.workloads import WORKLOADS, Workload, sample_actions
from benchmarks.overhead.startup import WORKLOAD, run_memory, run_startup
from benchmarks.reports.results import BARE, LOOP, Row, StartupResult, WorkloadResult
from benchmarks.reports.targets import TARGETS
from benchmarks.systems.base import Contest
from benchmarks.systems.variants import (
    COPIES,
    INFOS,
    CopiedViews,
    CopiesWorkload,
    InfosWorkload,
    Kept,
    Views,
)
from benchmarks.throughput.command import parse
from benchmarks.throughput.everything import QUICK, Plan
from benchmarks.throughput.scale import NOISE, judge_scale, rise
from tests.benchmarks.tiny import PNG, few_systems, run


def costs(**rates: tuple[float, ...]) -> list[WorkloadResult]:
    """``n8=(...)``: rates with eight environments."""
    return [
        WorkloadResult(f"E ×{name[1:]}", (Row("agym auto", slices),))
        for name, slices in rates.items()
    ]


def started(work: Workload, workers: int, repeats: int) -> StartupResult:
    """In the place of a measurement that takes seconds."""
    size = 100_000_000 + work.num_envs * 210_000
    return StartupResult(work.name, workers, (2.0, 9.0, 1.0), (size, size, size))


# ---------------------------------------------------------------- scale


def test_scale_measures_every_number(tmp_path: Path, fonts: None) -> None:
    done = run(
        tmp_path, "scale", "CartPole-v1", "--num-envs", "1,3",
        "--seconds", "0.002", "--repeats", "2", plot="scale.png",
    )  # fmt: skip
    assert [work["work"] for work in done.data["workloads"]] == ["CartPole-v1 ×1", "CartPole-v1 ×3"]
    for work in done.data["workloads"]:
        assert [row["system"] for row in work["rows"]] == [BARE, LOOP, "agym auto"]
        assert all(rate > 0 for row in work["rows"] for rate in row["rates"])
    (target,) = done.data["targets"]
    assert (target["wanted"], target["at_most"]) == (NOISE, True)
    assert (tmp_path / "scale.png").read_bytes().startswith(PNG)


def test_rise_is_the_worst_of_all_pairs_in_order_of_their_number() -> None:
    workloads = costs(n8=(100.0, 50.0, 100.0), n64=(90.0, 45.0, 90.0), n1=(10.0, 9.0, 8.0))
    assert rise(workloads, "agym auto") == (pytest.approx(100 / 90), "E ×8", "E ×64")
    assert rise(workloads, "agym serial") is None


def test_what_is_within_the_noise_is_no_rise() -> None:
    assert [target.met for target in judge_scale(costs(n1=(100.0,), n8=(96.0,)))] == [True]
    assert [target.met for target in judge_scale(costs(n1=(100.0,), n8=(94.0,)))] == [False]
    assert [target.met for target in judge_scale(costs(n1=(100.0,)))] == [None]


# ---------------------------------------------------------------- start-up and memory


@pytest.mark.full
def test_startup_and_memory_are_commands(tmp_path: Path) -> None:
    startup = run(tmp_path, "startup", "CartPole-v1:3", "--repeats", "1").data
    memory = run(tmp_path, "memory", "CartPole-v1:3", "--repeats", "1").data
    assert [(row["name"], startup["unit"]) for row in startup["rows"]] == [("CartPole-v1 ×3", "s")]
    assert [row["name"] for row in memory["rows"]] == ["CartPole-v1 ×2", "CartPole-v1 ×3"]
    assert memory["unit"] == "MB"
    assert all(10 < size < 500 for row in memory["rows"] for size in row["values"])
    assert startup["targets"] == memory["targets"] == []


def test_a_thousand_environments_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.overhead.startup.measure_startup", started)
    (startup,) = run_startup(WORKLOAD, 2, 3).targets
    (memory,) = run_memory(WORKLOAD, 2, 3).targets
    assert (startup.wanted, startup.measured, startup.unit, startup.met) == (2.5, 2.0, "s", True)
    assert (memory.wanted, memory.measured, memory.unit, memory.met) == (300, 310, "MB", False)
    assert (
        run_memory(WORKLOAD, 3, 3).targets
        == run_startup(Workload("CartPole-v1", 9), 2, 1).targets
        == ()
    )
    assert Workload("CartPole-v1", 1000) == WORKLOAD


def test_startup_of_what_is_not_installed_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measuring.workloads.installed", lambda module: False)
    comparison = run_startup(WORKLOAD, 2, 1)
    assert comparison.rows == ()
    assert [target.met for target in comparison.targets] == [None]
    assert "not installed" in comparison.notes[0]


# ---------------------------------------------------------------- infos and copies


def test_variants_can_be_written_on_the_command_line() -> None:
    assert parse("infos:HumanoidStandup-v5:16") == INFOS
    assert parse("copies:ALE/Pong-v5:64") == COPIES


def test_copied_views_are_the_callers_own() -> None:
    work = CopiesWorkload("CartPole-v1", 2)
    actions = sample_actions(work)
    kept = {}
    for kind in work.systems:
        system = kind(work, actions, 1)
        system.reset()
        system.step(actions.batches[0])
        kept[kind.name] = system._latest if kind is CopiedViews else system._latest[0]
        first = kept[kind.name].copy()
        system.step(actions.batches[1])
        if kind is not Views:
            np.testing.assert_array_equal(kept[kind.name], first)
        system.close()
    assert Kept.options == {}


def test_variants_take_options_that_there_are() -> None:
    for work in (INFOS, COPIES):
        for kind in work.systems:
            if kind.why_not(work) is None:
                assert {*kind.options} <= {*OPTION_NAMES}


# ---------------------------------------------------------------- all


def test_plan_has_every_work_that_targets_are_about() -> None:
    planned = {work.name for work in Plan().workloads}
    for work in (*WORKLOADS, INFOS, COPIES):
        assert work.name in planned
    assert {
        target.work for target in TARGETS if target.work.startswith(("infos", "copies"))
    } <= planned
    assert Plan().start == WORKLOAD
    assert all(isinstance(work, Contest) for work in QUICK.workloads[1:])


@pytest.mark.full
def test_all_writes_one_report_and_a_chart_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fonts: None
) -> None:
    few_systems(monkeypatch)
    monkeypatch.setattr("benchmarks.overhead.startup.measure_startup", started)
    done = run(tmp_path, "all", "--quick", plot="charts")
    parts = done.data["parts"]
    assert [*parts] == ["throughput", "grid", "scale", "overhead", "startup", "memory"]
    assert {"cpu", "cores", "python", "gymnasium", "numpy"} <= {*done.data["machine"]}
    assert not any("machine" in part or "targets" in part for part in parts.values())
    workloads = [work["work"] for work in parts["throughput"]["workloads"]]
    assert workloads == [work.name for work in QUICK.workloads]
    wanted = [target["target"] for target in done.data["targets"]]
    for word in ("best fixed", "best peer", "more environments", "env.step", "round trip"):
        assert any(word in target for target in wanted)
    assert "target" not in done.stdout.lower()
    charts = {path.name: path.read_bytes() for path in (tmp_path / "charts").iterdir()}
    assert {*charts} == {"throughput.png", "grid.png", "scale.png", "overhead.png"}
    assert all(chart.startswith(PNG) for chart in charts.values())


def test_infos_work_names_its_environment() -> None:
    assert InfosWorkload("Informing-v0", 2).name == "infos of Informing-v0 ×2"
