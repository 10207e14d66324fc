"""Pong, played in all ways: the figures, the chart, the targets."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.measuring.workloads import Workload
from benchmarks.pong.command import COUNTS, TARGETS, judge_pong
from benchmarks.pong.systems import PLAYERS, AlePong, AleVector, Compiled, Cuda, Numpy, Scalar
from benchmarks.reports.results import Row, WorkloadResult
from tests.benchmarks.tiny import PNG, run


@pytest.mark.full
@pytest.mark.parametrize("game", ["agym/PongRally-v0", "agym/Pong-v0"])
def test_every_way_to_play_is_measured(game: str, tmp_path: Path, fonts: None) -> None:
    done = run(
        tmp_path, "pong", game, "--num-envs", "1,3", "--seconds", "0.002", "--repeats", "2",
        plot="pong.png",
    )  # fmt: skip
    assert [work["work"] for work in done.data["workloads"]] == [f"{game} ×1", f"{game} ×3"]
    for work in done.data["workloads"]:
        count = int(work["work"].rpartition("×")[2])
        wanted = [kind.name for kind in PLAYERS if kind.why_not(Workload(game, count)) is None]
        assert [row["system"] for row in work["rows"]] == wanted
        for row in work["rows"]:
            assert row["system"].split()[0] in done.stdout
            assert min(row["rates"]) > 0
    (target,) = done.data["targets"]
    assert target["met"] is (target["measured"] >= 1.0)
    assert (tmp_path / "pong.png").read_bytes().startswith(PNG)


def test_targets_are_for_their_number_of_games() -> None:
    rows = tuple(
        Row(kind.name, (rate, rate))
        for kind, rate in ((AlePong, 2e3), (Scalar, 1e5), (Numpy, 4e6), (Compiled, 4e7))
    )
    many, few = (WorkloadResult(f"agym/PongRally-v0 ×{n}", rows) for n in (COUNTS[-1], 4))
    verdicts = judge_pong([few, many])
    assert [(target.wanted, target.met) for target in verdicts] == [
        (200.0, False), (0.2, False), (8000.0, True), (0.03, True),
    ]  # fmt: skip
    assert [target.measured for target in verdicts] == pytest.approx([40.0, 0.25, 20_000.0, 0.025])
    nothing = [WorkloadResult(f"agym/PongRally-v0 ×{n}") for n in (1, COUNTS[-1])]
    assert [target.met for target in judge_pong(nothing)] == [None] * len(TARGETS)


def test_what_is_left_out_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "over 256" in str(AleVector.why_not(Workload("agym/Pong-v0", 257)))
    monkeypatch.setattr("benchmarks.systems.base.installed", lambda module: False)
    assert "agym-envs[pong]" in str(Cuda.why_not(Workload("agym/Pong-v0", 1)))


def test_other_games_are_refused() -> None:
    result = CliRunner().invoke(app, ["pong", "CartPole-v1"])
    assert result.exit_code == 2
    assert "agym/PongRally-v0" in result.output
