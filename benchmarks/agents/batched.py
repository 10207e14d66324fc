"""``batched``: the cost of a batched policy, lost answers, and a comparison with TorchRL.

::

    cost      64 coroutines that only ask, next to the function alone
    cancel    100,000 requests, half of them cancelled at random moments
    torchrl   the collectors of TorchRL's own benchmark, with its mock environment and its policy
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.table import Table

import agym
from benchmarks.agents.torchrl_systems import SYSTEMS, load_peer
from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.options import Quick
from benchmarks.measuring.progress import Announce, progress_bar
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Row, Verdict, to_json
from benchmarks.reports.tables import machine_line, verdict_table

ASKERS = 64
MAX_MICROSECONDS = 50.0
OURS = "agym"


class Part(Enum):
    """The parts of the command."""

    cost = "cost"
    cancel = "cancel"
    torchrl = "torchrl"


@dataclass(frozen=True)
class Plan:
    """The size of each part.

    Attributes:
        rounds: Requests of each asker per slice.
        requests: Requests of the part with cancellation.
        repeats: Slices of each system.
        envs: Numbers of environments of the comparison with TorchRL.
        frames: Frames per environment and slice there, after a warm-up.
    """

    rounds: int = 500
    requests: int = 100_000
    repeats: int = 9
    envs: Sequence[int] = (4, 64)
    frames: int = 128


QUICK = Plan(rounds=20, requests=2_000, repeats=1, envs=(4,), frames=16)


@dataclass(frozen=True)
class Drill:
    """The results of requests under cancellation."""

    requests: int
    answered: int
    cancelled: int
    crossed: int
    lost: int


@dataclass(frozen=True)
class BatchedReport:
    """A run of the command.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        plan: The sizes of the parts.
        cost: Microseconds per request with the policy and without, one per slice.
        drill: The requests under cancellation, ``None`` if there were none.
        frames: Frames per second of each system, by the number of environments.
        notes: The parts that were left out, with reasons.
    """

    machine: Mapping[str, str]
    plan: Plan
    cost: Mapping[str, Sequence[float]] = field(default_factory=dict)
    drill: Drill | None = None
    frames: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def targets(self) -> Sequence[Verdict]:
        return (*self._judge(),)

    def _judge(self) -> Iterator[Verdict]:
        if self.cost:
            alone = self.cost["function alone"]
            for name in ("plain function", "coroutine function"):
                added = median(a - b for a, b in zip(self.cost[name], alone, strict=True))
                text = f"{name}: added per request at {ASKERS} coroutines"
                yield Verdict.on_limit(text, MAX_MICROSECONDS, added, "µs")
        if self.drill is not None:
            for name in ("lost", "crossed"):
                count = getattr(self.drill, name)
                text = f"answers {name}, of {self.drill.requests:,} requests"
                yield Verdict(text, 0, count, count == 0, "")
        for num_envs, rows in self.frames.items():
            ours = next(row for row in rows if row.system == OURS)
            for row in rows:
                if not row.system.startswith(OURS):
                    pairs = zip(ours.rates, row.rates, strict=True)
                    ratio = median(a / b for a, b in pairs)
                    text = f"{num_envs} environments: frames per second, against {row.system}"
                    yield Verdict.on_ratio(text, 1.0, ratio)

    def to_json(self) -> str:
        """Return everything, with all slices, as JSON."""
        return to_json({**asdict(self), "targets": [asdict(target) for target in self.targets]})


EXAMPLES = """Examples:

python -m benchmarks batched

python -m benchmarks batched --part cost --part cancel

python -m benchmarks batched --part torchrl --envs 4

python -m benchmarks batched --quick --json result.json
"""


def batched(
    part: Annotated[
        list[Part] | None, typer.Option(help="Part to measure; repeatable.", show_default="all")
    ] = None,
    envs: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Number of environments of the part torchrl; repeatable.",
            show_default="4, 64",
        ),
    ] = None,
    quick: Quick = False,
    json: JsonFile = None,
) -> None:
    """Measure batched policies: their cost, cancelled requests, and TorchRL's collectors.

    Exit code 1 if a target was missed.
    """  # fmt: skip
    check_writable(json)
    plan = QUICK if quick else Plan()
    if envs:
        plan = replace(plan, envs=tuple(envs))
    report = measure_batched(part or [*Part], plan)
    deliver(show_batched(report), report.to_json(), json)
    if not quick and any(target.met is False for target in report.targets):
        raise typer.Exit(1)


def measure_batched(parts: Sequence[Part], plan: Plan) -> BatchedReport:
    """Measure the parts, one after the other, with progress on stderr."""
    cost: Mapping[str, Sequence[float]] = {}
    drill, notes = None, []
    frames: dict[int, Sequence[Row]] = {}
    with progress_bar(len(parts)) as bar:
        if Part.cost in parts:
            with bar.part("cost") as announce:
                cost = measure_cost(plan, announce)
        if Part.cancel in parts:
            with bar.part("cancel") as announce:
                announce(f"{plan.requests:,} requests")
                drill = drill_cancellation(plan.requests)
        if Part.torchrl in parts:
            with bar.part("torchrl") as announce:
                peer = load_peer()
                if isinstance(peer, str):
                    notes.append(peer)
                else:
                    for num_envs in plan.envs:
                        frames[num_envs] = measure_frames(peer, num_envs, plan, announce)
    return BatchedReport(describe_machine(), plan, cost, drill, frames, notes)


# ---------------------------------------------------------------- cost


def act(observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return one number for each observation."""
    return observations[:, 0]


