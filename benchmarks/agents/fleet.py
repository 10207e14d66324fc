"""``fleet``: how much of the reset time spares hide, and what hedging does to the slowest steps.

::

    spares   episodes whose resets take a tenth of the time, beside resets that take none
    hedge    steps of which one in a hundred takes ten times as long
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial
from statistics import median
from typing import Annotated, Any

import gymnasium
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

# The share of the reset time that spares have to hide, and how many times the median of a hedged
# step its 99th percentile may be.
HIDDEN, TAIL = 0.9, 1.3

FREE, PLAIN, SPARES = "resets that take no time", "without spares", "with spares"
OFF, AT_ONCE, LATE = "no hedge", "hedge=0", "hedge=1.5 × the median"


class Part(Enum):
    """The parts of the command."""

    spares = "spares"
    hedge = "hedge"


@dataclass(frozen=True)
class Plan:
    """How much of each part is measured.

    Attributes:
        num_envs: Number of environments.
        step_seconds: What a step of a coroutine environment takes.
        reset_seconds: What its reset takes.
        slower: How many times as long both take for environments with threads of their own.
        length: Steps of an episode.
        episodes: Episodes of each system.
        call_seconds: What most steps of the second part take.
        chance: The share of its slow steps.
        times: How many times as long they take.
        steps: Its steps per environment and slice.
        repeats: Its slices.
    """

    num_envs: int = 8
    step_seconds: float = 2e-3
    reset_seconds: float = 10e-3
    slower: float = 5.0
    length: int = 50
    episodes: int = 30
    call_seconds: float = 10e-3
    chance: float = 0.01
    times: float = 10.0
    steps: int = 100
    repeats: int = 12


QUICK = Plan(num_envs=4, slower=1.0, length=5, episodes=2, steps=5, repeats=1)


class Waits:
    """A coroutine environment whose steps and resets wait."""

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, step_seconds: float, reset_seconds: float, length: int) -> None:
        self._step_seconds, self._reset_seconds = step_seconds, reset_seconds
        self._length = length
        self._now = 0
        self._observation = np.zeros(4, np.float32)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._reset_seconds:
            await asyncio.sleep(self._reset_seconds)
        self._now = 0
        return self._observation, {}

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(self._step_seconds)
        self._now += 1
        return self._observation, 0.0, False, self._now >= self._length, {}

    async def close(self) -> None:
        """Do nothing."""


class Sleeps(gymnasium.Env[Any, Any]):
    """An environment that does the same, in the thread that calls it."""

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def __init__(self, step_seconds: float, reset_seconds: float, length: int) -> None:
        self._step_seconds, self._reset_seconds = step_seconds, reset_seconds
        self._length = length
        self._now = 0
        self._observation = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._reset_seconds:
            time.sleep(self._reset_seconds)
        self._now = 0
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._step_seconds)
        self._now += 1
        return self._observation, 0.0, False, self._now >= self._length, {}


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


# Where environments have spares, and what they are.
PLACES: Mapping[str, tuple[type[Waits | Sleeps], Mapping[str, Any]]] = {
    "asyncio": (Waits, {"backend": "asyncio"}),
    "process, coroutines": (Waits, {"backend": "process", "workers": 2}),
    "process": (Sleeps, {"backend": "process", "workers": 2}),
    "thread": (Sleeps, {"backend": "thread"}),
}


@dataclass(frozen=True)
class FleetReport:
    """A run of the command.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        plan: What was measured.
        spares: By backend and system, the median seconds of each step of an episode, and of the
            one that resets.
        hedge: By system, the seconds of each step of each slice.
    """

    machine: Mapping[str, str]
    plan: Plan
    spares: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    hedge: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)

    @property
    def targets(self) -> Sequence[Verdict]:
        return (*self._judge(),)

    def _judge(self) -> Iterator[Verdict]:
        for place, seconds in self.spares.items():
            text = f"{place}: share of the reset time that spares hide"
            yield Verdict.on_ratio(text, HIDDEN, hidden(seconds))
        if self.hedge:
            text = f"{AT_ONCE}: 99th percentile of a step, beside the median"
            ratio = tail(self.hedge[AT_ONCE])
            yield Verdict.on_ratio(text, TAIL, ratio, at_most=True)

    def to_json(self) -> str:
        """Return everything, with all slices, as JSON."""
        return to_json({**asdict(self), "targets": [asdict(target) for target in self.targets]})


def hidden(seconds: Mapping[str, Sequence[float]]) -> float:
    """Return the share of the time of resets that spares save."""
    free, plain, spares = (sum(seconds[name]) for name in (FREE, PLAIN, SPARES))
    return (plain - spares) / (plain - free)


def tail(slices: Sequence[Sequence[float]]) -> float:
    """Return the 99th percentile of steps beside their median: the median over slices."""
    return median(float(np.quantile(each, 0.99) / np.median(each)) for each in slices)


EXAMPLES = """Examples:

python -m benchmarks fleet

python -m benchmarks fleet --part spares --json result.json

