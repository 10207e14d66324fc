"""Snapshots beside what is baseline: every part is measured, and differences are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.branching import exact
from benchmarks.branching.command import BranchingReport, show_branching
from benchmarks.branching.cost import CALLS, CostRow, seconds_per_call
from benchmarks.branching.depth import FACTOR, DepthResult, judge_depth, measure_depth
from benchmarks.branching.digests import Row, difference, digest
from benchmarks.branching.envs import GAMES, WanderingEnv, missing
from benchmarks.branching.exact import measure_exactness
from benchmarks.branching.memory import MemoryResult, judge_memory
from benchmarks.branching.records import QUICK, BackendName, Game, Plan
from tests.benchmarks.tiny import run

needs_ale = pytest.mark.skipif(
    missing(Game("ALE/Pong-v5", {}, "ale_py", "the extra `atari`")) is not None,
    reason="the extra `atari`",
)


def branching(folder: Path, part: str, *arguments: str) -> tuple[Any, str]:
    """The results of one part and what was printed."""
    done = run(folder, "branching", "--quick", "--part", part, *arguments)
    return done.data, done.stdout


# ---------------------------------------------------------------- the parts


@pytest.mark.full
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_branch_points_are_compared(backend: str, tmp_path: Path) -> None:
    names = "CartPole-v1", "FrozenLake-v1", "Taxi-v4", "WanderingEnv"
    chosen = [word for name in names for word in ("--env", name)]
    data, text = branching(tmp_path, "exact", "--points", "8", "--backend", backend, *chosen)
    assert [each["env"] for each in data["exact"]] == [*names]
    for each in data["exact"]:
        assert each["identical"] == 8
        assert each["different"] == each["refused"] == 0
        assert sum(each["ways"].values()) >= 8
        assert each["nbytes"] > 0
        assert each["env"] in text
    assert data["cost"] == data["depth"] == data["run"] == data["memory"] == []
    assert all(target["met"] for target in data["targets"])


@pytest.mark.full
def test_refusals_are_counted_with_their_reason(tmp_path: Path) -> None:
    pytest.importorskip("Box2D", reason="LunarLander needs Box2D")
    data, text = branching(tmp_path, "exact", "--env", "LunarLander-v3", "--points", "20")
    (lander,) = data["exact"]
    assert (lander["identical"], lander["different"]) == (20, 0)
    assert lander["refused"] >= QUICK.batch
    assert "its actions were not recorded" in next(iter(lander["reasons"]))
    assert "refused" in text


@needs_ale
@pytest.mark.full
def test_costs_are_beside_the_bare_calls(tmp_path: Path) -> None:
    data, text = branching(tmp_path, "cost", "--env", "ALE/Pong-v5")
    rows = data["cost"]
    assert [(row["num_envs"], row["call"], row["backend"]) for row in rows] == [
        *((1, call, "serial") for call in CALLS),
        *((QUICK.num_envs, call, kind) for call in CALLS for kind in ("serial", "process")),
    ]
    for row in rows:
        for name in ("baseline", "agym", "trip"):
            assert len(row[name]) == QUICK.repeats
            assert min(row[name]) > 0
    assert len(data["targets"]) == len(rows)
    assert "round trip" in text


@needs_ale
@pytest.mark.full
@pytest.mark.parametrize("backend", BackendName)
def test_branches_are_beside_replays(backend: BackendName) -> None:
    result = measure_depth(backend, QUICK, lambda doing: None)
    assert result is not None
    assert len(result.restored) == len(result.replayed) == QUICK.repeats
    assert result.ratio > 0
    report = BranchingReport({}, QUICK, backend, depth=[result])
    assert [target.met for target in report.targets] == [result.same, result.ratio >= FACTOR]
    assert show_branching(report) is not None


@pytest.mark.full
def test_saved_runs_are_continued(tmp_path: Path) -> None:
    data, text = branching(tmp_path, "run", "--env", "CartPole-v1", "--env", "Taxi-v4")
    assert [(each["env"], each["backend"]) for each in data["run"]] == [
        (name, kind) for name in ("CartPole-v1", "Taxi-v4") for kind in ("serial", "process")
    ]
    for each in data["run"]:
        assert each["equal"] == each["operations"] == QUICK.operations
        assert each["difference"] == ""
    assert "continued in another process" in text


@needs_ale
@pytest.mark.full
def test_memory_is_measured_at_four_moments(tmp_path: Path) -> None:
    data, text = branching(tmp_path, "memory", "--env", "ALE/Pong-v5")
    (pong,) = data["memory"]
    assert pong["snapshots"] == QUICK.snapshots
    for name in ("caller", "workers"):
        assert len(pong[name]) == 4
        assert min(pong[name]) > 1e6
        assert name in text


# ---------------------------------------------------------------- what they are made of


class Forgetful(WanderingEnv):
    """Draws other random numbers after it was restored."""

    async def restore(self, state: Any) -> None:
        await super().restore(state)
        self._random = np.random.default_rng(7)


def test_a_copy_that_goes_another_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    game = GAMES[-1]
    assert missing(game) is None
    monkeypatch.setattr(exact, "source_of", lambda game: Forgetful)
    plan = Plan(points=5, batch=3)
    result = measure_exactness(game, plan, BackendName.serial, lambda doing: None)
    assert (result.identical, result.different) == (0, 5)
    assert "observation of step 1" in result.differences[0]
    report = BranchingReport({}, plan, BackendName.serial, exact=[result])
    assert [target.met for target in report.targets] == [False]
    assert show_branching(report) is not None


def test_digests_are_exact() -> None:
    nan, other_nan = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    values: list[Any] = [
        nan, other_nan, 0.0, -0.0, 0, False, None, "", [], (), {}, [[], []], [[[]]], ["a", "b"],
        ["ab"], {"a": 1}, {"a": 2}, np.zeros(2), np.zeros((2, 1)), np.zeros(2, np.float32),
        np.float64(0.0), np.array([None]), b"", np.zeros(0),
    ]  # fmt: skip
    assert len({digest(value) for value in values}) == len(values)
    shared = "a b"
    equal = [shared, shared], ["a b", " ".join("ab")]
    assert digest(equal[0]) == digest(equal[1])  # whichever objects are the same
    assert digest(np.arange(6)[::2]) == digest(np.array([0, 2, 4]))


def test_the_first_difference_is_named() -> None:
    row = Row.of([1.0], 0.0, False, False, {"a": np.nan})
    assert difference([row, row], [row, row]) == ""
    assert difference([row, row], [row, row._replace(truncated=True)]) == "truncated of step 2"
    assert not row.ends
    assert row._replace(terminated=True).ends


def test_targets() -> None:
    one = CostRow("E", 1, "snapshot", "serial", (1.0, 2.0), (4.0, 8.0), (2.0, 4.0))
    many = CostRow("E", 64, "restore", "process", (1.0, 2.0), (4.0, 8.0), (2.0, 4.0))
    assert (one.ratio, one.own_ratio) == (4.0, 2.0)
    assert [row.judge().met for row in (one, many)] == [True, False]
    depths = [DepthResult("serial", (1.0,), (19.0,), True), DepthResult("p", (1.0,), (20.0,), True)]
    assert [verdict.met for verdict in judge_depth(depths)] == [False, True]
    caller, workers = (100e6, 900e6, 109e6, 120e6), (1e9, 9e9, 1.1e9, 1.1e9)
    held = MemoryResult("E", 9, 1, (*map(int, caller),), (*map(int, workers),), True)
    assert [verdict.met for verdict in judge_memory([held])] == [True, False, False, True]


def test_a_call_is_timed_at_least_once() -> None:
    calls: list[int] = []
    assert seconds_per_call(lambda: calls.append(1), 0.0) > 0
    assert len(calls) == 1


def test_other_environments_are_refused() -> None:
    result = CliRunner().invoke(app, ["branching", "--env", "Nothing-v0"])
    assert result.exit_code == 2
    assert "CartPole-v1" in result.output
