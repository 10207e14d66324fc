"""Each command of ``python -m benchmarks`` measures what it names, and judges what it measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import benchmarks
from agym.core._system.cpus import available_cores
from benchmarks.agents.gaps import SYSTEMS as GAPS
from benchmarks.agents.many import SYSTEMS as MANY
from benchmarks.app import app
from benchmarks.branching import exact
from benchmarks.branching.command import BranchingReport, show_branching
from benchmarks.branching.cost import CALLS
from benchmarks.branching.depth import FACTOR, measure_depth
from benchmarks.branching.envs import GAMES, WanderingEnv, missing
from benchmarks.branching.records import QUICK as SNAPSHOTS
from benchmarks.branching.records import BackendName, Game
from benchmarks.branching.records import Plan as SnapshotPlan
from benchmarks.measuring.workloads import Workload
from benchmarks.overhead.systems import HostAlone, RoundTrip, StepsAlone
from benchmarks.reports.results import BARE, BOUND, LOOP, Report, StartupResult
from benchmarks.rules.makers import MAKERS, Default
from benchmarks.rules.systems import PLAYERS, RUNNERS
from benchmarks.rules.twins import SYSTEMS as TWINS
from benchmarks.systems.runners import SYSTEMS, AgymProcess
from benchmarks.throughput import multienv, pool
from benchmarks.throughput.account_parts import NO_WAITS
from benchmarks.throughput.everything import QUICK
from benchmarks.throughput.multienv import BareResets, LoopResets, ProcessResets
from benchmarks.throughput.scale import NOISE
from benchmarks.waiting import render
from benchmarks.waiting.overlap import KINDS
from benchmarks.waiting.overlap import WORKLOAD as OVERLAP
from benchmarks.waiting.render_systems import DRAWING, FEW, RENDER_WORKLOADS
from benchmarks.waiting.straggler_systems import RUNS
from benchmarks.waiting.training_systems import TRAINERS
from tests.benchmarks.tiny import FEW as FEW_SYSTEMS
from tests.benchmarks.tiny import PNG, Done, run
from tests.support.patience import patience

pytestmark = pytest.mark.xdist_group("compiled")

SHORT = "--seconds 0.002 --repeats 2"
MEASURED = {"rates", "values", "ideals", "baseline", "agym", "trip", "seconds", "memory"}
PARTS = [
    "bare", "host and cache", "waiting for a core", "barrier", "waking", "transport", "caller",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command on next to nothing.

    Attributes:
        words: The command line.
        rows: The names of the rows that the report has for each workload.
        wanted: What the targets ask for; ``None`` for whatever they ask for.
        needs: A package without which the command measures nothing.
        charts: The charts that the command draws.
        alone: Whether the command runs in a process of its own, with which fork servers end.
    """

    words: str
    rows: dict[str, list[str]]
    wanted: tuple[float, ...] | None = ()
    needs: str = "typer"
    charts: tuple[str, ...] = ()
    alone: bool = False


def names(systems: Any, env_id: str = "CartPole-v1", num_envs: int = 2) -> list[str]:
    """The names of the systems that can run a workload."""
    work = Workload(env_id, num_envs)
    return [system.name for system in systems if system.why_not(work) is None]


def bounded(systems: Any) -> list[str]:
    """The names of systems, with the bound behind the bare environment."""
    return [BARE, BOUND, *names(systems)[1:]]


FEW_ROWS = bounded(FEW_SYSTEMS)
POOL = [kind for kind in pool.SYSTEMS if not kind.process_per_env]
RENDER = [work for work in RENDER_WORKLOADS if work is not FEW]
STEPPING = [multienv.Bare, multienv.BareLoop, AgymProcess]
RENDERED = [
    f"{DRAWING} CartPole-v1 ×2", "finished pictures of Still-v0 ×2", "render beside CartPole-v1 ×2",
    "timeline of CartPole-v1 ×2", "live page of CartPole-v1 ×2",
]  # fmt: skip
ON_A_LOOP = ["6 environments on one event loop", "plain asyncio: 6 waits on each event loop"]
IN_WORKERS = ["6 environments over 2 worker processes", "plain asyncio: 3 waits on each event loop"]

