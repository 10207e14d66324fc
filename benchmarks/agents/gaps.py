"""``gaps``: how long an event loop is blocked while environments compute.

::

    the loop   . . . . .                 . . . .     a heartbeat every millisecond
    gap                |<-- longest -->|             the time between two of them

64 coroutines step one environment each; the steps compute. In worker processes, they do not block
the loop; on the loop itself, they do. All systems take turns.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.table import Table

import agym
from benchmarks.measuring.computing_envs import BusyEnv, turns_for
from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.options import Quick
from benchmarks.measuring.processes import others_time
from benchmarks.measuring.progress import Announce, progress_bar
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict, to_json
from benchmarks.reports.tables import BUSY_CORES, machine_line, verdict_table

EXAMPLES = """Examples:

python -m benchmarks gaps

python -m benchmarks gaps --step 5 --seconds 5 --json result.json

python -m benchmarks gaps --quick
"""

LIMIT_MS = 5.0
NICE = 5
BEAT_SECONDS = 0.001

# A coroutine that steps one environment once.
Stepper = Callable[[], Awaitable[object]]


class AsyncBusyEnv:
    """The coroutine environment that computes as :class:`BusyEnv` does, without an await."""

    observation_space = BusyEnv.observation_space
    action_space = BusyEnv.action_space

    def __init__(self, turns: int) -> None:
        self._env = BusyEnv(turns)

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._env.reset(seed=seed, options=options)

    async def step(self, action: int) -> Any:
        return self._env.step(action)


def nice_env(turns: int) -> BusyEnv:
    """Lower the priority of the worker that makes the environment, in favour of the loop."""
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    return BusyEnv(turns)


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Attributes:
        num_envs: Number of environments.
        step: Milliseconds that a step computes.
        seconds: Length of a slice.
        repeats: Slices of each system.
    """

    num_envs: int = 64
    step: float = 1.0
    seconds: float = 3.0
    repeats: int = 5


@dataclass
class System:
    """A way to run the environments.

    Attributes:
        name: Its name.
        env: The kind of environments.
        backend: The backend; ``None`` to call the environments on the loop, without agym.
        aim: Whether the limit applies.
    """

    name: str
    env: Callable[[int], Any]
    backend: Literal["process", "asyncio"] | None
    aim: bool = False


SYSTEMS = (
    System("Gymnasium, backend='process'", BusyEnv, "process", aim=True),
    System("coroutines, backend='process'", AsyncBusyEnv, "process", aim=True),
    System("Gymnasium, workers at nice 5", nice_env, "process"),
    System("coroutines, backend='asyncio'", AsyncBusyEnv, "asyncio"),
    System("Gymnasium, called on the loop", BusyEnv, None),
)


@dataclass(frozen=True)
class Gaps:
    """The gaps of a system, in milliseconds.

    Attributes:
        name: The system.
        steps: Steps per second of all environments.
        p50: Median of the gaps.
        p99: 99th percentile, for each slice.
        longest: The longest, for each slice.
        all_p99: 99th percentile of all slices together.
        aim: Whether the limit applies.
    """

    name: str
    steps: float
    p50: float
    p99: Sequence[float]
    longest: Sequence[float]
    all_p99: float
    aim: bool

    def judge(self) -> Verdict:
        target = f"{self.name}: a gap of the loop, 99th percentile"
        return Verdict.on_limit(target, LIMIT_MS, self.all_p99, "ms")


@dataclass
class Heartbeat:
    """Runs on a loop once per millisecond, and notes the time between two runs."""

    loop: asyncio.AbstractEventLoop
    gaps: list[float] = field(default_factory=list)
    _timer: asyncio.TimerHandle | None = None
    _last: float = 0.0

    def __enter__(self) -> Heartbeat:
        self._last = time.perf_counter()
        self._timer = self.loop.call_later(BEAT_SECONDS, self._beat)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self.gaps.append(time.perf_counter() - self._last)  # one that has not ended

    def _beat(self) -> None:
        now = time.perf_counter()
        self.gaps.append(now - self._last)
        self._last = now
        self._timer = self.loop.call_later(BEAT_SECONDS, self._beat)


@dataclass(frozen=True)
class GapsReport:
    """A run of the command.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        plan: What was measured.
        rows: The gaps of each system.
        other_cores: Cores that other programs kept busy during the run.
    """

    machine: Mapping[str, str]
    plan: Plan
    rows: Sequence[Gaps]
    other_cores: float

    @property
    def targets(self) -> tuple[Verdict, ...]:
        return tuple(row.judge() for row in self.rows if row.aim)

    def to_json(self) -> str:
        """Return everything as JSON."""
        return to_json({**asdict(self), "targets": [asdict(target) for target in self.targets]})


