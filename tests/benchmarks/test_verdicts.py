"""Targets are judged by what was measured, turn by turn; what was not measured is not judged."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest
from rich.console import Console

from benchmarks.agents.batched import BatchedReport, Drill, show_batched
from benchmarks.agents.batched import Plan as BatchedPlan
from benchmarks.agents.gaps import Gaps
from benchmarks.agents.openenv import Drilled, OpenEnvReport, show_openenv
from benchmarks.agents.openenv_drill import Tally
from benchmarks.branching.cost import CostRow
from benchmarks.branching.depth import DepthResult, judge_depth
from benchmarks.branching.memory import MemoryResult, judge_memory
from benchmarks.measuring.neighbours import ONE_LOOP, QUIET
from benchmarks.measuring.processes import CoreUse
from benchmarks.measuring.workloads import WORKLOADS, Workload
from benchmarks.overhead import startup
from benchmarks.overhead.command import EMPTY, INSIDE, judge_overhead
from benchmarks.overhead.efficiency import (
    Point,
    cores_of,
    efficiency,
    efficiency_of,
    formula,
    overhead_of,
    points,
)
from benchmarks.overhead.measure_startup import STARTUP_WORKLOAD as STARTUP
from benchmarks.overhead.systems import HostAlone, RoundTrip, StepsAlone
from benchmarks.reports.comparison import Compared
from benchmarks.reports.count_plot import curves
from benchmarks.reports.plot import save_plot
from benchmarks.reports.results import (
    AT_ONCE,
    BARE,
    BOUND,
    LOOP,
    Report,
    Row,
    Settings,
    StartupResult,
    Verdict,
    WorkloadResult,
)
from benchmarks.reports.tables import show
from benchmarks.reports.targets import TARGETS, StartupTarget, Target, judge
from benchmarks.rules.comparison import Extra, Factor, Limit
from benchmarks.rules.comparison import judge as judge_rules
from benchmarks.rules.makers import Default, Own
from benchmarks.rules.systems import AlePong, Compiled, EnvPool, Python
from benchmarks.systems import sb3_startup
from benchmarks.systems.rollouts import ROLLOUTS, VecEnvProcess
from benchmarks.systems.runners import SYSTEMS, AgymOther, AgymProcess, AgymSerial, GymnasiumSync
from benchmarks.systems.variants import COPIES, INFOS, VARIANTS
from benchmarks.throughput.account import sentences
from benchmarks.throughput.account_parts import Account, Slice, Timing, split
from benchmarks.throughput.busy import Beside, BusyReport
from benchmarks.throughput.busy import judge as judge_busy
from benchmarks.throughput.cells import AUTO, Cell, judge_cells, undecided
from benchmarks.throughput.everything import Plan
from benchmarks.throughput.grid import grouped_notes
from benchmarks.throughput.pool import ONE, POOL, judge_pool
from benchmarks.throughput.scale import NOISE, judge_scale
from benchmarks.waiting.render import arithmetic, judge_render, share_of_ideal
from benchmarks.waiting.render_systems import (
    BESIDE,
    FEW,
    STILL,
    TRACED,
    WALL,
    WATCHED,
    DrawingAgym,
    DrawingAsync,
    DrawingLoop,
    OnlyDrawingAtOnce,
    Stepping,
    SteppingAndDrawing,
    StillAgym,
    Traced,
    Untraced,
    Unwatched,
    Watchable,
    Watched,
)
from benchmarks.waiting.straggler_systems import StragglerWorkload
from tests.benchmarks.tiny import PNG

SYNC, SERIAL, PROCESS = GymnasiumSync.name, AgymSerial.name, AgymProcess.name
TWO = Settings(workers=2)


def work(name: str, rates: dict[str, Any]) -> WorkloadResult:
    """A workload with the rates of systems; a number is for two repetitions, one half as fast."""
    rows = {k: r if isinstance(r, tuple) else (r, r / 2) for k, r in rates.items()}
    return WorkloadResult(name, tuple(Row(system, rate) for system, rate in rows.items()))


def cell(n: int, bare: float = 100.0, **rates: float) -> WorkloadResult:
    known = {"pool": POOL, "one": ONE, "auto": AUTO, "serial": SERIAL, "process": PROCESS,
             "sync": SYNC, "dummy": "SB3 Dummy", "subproc": "SB3 Subproc", "loop": LOOP,
             "at_once": AT_ONCE}  # fmt: skip
    return work(f"E ×{n}", {BARE: bare, **{known[name]: rate for name, rate in rates.items()}})


def steady(n: int, **rates: float) -> WorkloadResult:
    """A cell whose repetitions do not vary."""
    fast = cell(n, **rates)
    rows = (replace(row, rates=(row.rates[0],) * 2) for row in fast.rows)
    return replace(fast, rows=tuple(rows))


def verdicts_of(result: WorkloadResult, *, busy: bool = False) -> Iterable[Verdict]:
    judged = Cell.of(result, busy=busy)
    assert judged is not None
    return judged.verdicts()


def many_cores(loop: float, at_once: float, *, busy: bool = False) -> Iterable[Verdict]:
    """The grid's verdicts on 100 environments, by the rates of plain loops."""
    rates = {"auto": 1.2, "dummy": 1.0, "serial": 1.0, "loop": loop, "at_once": at_once}
    return verdicts_of(cell(100, 150_000.0, **rates), busy=busy)


