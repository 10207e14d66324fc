"""``branching``: whether snapshots are exact, and their cost.

::

    exact    1,000 branch points of each of 12 environments, compared bit for bit
    cost     a snapshot and a restore, next to the simulator's own calls
    depth    branches deep in an episode, against playing it again
    run      whole runs, continued in another process
    memory   of snapshots, while they exist and after they are deleted
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar

import psutil
import typer
from rich.console import Group, RenderableType

from agym.errors import UsageError
from benchmarks.branching.cost import CostRow, cost_table, measure_costs
from benchmarks.branching.depth import DepthResult, depth_table, judge_depth, measure_depth
from benchmarks.branching.envs import GAMES, SIMULATORS
from benchmarks.branching.exact import ExactResult, exact_table, measure_exactness
from benchmarks.branching.memory import (
    MEMORY_GAMES,
    MemoryResult,
    judge_memory,
    measure_memory,
    memory_table,
)
from benchmarks.branching.records import QUICK, BackendName, Game, Part, Plan
from benchmarks.branching.run import RUNS, RunResult, continue_runs, run_table
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.options import Quick
from benchmarks.measuring.processes import others_time
from benchmarks.measuring.progress import Announce, Bar, progress_bar
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict, to_json
from benchmarks.reports.tables import BUSY_CORES, machine_line

Result = TypeVar("Result")

EXAMPLES = """Examples:

python -m benchmarks branching

python -m benchmarks branching --part exact --env CartPole-v1 --points 100

python -m benchmarks branching --part cost --part depth --json result.json