def gaps(
    envs: Annotated[int, typer.Option(min=1, help="Number of environments.")] = Plan.num_envs,
    step: Annotated[
        float, typer.Option(min=0.01, help="Milliseconds that a step computes.")
    ] = Plan.step,
    seconds: Annotated[
        float, typer.Option(min=0.05, help="Seconds of a system per repetition.")
    ] = Plan.seconds,
    repeats: Annotated[int, typer.Option(min=1, help="Number of repetitions.")] = Plan.repeats,
    quick: Quick = False,
    json: JsonFile = None,
) -> None:
    """Measure how long an event loop is blocked while environments compute.

    Exit code 1 if a limit is exceeded; with --quick, there are no limits.
    """  # fmt: skip
    check_writable(json)
    plan = Plan(envs, step, seconds, repeats)
    if quick:
        plan = replace(plan, num_envs=min(envs, 8), seconds=0.2, repeats=1)
    others, started = others_time(), time.monotonic()
    with progress_bar(1) as bar, bar.part("gaps") as announce, new_runner() as runner:
        rows = runner.run(measure_gaps(plan, announce))
    elapsed = time.monotonic() - started
    busy = max(0.0, others_time() - others) / elapsed
    report = GapsReport(describe_machine(), plan, rows, busy)
    deliver(show_gaps(report), report.to_json(), json)
    if not quick and any(target.met is False for target in report.targets):
        raise typer.Exit(1)


async def measure_gaps(plan: Plan, announce: Announce) -> list[Gaps]:
    """Measure all systems in turns."""
    announce("making environments")
    turns = turns_for(plan.step / 1e3)
    found: dict[str, list[list[float]]] = {system.name: [] for system in SYSTEMS}
    steps = dict.fromkeys(found, 0)
    async with AsyncExitStack() as stack:
        players = {system.name: await _open(system, plan, turns, stack) for system in SYSTEMS}
        for turn, system in in_turns(SYSTEMS, plan.repeats):
            announce(f"{turn + 1}/{plan.repeats}: {system.name}")
            await _play(players[system.name], plan.seconds / 10)
            with Heartbeat(asyncio.get_running_loop()) as heart:
                steps[system.name] += await _play(players[system.name], plan.seconds)
            found[system.name].append([1e3 * gap for gap in heart.gaps])
    return [
        Gaps(
            system.name,
            steps[system.name] / (plan.seconds * plan.repeats),
            float(np.median(np.concatenate(found[system.name]))),
            [float(np.percentile(slice_, 99)) for slice_ in found[system.name]],
            [max(slice_) for slice_ in found[system.name]],
            float(np.percentile(np.concatenate(found[system.name]), 99)),
            system.aim,
        )
        for system in SYSTEMS
    ]


async def _open(system: System, plan: Plan, turns: int, stack: AsyncExitStack) -> list[Stepper]:
    """Open a system's environments; return a step function for each."""
    factories = [partial(system.env, turns)] * plan.num_envs
    if system.backend is None:
        return [partial(_step_here, factory()) for factory in factories]
    envs = await stack.enter_async_context(agym.make_async(factories, backend=system.backend))
    await envs.reset(seed=0)
    return [partial(env.step, 0) for env in envs]


async def _step_here(env: BusyEnv) -> None:
    env.step(0)
    await asyncio.sleep(0)


async def _play(steppers: Sequence[Stepper], seconds: float) -> int:
    """Step each environment in a separate task; return the number of steps."""
    end = time.perf_counter() + seconds

    async def play(step: Stepper) -> int:
        count = 0
        while time.perf_counter() < end:
            await step()
            count += 1
        return count

    return sum(await asyncio.gather(*map(play, steppers)))


def show_gaps(report: GapsReport) -> RenderableType:
    """Return the table of all systems, and the verdicts."""
    plan = report.plan
    table = Table(
        title=(
            f"{plan.num_envs} environments that compute for {plan.step:g} ms: gaps of the loop in"
            f" ms, {plan.repeats} × {plan.seconds:g} s"
        )
    )
    for column in ("", "median", "99th percentile", "longest", "steps/s"):
        table.add_column(column, justify="right" if column else "left")
    for row in report.rows:
        table.add_row(
            row.name, f"{row.p50:.2f}", f"{row.all_p99:.2f}", f"{max(row.longest):.1f}",
            f"{row.steps:,.0f}",
        )  # fmt: skip
    foot = [machine_line(report.machine)]
    if report.other_cores > BUSY_CORES:
        foot.append(f"Other programs kept {report.other_cores:.1f} cores busy during the run.")
    return Group(table, verdict_table(report.targets), *foot)