CASES = {
    "scale": Case(
        f"scale CartPole-v1 --num-envs 1,3 {SHORT}",
        {f"CartPole-v1 ×{n}": [BARE, LOOP, "agym auto"] for n in (1, 3)},
        (NOISE,), charts=("scale",),
    ),
    "pool": Case(
        f"pool CartPole-v1 --num-envs 1,3 {SHORT} --workers 2",
        {f"CartPole-v1 ×{n}": bounded(POOL) for n in (1, 3)},
        (1.0, 1.05, 1.8), "stable_baselines3", ("efficiency", "throughput"),
    ),
    "io for its target": Case(
        "io --backend asyncio --rounds 1",
        {"": [each.replace("6", "1,000") for each in ON_A_LOOP]}, (1.08,),
    ),
    "overlap": Case(
        "overlap CartPole-v1:2 --rounds 2 --repeats 3", {"": [*KINDS]}, needs="torch", alone=True
    ),
    "grid": Case(
        f"grid CartPole-v1 Null-v0 --num-envs 1,2 {SHORT} --minutes 0.1",
        {f"{env} ×{n}": FEW_ROWS for env in ("CartPole-v1", "Null-v0") for n in (1, 2)},
        (0.95, 1.0) * 4, charts=("grid",),
    ),
    "busy": Case(
        "busy CartPole-v1:2 --beside 0,1 --seconds 0.01 --repeats 2",
        {"CartPole-v1 ×2": FEW_ROWS}, None, charts=("busy",),
    ),
    "overhead": Case(
        f"overhead --num-envs 2 --step-times 5,50 {SHORT}",
        {"Null-v0 ×64": [StepsAlone.name, HostAlone.name],
         "Null-v0 ×1": [RoundTrip.name, "agym serial"],
         **{f"steps of {t} µs ×2": FEW_ROWS for t in (0, 5, 50)}},
        (0.6, 12), charts=("overhead",),
    ),
    "multienv": Case(
        f"multienv CartPole-v1 --num-envs 1,3 {SHORT} --workers 2",
        {f"{what} of CartPole-v1 ×{n}": bounded(STEPPING)
         for what in ("steps", "resets") for n in (1, 3)},
        charts=("multienv",),
    ),
    "render": Case(
        f"render --num-envs 2 {SHORT} --workers 1",
        {name: [kind.name for kind in work.systems]
         for name, work in zip(RENDERED, RENDER, strict=True)},
        needs="pygame",
    ),
    **{
        game: Case(
            f"pong {game} --num-envs 1,3 {SHORT}",
            {f"{game} ×{n}": names(PLAYERS, game, n) for n in (1, 3)}, None, charts=("pong",),
        )
        for game in ("agym/PongRally-v0", "agym/Pong-v0")
    },
    "vectorize": Case(
        f"vectorize agym/CartPole-v1:2 agym/Pendulum-v1:3 {SHORT}",
        {f"agym/{name}": names(RUNNERS, "agym/CartPole-v1")
         for name in ("CartPole-v1 ×2", "Pendulum-v1 ×3")},
        None,
    ),
    "twins": Case(
        f"twins CliffWalking-v1:16 Taxi-v4:17 {SHORT}",
        {name: names(TWINS, name.partition(" ")[0], 16)
         for name in ("CliffWalking-v1 ×16", "Taxi-v4 ×17")},
        None, charts=("twins",),
    ),
    "startup": Case("startup CartPole-v1:3 --repeats 1", {"": ["CartPole-v1 ×3"]}),
    "memory": Case("memory CartPole-v1:3 --repeats 1", {"": ["CartPole-v1 ×2", "CartPole-v1 ×3"]}),
    "agents_many": Case(
        f"agents_many mpe2/simple_spread_v3:2 {SHORT}",
        {"mpe2/simple_spread_v3 ×2": names(MANY, "mpe2/simple_spread_v3", 2)},
        None, alone=True,
    ),
    "gaps": Case("gaps --quick", {"": [system.name for system in GAPS]}, None),
    "io": Case(
        "io --num-envs 6 --delay 0.01 --rounds 2", {"": ON_A_LOOP + IN_WORKERS}, alone=True
    ),
    "io in threads": Case(
        "io --backend thread --num-envs 4 --delay 0.01 --rounds 3",
        {"": ["4 environments in a thread each"]},
    ),
    "stragglers": Case("stragglers --seconds 0.1 --repeats 2", {"": [*RUNS]}, (0.9,)),
    "stragglers of another tail": Case(
        "stragglers --num-envs 3 --delay 0.002 --chance 0.1 --seconds 0.02 --repeats 1",
        {"": [*RUNS]},
    ),
    "throughput": Case(
        "throughput CartPole-v1:8 --seconds 0.01 --repeats 2 --workers 2",
        {"CartPole-v1 ×8": bounded(SYSTEMS)}, None, alone=True,
    ),
}  # fmt: skip
SUMMARIES = ("grid", "overhead")  # their tables have some of the rows
IN_THE_CORE = ("scale", "io for its target")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out systems that take long to start, or leave a fork server behind."""
    for name in ("throughput.grid", "measuring.measure", "throughput.busy"):
        monkeypatch.setattr(f"benchmarks.{name}.SYSTEMS", FEW_SYSTEMS)
    monkeypatch.setattr("benchmarks.overhead.command.COMPARED", FEW_SYSTEMS)
    monkeypatch.setattr(pool, "SYSTEMS", tuple(POOL))
    monkeypatch.setattr(render, "RENDER_WORKLOADS", tuple(RENDER))
    monkeypatch.setattr(multienv, "STEPPING", tuple(STEPPING))
    monkeypatch.setattr(multienv, "RESETTING", (BareResets, LoopResets, ProcessResets))


def run_alone(folder: Path, *arguments: str) -> Done:
    """Run a command in a process and a folder of its own, where MuJoCo writes its log."""
    path = folder / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--json", str(path)],
        capture_output=True, text=True, timeout=patience(11), cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(benchmarks.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Done.of(done.stdout, path)


def check(part: Any) -> Iterator[dict[str, Any]]:
    """Check all records of a report; yield them."""
    if isinstance(part, dict):
        for name in MEASURED & part.keys():
            assert not isinstance(part[name], list) or min(part[name], default=1) > 0, part
        if "met" in part and part["measured"] is not None:
            measured, wanted = part["measured"], part["wanted"]
            if part["unit"] == "×":
                assert part["met"] is (
                    measured <= wanted if part["at_most"] else measured >= wanted
                )
            else:
                assert part["met"] is (measured < wanted)
        yield part
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            yield from check(inner)


@pytest.mark.usefixtures("few", "fonts")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in IN_THE_CORE else pytest.mark.full) for name in CASES],
)
def test_a_command_measures_what_it_names(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    pytest.importorskip(case.needs)
    plot = (
        None if not case.charts else "charts" if len(case.charts) > 1 else f"{case.charts[0]}.png"
    )
    words = case.words.split()
    done = run_alone(tmp_path, *words) if case.alone else run(tmp_path, *words, plot=plot)
    records = [*check(done.data)]
    works = {each["work"]: each["rows"] for each in records if "rows" in each and "work" in each}
    found = {work: [row["system"] for row in rows] for work, rows in works.items()}
    assert (found or {"": [row["name"] for row in done.data["rows"]]}) == case.rows
    for work, systems in case.rows.items():
        for word in (work, *(system.split()[0].strip(",") for system in systems)):
            assert word in done.stdout or name in SUMMARIES, word
    targets = tuple(each["wanted"] for each in records if "met" in each)
    assert case.wanted is None or targets == case.wanted
    charts = [path for path in tmp_path.rglob("*.png") if path.read_bytes().startswith(PNG)]
    assert {path.stem for path in charts} == {*case.charts}
    if name == "throughput":
        report = Report.from_json(done.text)
        assert report.to_json() == done.text
        bare, bound = report.workloads[0].rows[:2]
        assert bound.rates == tuple(2 * rate for rate in bare.rates)
        assert {"cpu", "cores", "system", "python", "agym-envs", "numpy"} <= {*report.machine}
        assert not any("/" in text and Path(text).exists() for text in report.machine.values())


# ---------------------------------------------------------------- what some have besides


@pytest.mark.full
def test_an_account_splits_every_slice(
    tmp_path: Path, fonts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["account", "CartPole-v1", "4", "--seconds", "0.02", "--repeats", "2", "--workers", "2"]
    done = run(tmp_path, *words, plot="account.png")
    assert len(done.data["slices"]) == 2
    for each in done.data["slices"]:
        assert [*each["parts"]] == PARTS
        assert sum(each["parts"].values()) == pytest.approx(each["batch"])
        assert min(each["parts"][name] for name in PARTS if name != "host and cache") >= 0
    assert [*done.data["medians"]["parts"]] == PARTS
    assert "CartPole-v1 ×4, 2 workers" in done.stdout
    assert "Median: process reaches" in done.stdout
    assert (tmp_path / "account.png").read_bytes().startswith(PNG)
    monkeypatch.setattr("benchmarks.throughput.account_parts.core_use", lambda pids: None)
    done = run(tmp_path, *["account", "Null-v0", "2", "--seconds", "0.002", "--repeats", "1"])
    assert done.data["workloads"][0]["notes"] == [NO_WAITS]
    (each,) = done.data["slices"]
    assert each["parts"]["waiting for a core"] == 0
    assert each["worker_use"] is each["caller_use"] is None


@pytest.mark.full
def test_all_writes_one_report_and_a_chart_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: None, fonts: None
) -> None:
    started = StartupResult("", 2, (2.0, 9.0, 1.0), (10**8, 10**8, 10**8))
    monkeypatch.setattr("benchmarks.overhead.startup.measure_startup", lambda *_: started)
    done = run(tmp_path, "all", "--quick", plot="charts")
    parts = done.data["parts"]
    assert [*parts] == ["throughput", "grid", "scale", "overhead", "startup", "memory"]
    assert not any("machine" in part or "targets" in part for part in parts.values())
    workloads = [work["work"] for work in parts["throughput"]["workloads"]]
    assert workloads == [work.name for work in QUICK.workloads]
    wanted = [target["target"] for target in done.data["targets"]]
    for word in ("best fixed", "best peer", "more environments", "env.step", "round trip"):
        assert any(word in target for target in wanted)
    charts = {path.stem for path in (tmp_path / "charts").iterdir()}
    assert charts == {"throughput", "grid", "scale", "overhead"}


@pytest.mark.full
def test_every_maker_is_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "makers", *SHORT.split())
    *games, infos = [[row["system"] for row in work["rows"]] for work in done.data["workloads"]]
    assert all(rows == [kind.name for kind in MAKERS] for rows in games)
    assert infos == [kind.name for kind in MAKERS if kind is not Default]
    assert [target["wanted"] for target in done.data["targets"]] == [15.0, 40.0]


@pytest.mark.full
def test_training_is_compared_with_an_ideal(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `sb3`")
    (loop,) = run_alone(tmp_path, *["training", "halfcheetah", "--repeats", "2"]).data["loops"]
    assert [row["name"] for row in loop["rows"]] == [kind.name for kind in TRAINERS]
    plain = loop["rows"][0]
    for rate, ideal in zip(plain["values"], plain["ideals"], strict=True):
        assert rate < ideal < rate * available_cores()  # in the ideal, only steps take less time
    assert len([*check(loop["targets"])]) == 4


@pytest.mark.full
def test_sessions_of_a_server_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra `serve`")
    done = run(tmp_path, *["serving", "--quick", "--part", "sessions", "--sessions", "8"])
    assert "seconds of a round" in done.stdout
    failed = next(each for each in done.data["targets"] if each["target"] == "failed steps")
    assert failed["measured"] == 0


def test_batched_policies_are_measured(tmp_path: Path) -> None:
    done = run(tmp_path, *["batched", "--quick", "--part", "cost", "--part", "cancel"])
    assert {*done.data["cost"]} == {"plain function", "coroutine function", "function alone"}
    drill = done.data["drill"]
    assert drill["answered"] + drill["cancelled"] == drill["requests"] == 2000
    assert drill["lost"] == drill["crossed"] == 0
    assert drill["cancelled"] > 100


@pytest.mark.full
def test_torchrl_is_measured_beside_batched_policies(tmp_path: Path) -> None:
    pytest.importorskip("torchrl", reason="the extra `torchrl`")
    rows = run_alone(tmp_path, *["batched", "--quick", "--part", "torchrl"]).data["frames"]["4"]
    assert [*check(rows)]
    assert sum("AsyncBatchedCollector" in row["system"] for row in rows) == 3


def test_the_drill_of_openenv_is_passed(tmp_path: Path) -> None:
    done = run(tmp_path, *["openenv", "--part", "drill", "--give-up", "50", "--sessions", "4"])
    tally = done.data["drills"][0]["tally"]
    assert tally["timeouts"] + tally["cancelled"] >= 50
    assert tally["answered"] > 0
    assert done.data["targets"][0]["met"] is True


@pytest.mark.parametrize(
    ("words", "package", "target"),
    [
        ("overlap", "torch", OVERLAP.name), ("overlap", "mujoco", OVERLAP.name),
        ("training humanoidstandup", "torch", ""), ("throughput ALE/Pong-v5:8", "ale_py", "ALE"),
    ],
)  # fmt: skip
def test_without_a_package_there_is_a_note(
    words: str, package: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in ("waiting.overlap", "waiting.training", "measuring.workloads"):
        monkeypatch.setattr(f"benchmarks.{where}.installed", lambda name: name != package)
    done = run(tmp_path, *words.split())
    assert f"{package} is not installed: pip install" in " ".join(done.stdout.split())
    records = [*check(done.data)]
    assert not any(each.get("rows") for each in records)
    targets = [each for each in records if "met" in each]
    assert bool(targets) is bool(target)
    assert all(each["met"] is None and each["target"].startswith(target) for each in targets)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("training humanoid", "use some of pong, humanoidstandup, halfcheetah"),
        ("busy CartPole-v1:2 --beside 3", "learner"),
    ],
)
def test_what_is_no_choice_is_refused(words: str, remedy: str) -> None:
    """Others that cannot be measured are in ``tests/cli/test_cli.py``."""
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    assert remedy in " ".join(result.stderr.replace("│", " ").split())


# ---------------------------------------------------------------- snapshots

needs_ale = pytest.mark.skipif(
    missing(Game("ALE/Pong-v5", {}, "ale_py", "the extra `atari`")) is not None,
    reason="the extra `atari`",
)


def branching(folder: Path, part: str, *envs: str, options: str = "") -> Done:
    words = [word for env in envs for word in ("--env", env)]
    done = run(folder, "branching", "--quick", "--part", part, *words, *options.split())
    assert all(env in done.stdout for env in envs)
    return done


@pytest.mark.full
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_branch_points_are_compared(backend: str, tmp_path: Path) -> None:
    names = "CartPole-v1", "FrozenLake-v1", "Taxi-v4", "WanderingEnv"
    done = branching(tmp_path, "exact", *names, options=f"--points 8 --backend {backend}")
    assert [each["env"] for each in done.data["exact"]] == [*names]
    for each in done.data["exact"]:
        assert (each["identical"], each["different"], each["refused"]) == (8, 0, 0)
        assert sum(each["ways"].values()) >= 8
        assert each["nbytes"] > 0
    assert all(target["met"] for target in done.data["targets"])


@pytest.mark.full
def test_refusals_of_snapshots_are_counted_with_their_reason(tmp_path: Path) -> None:
    pytest.importorskip("Box2D", reason="LunarLander needs Box2D")
    data = branching(tmp_path, "exact", "LunarLander-v3", options="--points 20").data
    (lander,) = data["exact"]
    assert (lander["identical"], lander["different"]) == (20, 0)
    assert lander["refused"] >= SNAPSHOTS.batch
    assert "its actions were not recorded" in next(iter(lander["reasons"]))


@needs_ale
@pytest.mark.full
def test_snapshots_cost_time_and_memory(tmp_path: Path) -> None:
    data = branching(tmp_path, "cost", "ALE/Pong-v5").data
    assert [(row["num_envs"], row["call"], row["backend"]) for row in check(data["cost"])] == [
        *((1, call, "serial") for call in CALLS),
        *((SNAPSHOTS.num_envs, call, kind) for call in CALLS for kind in ("serial", "process")),
    ]
    assert len(data["targets"]) == len(data["cost"])
    (pong,) = branching(tmp_path, "memory", "ALE/Pong-v5").data["memory"]
    assert pong["snapshots"] == SNAPSHOTS.snapshots
    for name in ("caller", "workers"):
        assert len(pong[name]) == 4
        assert min(pong[name]) > 1e6


@needs_ale
@pytest.mark.full
@pytest.mark.parametrize("backend", BackendName)
def test_branches_are_compared_with_replays(backend: BackendName) -> None:
    result = measure_depth(backend, SNAPSHOTS, lambda doing: None)
    assert result is not None
    assert len(result.restored) == len(result.replayed) == SNAPSHOTS.repeats
    report = BranchingReport({}, SNAPSHOTS, backend, depth=[result])
    assert [target.met for target in report.targets] == [result.same, result.ratio >= FACTOR]
    assert show_branching(report) is not None


@pytest.mark.full
def test_saved_runs_are_continued(tmp_path: Path) -> None:
    names = "CartPole-v1", "Taxi-v4"
    data = branching(tmp_path, "run", *names).data
    assert [(each["env"], each["backend"]) for each in data["run"]] == [
        (name, kind) for name in names for kind in ("serial", "process")
    ]
    for each in data["run"]:
        assert each["equal"] == each["operations"] == SNAPSHOTS.operations
        assert each["difference"] == ""


class Forgetful(WanderingEnv):
    """Draws other random numbers after a restore."""

    async def restore(self, state: Any) -> None:
        await super().restore(state)
        self._random = np.random.default_rng(7)


def test_a_copy_that_continues_differently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "source_of", lambda game: Forgetful)
    plan = SnapshotPlan(points=5, batch=3)
    result = exact.measure_exactness(GAMES[-1], plan, BackendName.serial, lambda doing: None)
    assert (result.identical, result.different) == (0, 5)
    assert "observation of step 1" in result.differences[0]
    report = BranchingReport({}, plan, BackendName.serial, exact=[result])
    assert [target.met for target in report.targets] == [False]
