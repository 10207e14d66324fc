"""The literature's vectorization experiments: what is measured, what is judged, what is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measuring.workloads import sample_actions
from benchmarks.overhead.efficiency import cores_of, efficiency, efficiency_of, formula
from benchmarks.reports.count_plot import curves, milliseconds
from benchmarks.reports.results import BARE, BOUND, Row, Settings, WorkloadResult
from benchmarks.systems.baseline import Bare, BareLoop
from benchmarks.systems.runners import AgymProcess
from benchmarks.throughput import multienv, pool
from benchmarks.throughput.multienv import BareResets, LoopResets, MultiWorkload, ProcessResets
from benchmarks.throughput.pool import ONE, POOL, SUBPROC, judge_pool
from tests.benchmarks.tiny import PNG, run

TINY = "--num-envs", "1,3", "--seconds", "0.002", "--repeats", "2", "--workers", "2"


def cell(n: int, bare: float = 100.0, **rates: float) -> WorkloadResult:
    """One number of environments; every rate is the same in two repetitions, the second slower."""
    names = {"pool": POOL, "one": ONE, "subproc": SUBPROC, "dummy": "SB3 Dummy"}
    rows = [Row(names[name], (rate, rate / 2)) for name, rate in rates.items()]
    return WorkloadResult(f"E ×{n}", (Row(BARE, (bare, bare / 2)), *rows))


def test_pool_measures_every_cell_and_draws_both_charts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fonts: None
) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    # What has a process per environment would leave a fork server behind.
    systems = tuple(kind for kind in pool.SYSTEMS if not kind.process_per_env)
    monkeypatch.setattr(pool, "SYSTEMS", systems)
    done = run(tmp_path, "pool", "CartPole-v1", *TINY, plot="charts")
    names = ["CartPole-v1 ×1", "CartPole-v1 ×3"]
    assert [work["work"] for work in done.data["workloads"]] == names
    wanted = [kind.name for kind in systems]
    for work in done.data["workloads"]:
        assert [row["system"] for row in work["rows"]] == [BARE, BOUND, *wanted[1:]]
        assert work["work"] in done.stdout
    assert [target["wanted"] for target in done.data["targets"]] == [1.0, 1.05, 1.8]
    charts = {path.name: path.read_bytes() for path in (tmp_path / "charts").iterdir()}
    assert {*charts} == {"efficiency.png", "throughput.png"}
    assert all(chart.startswith(PNG) for chart in charts.values())


def test_pool_is_held_against_subproc_where_it_is_worst() -> None:
    workloads = [cell(1, pool=90, subproc=60), cell(4, pool=150, subproc=160), cell(64, pool=190)]
    verdict = next(iter(judge_pool(workloads, Settings(workers=2))))
    assert "worst at ×4" in verdict.target
    assert (verdict.measured, verdict.met) == (150 / 160, False)


@pytest.mark.parametrize(("last", "met"), [(186.0, True), (170.0, False)])
def test_a_decline_is_told_of_numbers_that_give_each_worker_one(last: float, met: bool) -> None:
    """One environment, which has a worker to itself, counts for nothing here."""
    workloads = [cell(1, pool=500), cell(2, pool=180), cell(16, pool=190), cell(64, pool=last)]
    _, verdict, _ = judge_pool(workloads, Settings(workers=2))
    assert "×64 against ×16" in verdict.target
    assert verdict.measured == pytest.approx(190 / last)
    assert verdict.met is met


def test_a_slow_minute_is_no_decline() -> None:
    """All of it was slower by half with the most environments, the bare one too."""
    workloads = [cell(16, pool=190), cell(64, bare=50.0, pool=95)]
    _, verdict, _ = judge_pool(workloads, Settings(workers=2))
    assert verdict.measured == pytest.approx(1.0)


def test_workers_are_linear_where_there_are_most_environments() -> None:
    workloads = [cell(64, pool=190, one=100), cell(16, pool=100, one=100)]
    *_, verdict = judge_pool(workloads, Settings(workers=2))
    assert verdict.target.startswith("E ×64")
    assert (verdict.wanted, verdict.measured, verdict.met) == (1.8, 1.9, True)


def test_what_was_not_measured_is_not_judged() -> None:
    verdicts = [*judge_pool([cell(1), cell(4)], Settings(workers=2))]
    assert [(verdict.measured, verdict.met) for verdict in verdicts] == [(None, None)] * 3


# ---------------------------------------------------------------- efficiency by number


def test_efficiency_is_against_the_cores_that_have_an_environment() -> None:
    assert [cores_of(POOL, n, 4) for n in (1, 3, 4, 64)] == [1, 3, 4, 4]
    assert cores_of(ONE, 64, 4) == cores_of("SB3 Dummy", 64, 4) == 1
    assert efficiency_of(cell(1, pool=80), POOL, 4) == pytest.approx(0.8)
    assert efficiency_of(cell(64, pool=320), POOL, 4) == pytest.approx(0.8)
    assert efficiency_of(cell(64, dummy=80), "SB3 Dummy", 4) == pytest.approx(0.8)
    assert efficiency_of(cell(64), POOL, 4) is None


def test_formula_predicts_other_numbers_from_the_first_that_all_workers_share() -> None:
    """A runner whose batches cost the same besides, whatever is in them, is as predicted."""
    cost, step = 0.02, 2 / (100 + 50)  # of a batch; of the bare environment, by its median
    workloads = []
    for n in (1, 2, 8, 32):
        batch = n / min(n, 2) * step + cost
        workloads.append(
            WorkloadResult(f"E ×{n}", (Row(BARE, (1 / step,)), Row(POOL, (n / batch,))))
        )
    line = formula(workloads, POOL, 2)
    assert line[0][0] == pytest.approx(1)
    assert line[-1] == pytest.approx((32, efficiency(16, step, cost)))
    assert line[-1][1] == pytest.approx(efficiency_of(workloads[-1], POOL, 2))
    assert formula(workloads, "SB3 Dummy", 2) == formula(workloads[:1], POOL, 2) == []


# ---------------------------------------------------------------- steps and resets


@pytest.mark.full
def test_multienv_measures_steps_then_resets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fonts: None
) -> None:
    monkeypatch.setattr(multienv, "STEPPING", (Bare, BareLoop, AgymProcess))
    monkeypatch.setattr(multienv, "RESETTING", (BareResets, LoopResets, ProcessResets))
    done = run(tmp_path, "multienv", "CartPole-v1", *TINY, plot="multienv.png")
    names = [f"{what} of CartPole-v1 ×{n}" for what in ("steps", "resets") for n in (1, 3)]
    assert [work["work"] for work in done.data["workloads"]] == names
    for work in done.data["workloads"]:
        systems = [BARE, BOUND, BareLoop.name, AgymProcess.name]
        assert [row["system"] for row in work["rows"]] == systems
        assert work["work"] in done.stdout
    assert (tmp_path / "multienv.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("kind", [BareResets, LoopResets, ProcessResets])
def test_a_step_of_resets_resets_all(kind: type[BareResets]) -> None:
    """The bare environment as often as there are environments, so that its line is linear."""
    work = MultiWorkload("CartPole-v1", 3, resets=True)
    actions = sample_actions(work)
    system = kind(work, actions, 2)
    calls = []
    envs = getattr(system._envs, "_envs", [system._envs])
    for env in envs if kind is not ProcessResets else [system._envs]:
        monkey = env.reset
        env.reset = lambda *, monkey=monkey, **given: calls.append(monkey(**given))
    system.step(actions.batches[0])
    assert len(calls) == (1 if kind is ProcessResets else 3)
    system.close()


def test_every_way_to_step_has_a_way_to_reset() -> None:
    assert [kind.name for kind in multienv.STEPPING] == [kind.name for kind in multienv.RESETTING]
    for step, reset in zip(multienv.STEPPING, multienv.RESETTING, strict=True):
        assert issubclass(reset, step)


def test_curves_take_any_value() -> None:
    work = cell(4, pool=200)
    pool_row = work.rows[1]
    assert milliseconds(work, pool_row) == pytest.approx(1000 * 4 / 150)
    assert curves([work], lambda work, row: row.rate) == {"E": {BARE: {4: 75.0}, POOL: {4: 150.0}}}