def beside(seconds: float) -> Iterable[Verdict]:
    """The verdicts beside a busy loop on a batch that takes so long on a quiet machine."""
    quiet = steady(100, sync=100 / seconds)
    return judge_busy(steady(100, sync=90, serial=100, process=90, auto=96), "a loop", quiet)


def openenv(tally: Tally, **changes: Any) -> OpenEnvReport:
    row = Drilled("agym", "agym", tally, 1.0)
    report = OpenEnvReport({}, 4, 10, "", [row, replace(row, server="OpenEnv")])
    return replace(report, **changes)


def steps_of_pool(*verdicts: WorkloadResult) -> list[Verdict]:
    return [*judge_pool([*verdicts], TWO)]


GAMES = {AlePong.name: (2e3, 2e3), Python.name: (1e5, 1e5), Compiled.name: (4e7, 4e7)}
CLEAN = Tally(answered=9, timeouts=5, cancelled=6)
BATCHED = BatchedReport(
    {}, BatchedPlan(),
    {"plain function": [60.0], "coroutine function": [40.0], "function alone": [1.0]},
    Drill(10, answered=8, cancelled=1, crossed=1, lost=1),
    {4: [Row("agym", (90.0,)), Row("another", (100.0,))]},
)  # fmt: skip
RENDERED = [
    work(WALL.name, {DrawingLoop.name: (10.0, 20.0), DrawingAgym.name: (19.0, 38.0)}),
    work(FEW.name, {DrawingAsync.name: (10.0,), DrawingAgym.name: (12.0,)}),
    work(STILL.name, {StillAgym.name: (20_000.0,)}),
    # 20 steps in 2 ms and a picture in 3 ms are together as long as 20 steps at 4,000/s.
    work(BESIDE.name, {Stepping.name: (10_000.0,), OnlyDrawingAtOnce.name: (1000 / 3,),
                       SteppingAndDrawing.name: (3_200.0,)}),
    work(WATCHED.name, {Unwatched.name: (100.0,), Watchable.name: (99.5,), Watched.name: (90.0,)}),
    work(TRACED.name, {Untraced.name: (1e6,), Traced.name: (0.99e6,)}),
]  # fmt: skip
OVERHEAD = [
    work(INSIDE.name, {StepsAlone.name: (5e6, 1e6), HostAlone.name: (1e6, 5e5)}),
    work(EMPTY.name, {RoundTrip.name: (50_000.0, 100_000.0, 80_000.0)}),
]
MEMORY = MemoryResult(
    "E",
    9,
    1,
    (10**8, 9 * 10**8, 109 * 10**6, 12 * 10**7),
    (10**9, 9 * 10**9, 11 * 10**8, 11 * 10**8),
    True,
)
BUSY = [Beside(each.name, (steady(8, sync=10, process=1, auto=1),)) for each in (QUIET, ONE_LOOP)]

