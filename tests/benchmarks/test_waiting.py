"""The commands that compare with an ideal: io, overlap, training, stragglers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import benchmarks
from agym.core._system.cpus import available_cores
from agym.core._system.extras import installed
from benchmarks.app import app
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.waiting_envs import SleepingEnv, StragglingEnv, WaitingEnv
from benchmarks.reports.comparison import Compared
from benchmarks.reports.results import Verdict
from benchmarks.waiting.overlap import KINDS, WORKLOAD
from benchmarks.waiting.straggler_systems import RUNS, StragglerWorkload
from benchmarks.waiting.training_systems import TRAINERS
from tests.support.patience import patience

needs_torch = pytest.mark.skipif(not installed("torch"), reason="the extra sb3 brings torch")


@dataclass(frozen=True)
class Run:
    stdout: str
    stderr: str
    report: dict[str, Any]

    @property
    def rows(self) -> list[str]:
        return [row["name"] for row in self.report["rows"]]

    def check(self, repeats: int) -> None:
        """The table has what the JSON has: positive times or rates, an ideal for each or none."""
        for row in self.report["rows"]:
            assert row["name"] in self.stdout
            assert len(row["values"]) == repeats
            assert len(row["ideals"]) in (0, repeats)
            assert min([*row["values"], *row["ideals"]]) > 0
        for target in self.report["targets"]:
            compare = float.__le__ if target["at_most"] else float.__ge__
            assert target["met"] is compare(target["measured"], target["wanted"])
        assert self.report["machine"]["numpy"] in self.stdout


def bench(folder: Path, *arguments: str) -> Run:
    """Run a command of ``python -m benchmarks`` in a process and a folder of its own.

    MuJoCo writes its log where it runs.
    """
    path = folder / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--json", str(path)],
        capture_output=True, text=True, timeout=patience(11), cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(benchmarks.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Run(done.stdout, done.stderr, json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.full
def test_io_on_a_loop_and_over_processes(tmp_path: Path) -> None:
    run = bench(tmp_path, "io", "--num-envs", "6", "--delay", "0.01", "--rounds", "2")
    run.check(2)
    assert run.rows == [
        "6 environments on one event loop", "plain asyncio: 6 waits on each event loop",
        "6 environments over 2 worker processes", "plain asyncio: 3 waits on each event loop",
    ]  # fmt: skip
    ours, plain = run.report["rows"][:2]
    assert ours["ideals"] == plain["values"]
    assert plain["ideals"] == [10.0, 10.0]
    assert run.report["settings"]["backends"] == ["asyncio", "process"]
    assert run.report["targets"] == []  # they are for other numbers


@pytest.mark.full
def test_io_in_threads(tmp_path: Path) -> None:
    run = bench(
        tmp_path, "io", "--backend", "thread", "--num-envs", "4", "--delay", "0.01", "--rounds", "3"
    )
    run.check(3)
    assert run.rows == ["4 environments in a thread each"]


def test_io_judges_what_it_has_an_aim_for(tmp_path: Path) -> None:
    run = bench(tmp_path, "io", "--backend", "asyncio", "--rounds", "1")
    run.check(1)
    (target,) = run.report["targets"]
    assert target["wanted"] == 1.08


@needs_torch
def test_overlap(tmp_path: Path) -> None:
    run = bench(tmp_path, "overlap", "CartPole-v1:2", "--rounds", "2", "--repeats", "3")
    run.check(3)
    assert run.rows == [*KINDS]
    step, backward, one_by_one, overlapped = run.report["rows"]
    assert one_by_one["ideals"] == overlapped["ideals"]
    for alone in zip(step["values"], backward["values"], one_by_one["ideals"], strict=True):
        assert max(alone) <= alone[-1] * (1 + 1e-9) <= sum(alone[:2]) * (1 + 1e-6)
    assert run.report["targets"] == []


@pytest.mark.parametrize("module", ["torch", "mujoco"])
def test_overlap_without_a_package_is_a_note(
    module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for where in ("waiting.overlap", "measuring.workloads"):
        monkeypatch.setattr(f"benchmarks.{where}.installed", lambda name: name != module)
    path = tmp_path / "result.json"
    result = CliRunner().invoke(app, ["overlap", "--json", str(path)])
    assert result.exit_code == 0, result.stderr
    assert f"{module} is not installed: pip install" in result.stdout
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["rows"] == []
    (target,) = report["targets"]
    assert target["target"].startswith(WORKLOAD.name)
    assert target["measured"] is target["met"] is None


@needs_torch
@pytest.mark.full
def test_training(tmp_path: Path) -> None:
    run = bench(tmp_path, "training", "halfcheetah", "--repeats", "2")
    (loop,) = run.report["loops"]
    Run(run.stdout, run.stderr, loop).check(2)
    assert [row["name"] for row in loop["rows"]] == [kind.name for kind in TRAINERS]
    plain = loop["rows"][0]
    for rate, ideal in zip(plain["values"], plain["ideals"], strict=True):
        assert rate < ideal < rate * available_cores()  # in the ideal, only steps take less time
    assert len(loop["targets"]) == 4


def test_training_without_torch_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for where in ("waiting.training", "measuring.workloads"):
        monkeypatch.setattr(f"benchmarks.{where}.installed", lambda name: name != "torch")
    path = tmp_path / "result.json"
    result = CliRunner().invoke(app, ["training", "humanoidstandup", "--json", str(path)])
    assert result.exit_code == 0, result.stderr
    assert "torch is not installed: pip install" in result.stdout
    (loop,) = json.loads(path.read_text(encoding="utf-8"))["loops"]
    assert loop["rows"] == loop["targets"] == []
    result = CliRunner().invoke(app, ["training", "humanoid"])
    assert result.exit_code == 2
    assert "use some of pong, humanoidstandup, halfcheetah" in result.output


@pytest.mark.full
def test_stragglers(tmp_path: Path) -> None:
    run = bench(tmp_path, "stragglers", "--seconds", "0.1", "--repeats", "2")
    run.check(2)
    assert run.rows == [*RUNS]
    ideal, barrier, first_half = run.report["rows"]
    assert ideal["ideals"] == []
    assert barrier["ideals"] == first_half["ideals"] == ideal["values"]
    assert [target["wanted"] for target in run.report["targets"]] == [0.9]
    assert "leave a ratio of 0.96 at best" in run.stdout


@pytest.mark.full
def test_stragglers_of_another_tail_have_no_aim(tmp_path: Path) -> None:
    run = bench(
        tmp_path, "stragglers", "--num-envs", "3", "--delay", "0.002", "--chance", "0.1",
        "--seconds", "0.02", "--repeats", "1",
    )  # fmt: skip
    run.check(1)
    assert run.report["targets"] == []


def test_everything_has_its_turn_in_every_repetition() -> None:
    turns = list(in_turns("ABC", 4))
    assert "".join(name for _, name in turns) == "ABCBCACABABC"
    assert [turn for turn, _ in turns] == sorted([0, 1, 2, 3] * 3)


def test_ratio_to_the_ideal_is_taken_within_each_repetition() -> None:
    assert Compared("a", (2.0, 30.0, 6.0), (1.0, 10.0, 6.0)).ratio == 2.0
    assert Compared("a", (2.0,)).ratio is None


@pytest.mark.parametrize(
    ("measured", "at_most", "met"),
    [
        (1.0, True, True), (1.1, True, True), (1.2, True, False),
        (1.0, False, False), (1.1, False, True), (None, True, None),
    ],
)  # fmt: skip
def test_factors_to_reach_and_to_keep(
    measured: float | None, at_most: bool, met: bool | None
) -> None:
    verdict = Verdict.on_ratio("a", 1.1, measured, at_most=at_most)
    assert verdict.met is met


def test_what_a_tail_costs_any_runner() -> None:
    assert StragglerWorkload(chance=0.0).best == 1.0
    assert StragglerWorkload(chance=0.1, times=11.0).best == 0.5


async def delays(env: StragglingEnv, seed: int) -> list[float]:
    await env.reset(seed=seed)
    return [env._next_delay() for _ in range(400)]


async def test_stragglers_are_drawn_from_the_seed() -> None:
    env = StragglingEnv(0.5, 0.1, 4.0)
    drawn = await delays(env, 1)
    assert {*drawn} == {0.5, 2.0}
    assert drawn.count(2.0) < 100
    assert drawn == await delays(env, 1)
    assert drawn != await delays(env, 2)
    assert {*await delays(StragglingEnv(0.5, 0.0, 4.0), 1)} == {0.5}


async def test_environments_give_what_their_spaces_say() -> None:
    waiting, sleeping = WaitingEnv(0.0), SleepingEnv(0.0)
    for observation, _ in (await waiting.reset(seed=0), sleeping.reset(seed=0)):
        assert observation in waiting.observation_space
    for step in (await waiting.step(0), await asyncio.to_thread(sleeping.step, 0)):
        assert step[0] in sleeping.observation_space
        assert step[1:] == (0.0, False, False, {})


@needs_torch
def test_backward_pass_gives_torch_its_threads_back() -> None:
    code = (
        "import torch; torch.set_num_threads(2)\n"
        "from benchmarks.waiting.backward import backward_pass\n"
        "with backward_pass(1e-3) as backward:\n"
        "    backward()\n"
        "    print(torch.get_num_threads())\n"
        "print(torch.get_num_threads())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "2"]
