"""``fleet``: what hedging does to slow steps: one in a hundred takes ten times as long."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.table import Table

import agym
from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.options import Quick
from benchmarks.measuring.progress import Announce, progress_bar
from benchmarks.measuring.waiting_envs import ACTIONS, OBSERVATIONS
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict, to_json
from benchmarks.reports.tables import machine_line, verdict_table

# How many times the median of a hedged step its 99th percentile may be.
TAIL = 1.3

OFF, AT_ONCE, LATE = "no hedge", "hedge=0", "hedge=1.5 × the median"


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        num_envs: Number of environments.
        call_seconds: What most steps take.
        chance: The share of slow steps.
        times: How many times as long they take.
        steps: Steps per environment and slice.
        repeats: Slices.
    """

    num_envs: int = 8
    call_seconds: float = 10e-3
    chance: float = 0.01
    times: float = 10.0
    steps: int = 100
    repeats: int = 12


QUICK = Plan(num_envs=4, steps=5, repeats=1)


class Uneven:
    """A coroutine environment whose steps are a function of the action; few of them are slow."""

    idempotent = True
    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, seconds: float, chance: float, times: float) -> None:
        self._seconds, self._chance, self._times = seconds, chance, times
        self._random = random.Random()
        self._observation = np.zeros(4, np.float32)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self._observation, {}

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        slow = self._random.random() < self._chance
        await asyncio.sleep(self._seconds * (self._times if slow else 1.0))
        return self._observation, 0.0, False, False, {}

    async def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class FleetReport:
    """A run of the command.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        plan: What was measured.
        hedge: By system, the seconds of each step of each slice.
    """

    machine: Mapping[str, str]
    plan: Plan
    hedge: Mapping[str, Sequence[Sequence[float]]]

    @property
    def targets(self) -> Sequence[Verdict]:
        text = f"{AT_ONCE}: 99th percentile of a step, beside the median"
        return (Verdict.on_ratio(text, TAIL, tail(self.hedge[AT_ONCE]), at_most=True),)

    def to_json(self) -> str:
        """Return everything, with all slices, as JSON."""
        return to_json({**asdict(self), "targets": [asdict(target) for target in self.targets]})


def tail(slices: Sequence[Sequence[float]]) -> float:
    """Return the 99th percentile of steps beside their median: the median over slices."""
    return median(float(np.quantile(each, 0.99) / np.median(each)) for each in slices)


EXAMPLES = """Examples:

python -m benchmarks fleet

python -m benchmarks fleet --json result.json

python -m benchmarks fleet --quick
"""


def fleet(quick: Quick = False, json: JsonFile = None) -> None:
    """Measure hedged steps.

    Exit code 1 if a target was missed.
    """
    check_writable(json)
    report = measure_fleet(QUICK if quick else Plan())
    deliver(show_fleet(report), report.to_json(), json)
    if not quick and any(target.met is False for target in report.targets):
        raise typer.Exit(1)


def measure_fleet(plan: Plan) -> FleetReport:
    """Measure, with progress on stderr."""
    with progress_bar(1) as bar, bar.part("hedge") as announce, new_runner() as runner:
        hedge = runner.run(measure_hedge(plan, announce))
    return FleetReport(describe_machine(), plan, hedge)


async def measure_hedge(plan: Plan, announce: Announce) -> Mapping[str, Sequence[Sequence[float]]]:
    """Return the seconds of each step of each system, one coroutine per environment."""
    delays = {OFF: None, AT_ONCE: 0.0, LATE: 1.5 * plan.call_seconds}
    seconds: dict[str, list[list[float]]] = {name: [] for name in delays}
    make = partial(Uneven, plan.call_seconds, plan.chance, plan.times)
    for turn, name in in_turns([*delays], plan.repeats):
        announce(f"{turn + 1}/{plan.repeats} {name}")
        fleet = agym.Fleet(hedge=delays[name])
        async with agym.make_async(make, plan.num_envs, backend="asyncio", fleet=fleet) as envs:
            await envs.reset()
            slices = await asyncio.gather(*(_step(handle, plan.steps) for handle in envs))
            seconds[name].append([one for each in slices for one in each])
    return seconds


async def _step(handle: agym.AsyncEnvHandle, steps: int) -> list[float]:
    seconds = []
    for _ in range(steps):
        begun = time.perf_counter()
        await handle.step(0)
        seconds.append(time.perf_counter() - begun)
    return seconds


def show_fleet(report: FleetReport) -> RenderableType:
    """Return the tables of what was measured."""
    plan = report.plan
    table = Table(
        title=f"Steps of {1e3 * plan.call_seconds:g} ms, {plan.chance:.0%} of them"
        f" {plan.times:g} times as long; milliseconds, in turns"
    )
    table.add_column("system")
    # Just as many steps are slow as the 99th percentile leaves out: the one above tells more.
    for name in ("median", "99th percentile", "ratio", "99.5th, all slices"):
        table.add_column(name, justify="right")
    for name, slices in report.hedge.items():
        middle, late = (median(1e3 * np.quantile(each, q) for each in slices) for q in (0.5, 0.99))
        latest = 1e3 * np.quantile([one for each in slices for one in each], 0.995)
        table.add_row(name, f"{middle:.1f}", f"{late:.1f}", f"{tail(slices):.2f}", f"{latest:.1f}")
    return Group(table, verdict_table(report.targets), machine_line(report.machine))
