"""Rule books beside what else runs the same games: the figures, the chart, the targets."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.measuring.workloads import Workload
from benchmarks.reports.results import Row, WorkloadResult
from benchmarks.rules.comparison import Extra, Factor, Limit, judge
from benchmarks.rules.makers import MAKERS, Default, Own
from benchmarks.rules.systems import (
    PLAYERS,
    RUNNERS,
    AlePong,
    AleVector,
    Compiled,
    Cuda,
    EnvPool,
    Python,
)
from tests.benchmarks.tiny import PNG, run
from tests.support.scripts import install_command

# Each process compiles the games anew.
pytestmark = pytest.mark.xdist_group("compiled")

QUICK = ("--seconds", "0.002", "--repeats", "2")


@pytest.mark.full
@pytest.mark.parametrize("game", ["agym/PongRally-v0", "agym/Pong-v0"])
def test_every_way_to_play_is_measured(game: str, tmp_path: Path, fonts: None) -> None:
    done = run(tmp_path, "pong", game, "--num-envs", "1,3", *QUICK, plot="pong.png")
    assert [work["work"] for work in done.data["workloads"]] == [f"{game} ×1", f"{game} ×3"]
    for work in done.data["workloads"]:
        count = int(work["work"].rpartition("×")[2])
        wanted = [kind.name for kind in PLAYERS if kind.why_not(Workload(game, count)) is None]
        assert [row["system"] for row in work["rows"]] == wanted
        for row in work["rows"]:
            assert row["system"].split()[0] in done.stdout
            assert min(row["rates"]) > 0
    for target in done.data["targets"]:
        assert target["met"] is (target["measured"] >= 1.0)
    assert (tmp_path / "pong.png").read_bytes().startswith(PNG)


@pytest.mark.full
def test_every_runner_is_measured(tmp_path: Path) -> None:
    works = ["agym/CartPole-v1:2", "agym/Pendulum-v1:3"]
    done = run(tmp_path, "vectorize", *works, *QUICK)
    assert len(done.data["workloads"]) == 2
    for work in done.data["workloads"]:
        game = Workload("agym/CartPole-v1", 2)
        wanted = [kind.name for kind in RUNNERS if kind.why_not(game) is None]
        assert [row["system"] for row in work["rows"]] == wanted


@pytest.mark.full
def test_every_maker_is_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "makers", *QUICK)
    *games, infos = done.data["workloads"]
    for work in games:
        assert [row["system"] for row in work["rows"]] == [kind.name for kind in MAKERS]
    assert [row["system"] for row in infos["rows"]] == [
        kind.name for kind in MAKERS if kind is not Default
    ]
    assert [target["wanted"] for target in done.data["targets"]] == [15.0, 40.0]


def test_what_a_batch_takes_more_is_taken_turn_by_turn() -> None:
    rows = (Row(Own.name, (1e6, 2e6, 1e6)), Row(Default.name, (0.5e6, 1e6, 1e6)))
    verdicts = judge([WorkloadResult("G ×10", rows)], [Extra("G ×10", Default, Own, 7.0)])
    assert verdicts[0].measured == pytest.approx(5.0)
    assert verdicts[0].met


def test_targets_are_for_their_workload() -> None:
    rows = tuple(
        Row(kind.name, (rate, rate))
        for kind, rate in ((AlePong, 2e3), (Python, 1e5), (Compiled, 4e7))
    )
    targets = (
        Limit("G ×9", Compiled, 0.03),
        Limit("G ×9", Python, 0.03),
        Factor("G ×9", Compiled, AlePong, 8000.0),
        Factor("G ×9", Compiled, EnvPool, 2.0),
        Factor("G ×3", Compiled, Python, 1.0),
    )
    verdicts = judge([WorkloadResult("G ×9", rows), WorkloadResult("G ×4", rows)], targets)
    assert [target.met for target in verdicts] == [True, False, True, None]
    assert [target.measured for target in verdicts[:3]] == pytest.approx([0.025, 10.0, 20_000.0])


def test_what_is_left_out_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "over 256" in str(AleVector.why_not(Workload("agym/Pong-v0", 257)))
    monkeypatch.setattr("benchmarks.systems.base.installed", lambda module: False)
    assert install_command("vectorize") in str(Cuda.why_not(Workload("agym/Pong-v0", 1)))


@pytest.mark.parametrize(
    ("words", "remedy"),
    [(["pong", "CartPole-v1"], "agym/PongRally-v0"), (["vectorize", "CartPole-v1:2"], "rule book")],
)
def test_other_games_are_refused(words: list[str], remedy: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert remedy in result.output