python -m benchmarks fleet --quick
"""


def fleet(
    part: Annotated[
        list[Part] | None, typer.Option(help="Part to measure; repeatable.", show_default="all")
    ] = None,
    quick: Quick = False,
    json: JsonFile = None,
) -> None:
    """Measure spares that are reset ahead, and hedged steps.

    Exit code 1 if a target was missed.
    """
    check_writable(json)
    report = measure_fleet(part or [*Part], QUICK if quick else Plan())
    deliver(show_fleet(report), report.to_json(), json)
    if not quick and any(target.met is False for target in report.targets):
        raise typer.Exit(1)


def measure_fleet(parts: Sequence[Part], plan: Plan) -> FleetReport:
    """Measure the parts, one after the other, with progress on stderr."""
    spares: dict[str, Mapping[str, Sequence[float]]] = {}
    hedge: Mapping[str, Sequence[Sequence[float]]] = {}
    with progress_bar((Part.spares in parts) * len(PLACES) + (Part.hedge in parts)) as bar:
        for place in PLACES if Part.spares in parts else ():
            with bar.part(f"spares: {place}") as announce:
                spares[place] = measure_spares(place, plan, announce)
        if Part.hedge in parts:
            with bar.part("hedge") as announce, new_runner() as runner:
                hedge = runner.run(measure_hedge(plan, announce))
    return FleetReport(describe_machine(), plan, spares, hedge)


# ---------------------------------------------------------------- spares


def measure_spares(place: str, plan: Plan, announce: Announce) -> Mapping[str, Sequence[float]]:
    """Return the median seconds of each step of an episode, for systems that take turns.

    All environments step together, and all episodes end in the same step. Medians by step, since
    what disturbs a step now and then takes longer than all resets.
    """
    env, options = PLACES[place]
    num_envs, slower = (plan.num_envs, 1.0) if env is Waits else (2, plan.slower)
    seconds: dict[str, list[list[float]]] = {FREE: [], PLAIN: [], SPARES: []}
    with ExitStack() as stack:
        systems = {}
        for name in seconds:
            reset_seconds = 0.0 if name == FREE else plan.reset_seconds * slower
            make = partial(env, plan.step_seconds * slower, reset_seconds, plan.length)
            fleet = agym.Fleet(spares=num_envs) if name == SPARES else None
            envs = agym.make(
                make, num_envs, autoreset="next_step", output="array", fleet=fleet, **options
            )
            systems[name] = stack.enter_context(envs)
            envs.reset(seed=0)
            _play(envs, plan.length)  # what is done for the first time is not measured
        for turn, name in in_turns([*systems], plan.episodes):
            announce(f"{turn + 1}/{plan.episodes} {name}")
            seconds[name].append(_play(systems[name], plan.length))
    return {name: np.median(each, axis=0).tolist() for name, each in seconds.items()}


def _play(envs: agym.Envs, length: int) -> list[float]:
    """Play all episodes to the end, and begin the next ones; return the seconds of each step."""
    actions = [0] * len(envs)
    seconds = []
    for _ in range(length + 1):
        begun = time.perf_counter()
        envs.step(actions)
        seconds.append(time.perf_counter() - begun)
    return seconds


# ---------------------------------------------------------------- hedge


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


# ---------------------------------------------------------------- tables


def show_fleet(report: FleetReport) -> RenderableType:
    """Return the tables of what was measured."""
    plan = report.plan
    tables: list[RenderableType] = []
    if report.spares:
        table = Table(
            title=f"An episode of {plan.length} steps of {1e3 * plan.step_seconds:g} ms,"
            f" with a reset of {1e3 * plan.reset_seconds:g} ms, in threads {plan.slower:g} times"
            " as long; milliseconds, in turns"
        )
        table.add_column("backend")
        for name in (FREE, PLAIN, SPARES):
            table.add_column(name, justify="right")
        for place, systems in report.spares.items():
            cells = (f"{1e3 * sum(systems[name]):.1f}" for name in (FREE, PLAIN, SPARES))
            table.add_row(place, *cells)
        tables.append(table)
    if report.hedge:
        table = Table(
            title=f"Steps of {1e3 * plan.call_seconds:g} ms, {plan.chance:.0%} of them"
            f" {plan.times:g} times as long; milliseconds, in turns"
        )
        table.add_column("system")
        # Just as many steps are slow as the 99th percentile leaves out: the one above tells more.
        for name in ("median", "99th percentile", "ratio", "99.5th, all slices"):
            table.add_column(name, justify="right")
        for name, slices in report.hedge.items():
            middle, late = (
                median(1e3 * np.quantile(each, q) for each in slices) for q in (0.5, 0.99)
            )
            latest = 1e3 * np.quantile([one for each in slices for one in each], 0.995)
            table.add_row(
                name, f"{middle:.1f}", f"{late:.1f}", f"{tail(slices):.2f}", f"{latest:.1f}"
            )
        tables.append(table)
    return Group(*tables, verdict_table(report.targets), machine_line(report.machine))