python -m benchmarks branching --quick
"""


@dataclass(frozen=True)
class BranchingReport:
    """A run of the command.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        plan: The sizes of the parts.
        backend: The backend of the branch points.
        exact: Branch points of each environment.
        cost: Costs of calls.
        depth: Branches deep in an episode.
        run: Continued runs.
        memory: Memory of snapshots.
        other_cores: Cores that other programs kept busy during the run.
    """

    machine: Mapping[str, str]
    plan: Plan
    backend: BackendName
    exact: Sequence[ExactResult] = ()
    cost: Sequence[CostRow] = ()
    depth: Sequence[DepthResult] = ()
    run: Sequence[RunResult] = ()
    memory: Sequence[MemoryResult] = ()
    other_cores: float = 0.0

    @property
    def equalities(self) -> tuple[Verdict, ...]:
        """The targets: results that must be equal to the last bit."""
        return (*_judge_equal(self.exact, self.depth, self.run),)

    @property
    def targets(self) -> tuple[Verdict, ...]:
        return (
            *self.equalities,
            *(row.judge() for row in self.cost),
            *judge_depth(self.depth),
            *judge_memory(self.memory),
        )

    def to_json(self) -> str:
        """Return everything, with all slices, as JSON."""
        fields = {**asdict(self), "backend": self.backend.value}
        return to_json({**fields, "targets": [asdict(target) for target in self.targets]})


def branching(
    part: Annotated[
        list[Part] | None, typer.Option(help="Part to measure; repeatable.", show_default="all")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment of the parts that have several; repeatable.", show_default="all"
        ),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(
            min=1, help="Branch points of each environment.", show_default=f"{Plan.points:,}"
        ),
    ] = None,
    backend: Annotated[
        BackendName, typer.Option(help="Backend of the branch points.")
    ] = BackendName.serial,
    quick: Quick = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of environments, actions and branch points.")
    ] = Plan.seed,
    json: JsonFile = None,
) -> None:
    """Measure whether environments continue exactly from snapshots, and the cost of snapshots.

    Exit code 1 if a continuation is different.
    """
    check_writable(json)
    plan = replace(QUICK if quick else Plan(), seed=seed)
    if points is not None:
        plan = replace(plan, points=points)
    report = measure_branching(part or [*Part], plan, backend, _names(env))
    deliver(show_branching(report), report.to_json(), json)
    if any(target.met is False for target in report.equalities):
        raise typer.Exit(1)


def _names(env: Sequence[str] | None) -> Sequence[str]:
    """Return the names of the chosen environments.

    Raises:
        UsageError: There is no such environment.
    """
    known = [*dict.fromkeys(game.name for game in (*GAMES, *SIMULATORS))]
    for name in env or ():
        if name not in known:
            raise UsageError(f"--env {name!r} must be one of {', '.join(known)}")
    return env or known


def measure_branching(
    parts: Sequence[Part], plan: Plan, backend: BackendName, names: Sequence[str]
) -> BranchingReport:
    """Measure all parts, one after the other, with progress on stderr."""

    def chosen(games: Sequence[Game]) -> list[Game]:
        return [game for game in games if game.name in names]

    games = {
        Part.exact: chosen(GAMES), Part.cost: chosen(SIMULATORS), Part.run: chosen(RUNS),
        Part.memory: chosen(MEMORY_GAMES),
    }  # fmt: skip
    games = {part: games[part] if part in parts else [] for part in games}
    depths = [*BackendName] if Part.depth in parts else []
    others, started = _others(), time.monotonic()
    with progress_bar(sum(map(len, games.values())) + len(depths)) as bar:
        report = BranchingReport(
            describe_machine(), plan, backend,
            exact=_measure(
                bar, Part.exact, games[Part.exact],
                lambda game, announce: [measure_exactness(game, plan, backend, announce)],
            ),
            cost=_measure(
                bar, Part.cost, games[Part.cost],
                lambda game, announce: measure_costs(game, plan, announce),
            ),
            depth=_measure(
                bar, Part.depth, depths,
                lambda name, announce: [measure_depth(name, plan, announce)],
            ),
            run=_measure(
                bar, Part.run, games[Part.run],
                lambda game, announce: continue_runs(game, plan, announce),
            ),
            memory=_measure(
                bar, Part.memory, games[Part.memory],
                lambda game, announce: [measure_memory(game, plan, announce)],
            ),
        )  # fmt: skip
    others, elapsed = _others() - others, time.monotonic() - started
    return replace(report, other_cores=max(0.0, others) / elapsed)


def _others() -> float:
    """Return the CPU seconds of other programs so far, without children that have ended."""
    ended = psutil.Process().cpu_times()
    return others_time() - float(ended.children_user + ended.children_system)


def _measure(
    bar: Bar,
    part: Part,
    subjects: Sequence[Any],
    measure: Callable[[Any, Announce], Iterable[Result | None]],
) -> list[Result]:
    """Measure games or backends, each with its name on the bar, but those that are missing."""
    results: list[Result] = []
    for subject in subjects:
        with bar.part(f"{part.value}: {subject.name}") as announce:
            results += [result for result in measure(subject, announce) if result is not None]
    return results


def _judge_equal(
    exact: Sequence[ExactResult], depth: Sequence[DepthResult], run: Sequence[RunResult]
) -> Iterator[Verdict]:
    for each in exact:
        text = f"{each.env}: different branch points"
        measured = None if each.note else each.different
        yield Verdict(text, 0, measured, None if measured is None else measured == 0, "")
    for deep in depth:
        text = f"{deep.backend}: whether steps of branches differ from those after a replay"
        yield Verdict(text, 0, int(not deep.same), deep.same, "")
    for saved in run:
        text = f"{saved.env}, continued on {saved.backend}: operations from the first different on"
        different = saved.operations - saved.equal
        yield Verdict(text, 0, different, different == 0, "")


# ---------------------------------------------------------------- tables


def show_branching(report: BranchingReport) -> RenderableType:
    """Return the tables of all parts that were measured."""
    plan = report.plan
    tables: list[RenderableType] = []
    if report.exact:
        tables.append(exact_table(report.exact))
    if report.cost:
        tables.append(cost_table(report.cost, plan))
    if report.depth:
        tables.append(depth_table(report.depth, plan))
    if report.run:
        tables.append(run_table(report.run, plan))
    if report.memory:
        tables.append(memory_table(report.memory, plan))
    foot = [machine_line(report.machine)]
    if report.other_cores > BUSY_CORES:
        foot.append(f"Other programs kept {report.other_cores:.1f} cores busy during the run.")
    return Group(*tables, *foot)