async def act_on_loop(observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Do the same as a coroutine function."""
    return act(observations)


def measure_cost(plan: Plan, announce: Announce) -> Mapping[str, Sequence[float]]:
    """Return microseconds per request: asked by 64 coroutines, and of the function alone."""
    observation = np.zeros(4, np.float32)

    async def asker(policy: agym.BatchedPolicy) -> None:
        for _ in range(plan.rounds):
            await policy(observation)

    async def ask(function: Callable[[Any], Any]) -> None:
        async with agym.batched(function, ASKERS) as policy:
            await asyncio.gather(*(asker(policy) for _ in range(ASKERS)))

    def alone() -> None:
        for _ in range(plan.rounds):
            [*act(np.stack([observation] * ASKERS))]

    with new_runner() as runner:
        systems: dict[str, Callable[[], None]] = {
            "plain function": lambda: runner.run(ask(act)),
            "coroutine function": lambda: runner.run(ask(act_on_loop)),
            "function alone": alone,
        }
        times: dict[str, list[float]] = {name: [] for name in systems}
        for run in systems.values():
            run()  # the first calls are not measured
        for turn, name in in_turns([*systems], plan.repeats):
            announce(f"{turn + 1}/{plan.repeats} {name}")
            started = time.perf_counter()
            systems[name]()
            seconds = time.perf_counter() - started
            times[name].append(1e6 * seconds / (plan.rounds * ASKERS))
    return times


# ---------------------------------------------------------------- cancellation


def drill_cancellation(requests: int, seed: int = 0) -> Drill:
    """Ask, cancel half of the requests at random moments, and count what came back."""
    rng = random.Random(seed)
    found = {"answered": 0, "cancelled": 0, "crossed": 0}

    async def echo(questions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        await asyncio.sleep(rng.random() * 0.001)
        return questions

    def echo_in_thread(questions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return questions

    async def asker(policy: agym.BatchedPolicy, first: int, count: int) -> None:
        for question in range(first, first + count):
            asking = asyncio.ensure_future(policy(question))
            if rng.random() < 0.5:
                asyncio.get_running_loop().call_later(rng.random() * 0.002, asking.cancel)
            try:
                found["crossed"] += int(await asking) != question
                found["answered"] += 1
            except asyncio.CancelledError:
                found["cancelled"] += 1

    async def drill(function: Callable[[Any], Any], count: int, first: int) -> None:
        each = count // ASKERS
        shares = [each + (k < count % ASKERS) for k in range(ASKERS)]
        async with agym.batched(function, ASKERS // 2, workers=2) as policy:
            await asyncio.gather(
                *(asker(policy, first + sum(shares[:k]), share) for k, share in enumerate(shares))
            )

    with new_runner() as runner:
        runner.run(drill(echo, requests // 2, 0))
        runner.run(drill(echo_in_thread, requests - requests // 2, requests // 2))
    lost = requests - found["answered"] - found["cancelled"]
    return Drill(requests, lost=lost, **found)


# ---------------------------------------------------------------- beside TorchRL


def measure_frames(peer: Any, num_envs: int, plan: Plan, announce: Announce) -> Sequence[Row]:
    """Return frames per second of all systems, measured in turns."""
    rates: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    # The peer's processes, one for each environment, take a minute or more to start.
    repeats = min(plan.repeats, 5 if num_envs < 32 else 3)
    for turn, name in in_turns([*SYSTEMS], repeats):
        announce(f"{num_envs} environments, {turn + 1}/{repeats}: {name}")
        rates[name].append(SYSTEMS[name](peer, num_envs, plan.frames))
    return [Row(name, tuple(values)) for name, values in rates.items()]


# ---------------------------------------------------------------- tables


def show_batched(report: BatchedReport) -> RenderableType:
    """Return the tables of what was measured."""
    tables: list[RenderableType] = []
    if report.cost:
        table = Table(title=f"A request, {ASKERS} coroutines, in turns")
        table.add_column("system")
        table.add_column("µs per request", justify="right")
        for name, values in report.cost.items():
            table.add_row(name, f"{median(values):.1f}")
        tables.append(table)
    for num_envs, rows in report.frames.items():
        table = Table(title=f"TorchRL's mock benchmark, {num_envs} environments, in turns")
        table.add_column("system")
        for name in ("frames/s", "spread"):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(row.system, f"{row.rate:,.0f}", f"{row.spread:.0%}")
        tables.append(table)
    if report.drill is not None:
        drill = report.drill
        tables.append(
            f"{drill.requests:,} requests: {drill.answered:,} answered, {drill.cancelled:,}"
            f" cancelled, {drill.lost} lost, {drill.crossed} crossed"
        )
    return Group(
        *tables, verdict_table(report.targets), *report.notes, machine_line(report.machine)
    )
