"""``soak``: environments crash, hang and raise at random, and no transition may be lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import progress_bar
from benchmarks.reports.comparison import MIN_WIDTH
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import to_json
from benchmarks.reports.tables import machine_line
from benchmarks.soak.records import Plan, SoakResult
from benchmarks.soak.run import soak_envs

MARKS = {True: Text("met", style="green"), False: Text("missed", style="red")}

EXAMPLES = """Examples:

python -m benchmarks soak

python -m benchmarks soak --seconds 3600 --seed 1 --json result.json

python -m benchmarks soak --seconds 20 --on-fault replay
"""

# Minimum number of faults in a run of the default length, so that the result is meaningful.
ENOUGH = 200


class OnFault(Enum):
    """Values of ``on_fault`` that do not raise."""

    restart = "restart"
    replay = "replay"


@dataclass(frozen=True)
class Requirement:
    """A number that must be exactly ``wanted``, or at least."""

    what: str
    wanted: int
    measured: int
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.wanted if self.at_least else self.measured == self.wanted


def soak(
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Seconds to run; 3600 for an hour.")
    ] = Plan.seconds,
    num_envs: Annotated[int, typer.Option(min=1, help="Number of environments.")] = Plan.num_envs,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Plan.workers,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of environments, actions and faults.")
    ] = Plan.seed,
    on_fault: Annotated[OnFault, typer.Option(help="What agym does on faults.")] = OnFault.restart,
    chance: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Injections per step.", show_default="enough for many"),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Step environments that crash, hang, raise and leak at random, and check every transition.

    Exit code 1 if a transition is lost or duplicated, if an environment does not step again after a
    fault, or if a descriptor or a process is left.
    """
    check_writable(json)
    plan = Plan(seconds, num_envs, workers, seed, on_fault.value, chance)
    with progress_bar(1) as bar, bar.part("soak") as announce, new_runner() as runner:
        result = runner.run(soak_envs(plan, announce))
    requirements = judge_soak(plan, result)
    machine = describe_machine()
    text = to_json(
        {
            "machine": machine,
            "settings": asdict(plan),
            "result": asdict(result),
            "requirements": [{**asdict(each), "met": each.met} for each in requirements],
        }
    )
    deliver(show_soak(plan, result, requirements, machine), text, json)
    if not all(each.met for each in requirements):
        raise typer.Exit(1)


def judge_soak(plan: Plan, result: SoakResult) -> tuple[Requirement, ...]:
    """Compare the result with the requirements."""
    requirements = [
        Requirement("transitions lost", 0, result.lost),
        Requirement("transitions duplicated", 0, result.duplicated),
        Requirement("faults survived, of those injected", result.injected, result.survived),
        Requirement(
            "descriptors open at the end, as before", result.descriptors[0], result.descriptors[-1]
        ),
        Requirement("processes left", 0, result.left),
        Requirement("errors in callbacks of the event loop", 0, len(result.errors)),
    ]
    if plan.on_fault == "replay":
        requirements.append(Requirement("bystanders that were not replayed", 0, result.bystanders))
    if plan.seconds >= Plan.seconds and plan.num_envs >= Plan.num_envs and plan.chance is None:
        requirements.append(Requirement("faults injected", ENOUGH, result.injected, at_least=True))
    return tuple(requirements)


def show_soak(
    plan: Plan,
    result: SoakResult,
    requirements: tuple[Requirement, ...],
    machine: Mapping[str, str],
) -> RenderableType:
    """Return both tables of a run."""
    table = Table(
        title=f"Soak: {plan.num_envs} environments over {plan.workers} worker processes for"
        f" {result.seconds:.0f} s, on_fault={plan.on_fault!r}, seed {plan.seed}",
        caption=machine_line(machine),
        caption_justify="left",
        min_width=MIN_WIDTH,
    )
    table.add_column("what", no_wrap=True)
    table.add_column("measured", justify="right")
    if result.errors:
        table.caption = f"{table.caption}\n\n{result.errors[0]}"
    for row in _rows(result):
        table.add_row(*row)
    verdicts = Table(title="Requirements")
    verdicts.add_column("requirement")
    for name in ("wanted", "measured"):
        verdicts.add_column(name, justify="right")
    verdicts.add_column("")
    for each in requirements:
        wanted = f"{'≥ ' if each.at_least else ''}{each.wanted:,}"
        verdicts.add_row(each.what, wanted, f"{each.measured:,}", MARKS[each.met])
    return Group(table, verdicts)


def _rows(result: SoakResult) -> Iterator[tuple[str, str]]:
    yield "steps", f"{result.steps:,}"
    yield "steps per second", f"{result.steps / result.seconds:,.0f}"
    yield "faults injected", f"{result.injected:,}"
    yield "  by chaos, delays included", _counts(result.injections)
    yield "  by the environments themselves, leaks included", _counts(result.deeds)
    yield "faults survived", f"{result.survived:,}"
    yield "faults reported, one per environment concerned", _counts(result.faults)
    yield "workers replaced", f"{result.restarts:,}"
    yield "renders refused, since the worker was gone", f"{result.refused:,}"
    yield "transitions lost, duplicated", f"{result.lost:,}, {result.duplicated:,}"
    yield "memory slope of this process", f"{_slope(result.memory)} MB/min"
    yield (
        "memory slope of the workers, where environments leak",
        (f"{_slope(result.worker_memory)} MB/min"),
    )
    yield "descriptors before, opened, at the end, closed", ", ".join(map(str, result.descriptors))
    yield "chance of an injection per step", f"{result.chance:.3g}"


def _slope(bytes_per_second: float) -> str:
    return f"{60 * bytes_per_second / 1e6:+.2f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "none"
