"""``training``: whole PPO training loops, whose network needs the same cores as the environments.

Proximal policy optimization plays a rollout, in which its network acts between two steps, and then
learns from it. A runner can step environments on several cores, and let the network act for some
environments while others step. The ideal is a program that keeps all cores busy all the time::

    ideal = E / cores + L     E: seconds of the steps in a plain loop
                              L: seconds of everything else

Each loop runs in a separate process, because torch reads environment variables for its threads when
it is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from multiprocessing import get_context
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Group

from agym.core._system.cpus import available_cores
from agym.core._system.extras import how_to_get, installed
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import Announce, progress_bar
from benchmarks.reports.comparison import Compared, Comparison, show_comparison
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict, to_json
from benchmarks.reports.tables import verdict_table
from benchmarks.waiting.training_systems import (
    PEERS,
    TRAINERS,
    AgymTrainer,
    OneGroupTrainer,
    SyncTrainer,
    TrainerSet,
    TrainingWorkload,
)

EXAMPLES = """Examples:

python -m benchmarks training

python -m benchmarks training halfcheetah --threads 2 --waiting passive
"""

LOOPS = {
    "pong": TrainingWorkload("ALE/Pong-v5", 8, network="CleanRL's network", small=False),
    "humanoidstandup": TrainingWorkload("HumanoidStandup-v5", 16),
    "halfcheetah": TrainingWorkload("HalfCheetah-v5", 16),
}

# The documentation's advice for networks on CPUs: one group.
JUDGED = AgymTrainer.name, OneGroupTrainer.name
MIN_OF_BEST_PEER, MIN_OF_IDEAL = 1.0, 0.9

WAIT_POLICY = "OMP_WAIT_POLICY"


class Waiting(Enum):
    """How torch's threads wait for their next work.

    ``passive``: they sleep. ``unset``, which is torch's default: they spin for some milliseconds.
    """

    passive = "passive"
    unset = "unset"


@dataclass(frozen=True)
class TrainingReport:
    """A run of the command: a comparison for each loop."""

    loops: tuple[Comparison, ...]

    def to_json(self) -> str:
        """Return everything, with all repetitions, as JSON."""
        return to_json(asdict(self))


def training(
    loops: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(LOOPS)}. By default all.")
    ] = None,
    waiting: Annotated[
        Waiting, typer.Option(help=f"{WAIT_POLICY}: torch's idle threads sleep, or spin.")
    ] = Waiting.unset,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads of torch. By default one for a small network, else one per core."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Iterations of each runner.")] = 15,
    json: JsonFile = None,
) -> None:
    """Measure whole training loops: PPO with several runners, in turns.

    pong: CleanRL's network on 8 Pongs, where learning takes most of the time. humanoidstandup: a
    small network on 16 HumanoidStandups, where stepping does. halfcheetah: the same network on 16
    HalfCheetahs, where each takes about half.
    """
    check_writable(json)
    chosen = loops or [*LOOPS]
    if unknown := {*chosen} - {*LOOPS}:
        raise typer.BadParameter(f"{', '.join(unknown)}: use some of {', '.join(LOOPS)}")
    found = []
    with progress_bar(len(chosen)) as bar:
        for name in chosen:
            loop = LOOPS[name]
            settings = {
                "waiting": waiting.value,
                "threads": threads or (1 if loop.small else available_cores()),
                "repeats": repeats,
            }
            with bar.part(name) as announce:
                found.append(_compare(loop, settings, announce))
    report = TrainingReport(tuple(found))
    verdicts = [verdict for comparison in found for verdict in comparison.targets]
    tables = [*map(show_comparison, found), *([verdict_table(verdicts)] if verdicts else [])]
    deliver(Group(*tables), report.to_json(), json)


def _compare(loop: TrainingWorkload, settings: Mapping[str, Any], announce: Announce) -> Comparison:
    missing = loop.missing() or (None if installed("torch") else how_to_get("torch", "sb3"))
    rows: tuple[Compared, ...] = ()
    if missing is None:
        with _variable(settings["waiting"]):
            rows = measure_training(loop, settings["threads"], settings["repeats"], announce)
    return Comparison(
        f"PPO on {loop.name}: {settings['repeats']} iterations of {loop.steps} steps in turns",
        "steps/s",
        describe_machine(),
        settings,
        rows,
        () if missing is None else (f"{loop.name}: {missing}",),
        (*_judge(loop, rows),),
    )


def measure_training(
    loop: TrainingWorkload, threads: int, repeats: int, announce: Announce
) -> tuple[Compared, ...]:
    """Measure all runners in turns, in steps per second."""
    announce("making environments")
    size = loop.steps * loop.num_envs
    rates: dict[str, list[float]] = {kind.name: [] for kind in TRAINERS}
    ideals = []
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        process.submit(_begin, loop, threads).result()
        try:
            for turn, name in in_turns([*rates], repeats):
                announce(f"{turn + 1}/{repeats} {name}")
                seconds, stepping = process.submit(_iterate, name).result()
                rates[name].append(size / seconds)
                if name == SyncTrainer.name:
                    ideals.append(size / (seconds - stepping + stepping / available_cores()))
        finally:
            process.submit(_end).result()
    return tuple(Compared(name, tuple(rates[name]), tuple(ideals)) for name in rates)


# What runs in the process of a loop.
_training: list[TrainerSet] = []


def _begin(loop: TrainingWorkload, threads: int) -> None:
    _training.append(TrainerSet(loop, threads))


def _iterate(name: str) -> tuple[float, float]:
    return _training[0].iterate(name)


def _end() -> None:
    while _training:
        _training.pop().close()


@contextmanager
def _variable(waiting: str) -> Iterator[None]:
    """Set the variable for processes that start in this block, or leave it out."""
    before = os.environ.pop(WAIT_POLICY, None)
    if waiting != Waiting.unset.value:
        os.environ[WAIT_POLICY] = waiting
    try:
        yield
    finally:
        os.environ.pop(WAIT_POLICY, None)
        if before is not None:
            os.environ[WAIT_POLICY] = before


def _judge(loop: TrainingWorkload, rows: Sequence[Compared]) -> Iterator[Verdict]:
    by_name = {row.name: row for row in rows}
    for name in JUDGED if rows else ():
        ours = by_name[name]
        best = max((by_name[peer] for peer in PEERS), key=lambda row: row.value)
        ratio = median(a / b for a, b in zip(ours.values, best.values, strict=True))
        yield Verdict.on_ratio(f"{loop.name}: {name} against {best.name}", MIN_OF_BEST_PEER, ratio)
        yield Verdict.on_ratio(f"{loop.name}: {name} against the ideal", MIN_OF_IDEAL, ours.ratio)