# By what is judged: verdicts, and what each wants, its measurement, and whether it is met.
CASES: dict[str, tuple[Iterable[Verdict], list[tuple[Any, Any, Any]]]] = {
    "throughput": (
        judge([work("w", {"a": 4, "b": 2})], None,
              [Target("w", "a", "b", 2.0), Target("w", "a", "b", 2.1), Target("w", "a", "c", 1.0)]),
        [(2.0, 2.0, True), (2.1, 2.0, False), (1.0, None, None)],
    ),
    "the better of two peers": (
        judge([work("rollout CartPole-v1 ×8",
                    {VecEnvProcess.name: 16, "SB3 Dummy": 10, "SB3 Subproc": 20})],
              None, [each for each in TARGETS
                     if (each.row, each.work) == (VecEnvProcess.name, "rollout CartPole-v1 ×8")]),
        [(ANY, 0.8, False)],
    ),
    "start-up": (
        judge([], StartupResult(STARTUP.name, 2, (1.0, 9.0, 1.2), (90_000_000,) * 3), [],
              [StartupTarget("seconds", 1.5, "s"), StartupTarget("memory", 80.0, "MB")]),
        [(1.5, 1.2, True), (80.0, 90.0, False)],
    ),
    "scale within the noise": (judge_scale([cell(1, auto=100), cell(8, auto=96)]),
                               [(NOISE, 100 / 96, True)]),
    "scale": (judge_scale([cell(8, auto=96), cell(64, auto=90), cell(1, auto=10)]),
              [(NOISE, 96 / 90, False)]),
    "scale of one number": (judge_scale([cell(1, auto=100)]), [(NOISE, None, None)]),
    "busy, long batches": (beside(2e-3), [(0.95, 0.9, False), (0.95, 0.96, True)]),
    "busy, short batches": (beside(0.5e-3), [(0.85, 0.9, True), (0.95, 0.96, True)]),
    "busy, shortest batches": (beside(0.1e-3), [(0.95, 0.96, True)]),
    "busy, without a peer": (judge_busy(steady(8, process=1), "", steady(8, sync=1)), []),
    "busy, without a quiet cell": (judge_busy(steady(8, sync=1, process=1), "", None), []),
    "busy, only the busy cells": (BusyReport({}, Settings(), tuple(BUSY)).targets, [ANY, ANY]),
    "busy, what varies": (
        judge_busy(work("E ×8", {SYNC: (60, 70, 100, 130, 140), PROCESS: (60, 70, 100, 130, 140)}),
                   "", steady(8, sync=1)),
        [],
    ),
    "grid": (verdicts_of(cell(8, 1e5, auto=90, serial=45, process=100, sync=30)),
             [(0.95, 0.9, False), (1.0, 3.0, True)]),
    "grid beside another auto": (
        [*verdicts_of(work("E ×8", {BARE: 1e5, AUTO: 90, SERIAL: 45, AgymOther.name: 100}))][-1:],
        [(0.95, 0.9, False)],
    ),
    "grid, not installed": (judge_cells([WorkloadResult("E ×1", notes=("why",))]), []),
    "grid, 0.9 ms": (many_cores(110_000, 200_000), [(0.95, 1.2, True), (1.0, 1.2, True)]),
    "grid, cores help little": (many_cores(9e4, 12e4), [(0.95, 1.2, True), (1.0, 1.2, True)]),
    "grid, cores help": (many_cores(9e4, 18e4), [(0.95, 1.2, True), (1.3, 1.2, False)]),
    "grid, busy": (many_cores(9e4, 18e4, busy=True), [(0.9, 1.2, True), (1.0, 1.2, True)]),
    "overhead": (judge_overhead(OVERHEAD), [(0.6, 0.9, False), (12, 12.5, False)]),
    "overhead, not measured": (
        judge_overhead([WorkloadResult(INSIDE.name), WorkloadResult(EMPTY.name)]),
        [(0.6, None, None), (12, None, None)],
    ),
    "pool, where it is worst": (
        steps_of_pool(cell(1, pool=90, subproc=60), cell(4, pool=150, subproc=160), cell(64))[:1],
        [(1.0, 150 / 160, False)],
    ),
    # One environment, which has a worker to itself, does not count.
    **{f"pool, {last} at last": (
        steps_of_pool(cell(1, pool=500), cell(2, pool=180), cell(16, pool=190),
                      cell(64, pool=last))[1:2],
        [(1.05, 190 / last, met)]) for last, met in ((186, True), (170, False))},
    "pool, a slow minute": (steps_of_pool(cell(16, pool=190), cell(64, 50, pool=95))[1:2],
                            [(1.05, 1.0, True)]),
    "pool, linear": (steps_of_pool(cell(64, pool=190, one=100), cell(16, pool=100, one=100))[2:],
                     [(1.8, 1.9, True)]),
    "pool, not measured": (steps_of_pool(cell(1), cell(4)), [(ANY, None, None)] * 3),
    "render": (
        [*judge_render(RENDERED)][:7],
        [(1.85, 1.9, True), (1.3, 1.2, False), (60.0, 50, True), (0.9, 0.8, False),
         (0.99, 0.995, True), (0.95, 0.9, False), (1.03, 1 / 0.99, True)],
    ),
    "rules": (
        judge_rules([work("G ×9", GAMES), work("G ×4", GAMES)],
                    (Limit("G ×9", Compiled, 0.03), Limit("G ×9", Python, 0.03),
                     Factor("G ×9", Compiled, AlePong, 8000.0),
                     Factor("G ×9", Compiled, EnvPool, 2.0),
                     Factor("G ×3", Compiled, Python, 1.0))),
        [(0.03, 0.025, True), (0.03, 10.0, False), (8000, 20_000, True), (2.0, None, None)],
    ),
    "rules, what a batch takes more": (
        judge_rules([work("G ×10", {Own.name: (1e6, 2e6, 1e6), Default.name: (5e5, 1e6, 1e6)})],
                    [Extra("G ×10", Default, Own, 7.0)]),
        [(7.0, 5.0, True)],
    ),
    "branching, cost": (
        [CostRow("E", n, call, backend, (1.0, 2.0), (4.0, 8.0), (2.0, 4.0)).judge()
         for n, call, backend in ((1, "snapshot", "serial"), (64, "restore", "process"))],
        [(ANY, ANY, True), (ANY, ANY, False)],
    ),
    "branching, depth": (
        judge_depth([DepthResult("p", (1.0,), (depth,), True) for depth in (19.0, 20.0)]),
        [(20.0, 19.0, False), (20.0, 20.0, True)],
    ),
    "branching, memory": (judge_memory([MEMORY]), [(ANY, ANY, met) for met in (1, 0, 0, 1)]),
    "openenv": (openenv(CLEAN).targets, [(ANY, ANY, True)] * 2 + [(ANY, None, None)]),
    **{f"openenv, {tally}": (openenv(tally).targets[:1], [(ANY, ANY, False)]) for tally in (
        replace(CLEAN, cancelled=4), replace(CLEAN, shifted=1), replace(CLEAN, errors={"E": 1}))},
    **{f"openenv, pace {pace}": (
        openenv(CLEAN, pace={"agym": [pace], "OpenEnv": [20.0]}).targets[-1:], [(ANY, ANY, met)])
       for pace, met in ((10.0, True), (30.0, False))},
    "openenv, not measured": (openenv(CLEAN, drills=()).targets, [(ANY, ANY, None)] * 3),
    "batched": (BATCHED.targets, [(ANY, ANY, met) for met in (False, True, False, False, False)]),
    **{f"gaps, {p99} ms": ([Gaps("", 1.0, 1.0, [p99], [80.0], p99, aim=True).judge()],
                           [(ANY, p99, met)]) for p99, met in ((4.9, True), (5.1, False))},
    "ratios": (
        [Verdict.on_ratio("a", 1.1, ratio, at_most=at_most)
         for at_most in (True, False) for ratio in (1.0, 1.1, 1.2)],
        [(1.1, ratio, met) for ratio, met in (
            (1.0, True), (1.1, True), (1.2, False), (1.0, False), (1.1, True), (1.2, True))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str) -> None:
    verdicts, expected = CASES[name]
    found = [(each.wanted, each.measured, each.met) for each in verdicts]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if other != ANY:
            wanted, measured, met = other
            approximate = measured if measured in (None, ANY) else pytest.approx(measured)
            assert one == (wanted, approximate, met)


def test_reports_are_shown() -> None:
    for report in (openenv(CLEAN), openenv(CLEAN, pace={"agym": [1.0], "OpenEnv": [2.0]})):
        assert show_openenv(report)
    assert show_batched(BATCHED)
    words = arithmetic(RENDERED[3])
    assert all(word in words for word in ("128.0 ms", "192.0 ms", "320.0 ms", "400.0 ms", "0.80"))
    assert (share_of_ideal(RENDERED[0]), arithmetic(RENDERED[0])) == (None, "")


@pytest.mark.parametrize(
    ("ratios", "busy", "expected"),
    [
        ((1.0, 1.0, 0.9, 1.0, 1.0), False, False),  # met
        ((1.0, 1.0, 0.9, 0.9, 1.0), False, True),  # met, but not for sure
        ((0.8, 0.8, 0.9, 0.9, 1.0), False, False),  # missed
        ((0.9, 0.9, 0.9, 1.0, 1.0), False, True),
        ((0.8, 0.85, 0.85, 0.93, 0.93), True, True),
        ((), False, False),
    ],
)
def test_more_slices_are_taken_while_they_may_change_a_verdict(
    ratios: tuple[float, ...], busy: bool, expected: bool
) -> None:
    ones = (1.0,) * len(ratios)
    rows = {BARE: ones, AUTO: ratios, SERIAL: ones} if ratios else {}
    assert undecided(work("E ×8", rows), busy=busy) is expected


def test_targets_name_systems_and_works_that_exist() -> None:
    systems = {each.name: {kind.name for kind in SYSTEMS} | {BOUND} for each in WORKLOADS}
    contests = (*ROLLOUTS, *VARIANTS)
    systems |= {each.name: {kind.name for kind in each.systems} for each in contests}
    systems[sb3_startup.NAME] = {sb3_startup.AGYM, sb3_startup.SUBPROC}
    for target in TARGETS:
        others = [target.against] if isinstance(target.against, str) else target.against
        assert {target.row, *others} <= systems[target.work]
    planned = {each.name for each in Plan().workloads}
    assert planned >= {each.name for each in (*WORKLOADS, INFOS, COPIES)}


def test_a_thousand_environments_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(work: Workload, workers: int, repeats: int) -> StartupResult:
        size = 100_000_000 + work.num_envs * 210_000
        return StartupResult(work.name, workers, (2.0, 9.0, 1.0), (size, size, size))

    monkeypatch.setattr(startup, "measure_startup", started)
    (seconds,) = startup.run_startup(startup.WORKLOAD, 2, 3).targets
    (memory,) = startup.run_memory(startup.WORKLOAD, 2, 3).targets
    assert (seconds.wanted, seconds.measured, seconds.unit, seconds.met) == (2.5, 2.0, "s", True)
    assert (memory.wanted, memory.measured, memory.unit, memory.met) == (300, 310, "MB", False)
    assert startup.run_memory(startup.WORKLOAD, 3, 3).targets == ()
    monkeypatch.setattr("benchmarks.measuring.workloads.installed", lambda module: False)
    comparison = startup.run_startup(startup.WORKLOAD, 2, 1)
    assert comparison.rows == ()
    assert [target.met for target in comparison.targets] == [None]
    assert "not installed" in comparison.notes[0]


# ---------------------------------------------------------------- ratios and efficiency


def test_ratios_are_taken_within_each_repetition() -> None:
    result = work("w", {"a": (10.0, 1.0, 6.0), "b": (5.0, 0.5, 2.0)})
    assert (result.ratio("a", "b"), result.ratio("a", "c")) == (2.0, None)
    assert (result.rows[0].rate, result.rows[0].spread) == (6.0, 1.5)
    assert Compared("a", (2.0, 30.0, 6.0), (1.0, 10.0, 6.0)).ratio == 2.0
    assert Compared("a", (2.0,)).ratio is None
    assert StragglerWorkload(chance=0.0).best == 1.0
    assert StragglerWorkload(chance=0.1, times=11.0).best == 0.5


def test_efficiency_is_relative_to_the_cores_that_have_an_environment() -> None:
    assert efficiency(8, 10e-6, 80e-6) == pytest.approx(0.5)
    assert efficiency(8, 10e-6, 0.0) == 1.0
    assert [cores_of(POOL, n, 4) for n in (1, 3, 4, 64)] == [1, 3, 4, 4]
    assert cores_of(ONE, 64, 4) == cores_of("SB3 Dummy", 64, 4) == 1
    assert efficiency_of(cell(64, pool=320), POOL, 4) == pytest.approx(0.8)
    assert efficiency_of(cell(64, dummy=80), "SB3 Dummy", 4) == pytest.approx(0.8)
    assert efficiency_of(cell(64), POOL, 4) is None


def test_a_runner_of_fixed_cost_is_as_the_formula_predicts() -> None:
    """Batches on two cores that cost 40 µs besides their steps, by number and by step time."""
    step, cost = 1e-5, 4e-5
    numbers, times = [], []
    for n in (1, 2, 8, 32):
        batch = n / min(n, 2) * step + cost
        numbers.append(work(f"E ×{n}", {BARE: (1 / step,), POOL: (n / batch,)}))
    line = formula(numbers, POOL, 2)
    assert line[-1] == pytest.approx((32, efficiency(16, step, cost)))
    assert line[-1][1] == pytest.approx(efficiency_of(numbers[-1], POOL, 2))
    assert formula(numbers, "SB3 Dummy", 2) == formula(numbers[:1], POOL, 2) == []
    for each in (1e-7, 1e-5, 1e-3):
        rates = {BARE: (1 / each,), BOUND: (2 / each,), PROCESS: (8 / (4 * each + cost),)}
        times.append(work(f"steps of {each} µs ×8", rates))
    assert overhead_of(times[0], PROCESS, 2) == pytest.approx(cost)
    assert points(times[::-1], PROCESS, 2) == [
        Point(pytest.approx(each), pytest.approx(efficiency(4, each, cost)))
        for each in (1e-7, 1e-5, 1e-3)
    ]
    assert points(times, SERIAL, 2) == []
    one_core = work("steps of 1000 µs ×4", {BARE: 1000.0, BOUND: 2000.0, SERIAL: 800.0})
    assert points([one_core], SERIAL, 2)[0].efficiency == pytest.approx(0.8)


# ---------------------------------------------------------------- the account of a batch


def timing(work: float, *, waiting: float | None = 0.0, barrier: float = 10.0) -> Timing:
    use = None if waiting is None else CoreUse(work, waiting, 1.0)
    return Timing(100, work + barrier + 12.0, 5.0, work, barrier, 4.0, 3.0, 2.0, use, None)


def test_times_of_workers_are_averages() -> None:
    """Two steps of two workers; the second is posted 1 µs after the end of the first."""
    steps = [
        (2_000, 40_000, 4_000, 8_000, 14_000, 38_000),
        (41_000, 60_000, 43_000, 43_000, 57_000, 59_000),
    ]
    times = split(0, steps)
    assert times.pop("uneven") == pytest.approx(5.5)  # of the second worker, beyond the average
    assert times == pytest.approx(
        {"batch": 30.0, "waking": 3.0, "work": 17.5, "barrier": 6.5, "transport": 1.5,
         "caller": 1.5}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("work", "waiting", "host", "core"),
    [
        (130.0, 20.0, 10.0, 20.0),
        (130.0, 90.0, 0.0, 30.0),  # the rest of the wait fell outside of the work
        (80.0, 90.0, -20.0, 0.0),
        (130.0, None, 30.0, 0.0),
    ],
)
def test_work_beyond_bare_is_waiting_at_most_as_long_as_workers_waited(
    work: float, waiting: float | None, host: float, core: float
) -> None:
    each = Slice.of(100.0, timing(work, waiting=waiting))
    assert (each.parts["host and cache"], each.parts["waiting for a core"]) == (host, core)
    assert sum(each.parts.values()) == pytest.approx(each.timing.batch)
    assert each.ratio == pytest.approx(100.0 / each.timing.batch)


def test_slow_slices_have_a_sentence_with_their_largest_parts() -> None:
    slices = [timing(110.0), timing(160.0, waiting=48.0, barrier=51.0), timing(120.0)]
    account = Account(
        Report({}, Settings()), pin=False, slices=tuple(Slice.of(100.0, each) for each in slices)
    )
    *slow, summary, uneven = sentences(account)
    assert slow == [
        "Slice 2 at 0.45: barrier 51 µs and waiting for a core 48 µs.",
        "Slice 3 at 0.70: host and cache 20 µs and barrier 10 µs.",
    ]
    assert summary == (
        "Median: process reaches 0.70 of bare loops; the largest parts of the gap are"
        " host and cache 12 µs and barrier 10 µs."
    )
    assert uneven.startswith("Of the barrier, 2 µs are caused by the same workers")


# ---------------------------------------------------------------- tables and charts


@pytest.fixture
def report() -> Report:
    rows = [Row(kind.name, (10.0 + i, 12.0 + i)) for i, kind in enumerate(SYSTEMS)]
    workloads = (
        WorkloadResult("CartPole-v1 ×8", (rows[0], Row(BOUND, (20.0, 24.0)), *rows[1:])),
        WorkloadResult("ALE/Pong-v5 ×8", notes=("ale_py is not installed",)),
        WorkloadResult("Acrobot-v1 ×32", (rows[0], rows[1]), ("SB3 Subproc: why",), 0.5, 1.5),
    )
    return Report({"cpu": "A CPU", "cores": "2", "numpy": "2"}, Settings(), workloads)


def test_tables_show_what_was_left_out_and_why(report: Report) -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(show(report))
    text = console.export_text()
    assert "ale_py is not installed" in text
    assert "SB3 Subproc: why" in text
    assert "used at most 50% of a core" in text
    assert "Acrobot-v1 ×32: other programs kept 1.5 cores busy" in text
    assert Report.from_json(report.to_json()) == report
    notes = [WorkloadResult("E ×1", notes=("a",)), WorkloadResult("E ×8", notes=("a", "b"))]
    assert [*grouped_notes(Report({}, Settings(), tuple(notes)))] == ["a.", "b (E ×8)."]


@pytest.mark.usefixtures("fonts")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_plot_is_a_png(report: Report, tmp_path: Any, count: int) -> None:
    path = tmp_path / "plot"
    save_plot(replace(report, workloads=report.workloads[:count]), path)
    assert path.read_bytes().startswith(PNG)


def test_curves_are_milliseconds_by_environment_system_and_number() -> None:
    assert curves([cell(1, 2000.0, auto=1000.0), cell(4, 2000.0, auto=2000.0)]) == {
        "E": {BARE: {1: pytest.approx(2 / 3), 4: pytest.approx(8 / 3)},
              AUTO: {1: pytest.approx(4 / 3), 4: pytest.approx(8 / 3)}}
    }  # fmt: skip
    assert curves([cell(4, pool=200)], lambda work, row: row.rate) == {
        "E": {BARE: {4: 75.0}, POOL: {4: 150.0}}
    }
