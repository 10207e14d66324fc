"""``openenv``: whether a client of a server's environments takes an answer for another's; its cost.

::

    drill    10,000 timeouts and cancellations at random moments, for each client and server
    pace     the processor's time of a step in the client's process, at agym's server
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.table import Table

import agym
from agym.agents.openenv.client import RemoteEnv
from benchmarks.agents.openenv_drill import PATIENCE, Tally, drill, pace, write_json, write_line
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import progress_bar
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict, to_json
from benchmarks.reports.tables import machine_line, verdict_table

Result = TypeVar("Result")

ROOT = Path(__file__).parents[2]
OURS, PEER = "agym", "OpenEnv"
# Sessions, steps of each, and slices in turns, of the pace.
PACE_SESSIONS, PACE_STEPS, SLICES = 64, 200, 5
# Sessions that a server may still have while their clients have given them up.
SPARE = 4

EXAMPLES = """Examples:

python -m benchmarks openenv --part drill

python -m benchmarks openenv --part drill --peer-python ../openenv/bin/python

python -m benchmarks openenv --quick
"""


class Part(Enum):
    """The parts of the command."""

    drill = "drill"
    pace = "pace"


@dataclass(frozen=True)
class Drilled:
    """One client at one server.

    Attributes:
        client: The client's name.
        server: The server's name.
        tally: What became of the questions.
        seconds: How long it took.
    """

    client: str
    server: str
    tally: Tally
    seconds: float


@dataclass(frozen=True)
class OpenEnvReport:
    """A run of the command.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        sessions: Sessions at once.
        give_up: Questions to give up.
        peer: The peer's release, ``""`` if it is not installed.
        drills: Each client at each server.
        pace: Microseconds of a step in each client's process, one for each slice.
    """

    machine: Mapping[str, str]
    sessions: int
    give_up: int
    peer: str
    drills: Sequence[Drilled] = ()
    pace: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[Verdict, ...]:
        """What agym's client must reach: nothing shifted, and everything given up as planned."""
        found = []
        for server in (OURS, PEER):
            row = next((d for d in self.drills if (d.client, d.server) == (OURS, server)), None)
            shifted = None if row is None else float(row.tally.shifted)
            found.append(
                Verdict(
                    f"shifted answers of agym's client at {server}'s server, in"
                    f" {self.give_up:,} timeouts and cancellations",
                    0.0, shifted, None if row is None else _is_clean(row, self.give_up),
                    unit="answers", at_most=True,
                )
            )  # fmt: skip
        costs = {name: median(slices) for name, slices in self.pace.items()}
        ratio = costs[PEER] / costs[OURS] if costs.keys() >= {OURS, PEER} else None
        target = f"steps per second of processor time, against {PEER}'s client"
        found.append(Verdict.on_ratio(target, 1.0, ratio))
        return tuple(found)

    def to_json(self) -> str:
        """Return everything as JSON."""
        return to_json({**asdict(self), "targets": [asdict(target) for target in self.targets]})


def _is_clean(row: Drilled, give_up: int) -> bool:
    tally = row.tally
    return tally.given_up >= give_up and not tally.shifted and not tally.errors


def openenv(
    part: Annotated[
        list[Part] | None, typer.Option(help="Part to measure; repeatable.", show_default="all")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 32,
    give_up: Annotated[
        int, typer.Option(min=1, help="Timeouts and cancellations of each client and server.")
    ] = 10_000,
    peer_python: Annotated[
        Path, typer.Option(help="A Python that has OpenEnv's package.", show_default="this one")
    ] = Path(sys.executable),
    seed: Annotated[int, typer.Option(min=0, help="Seed of delays and cancellations.")] = 0,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Give up 200 questions only.", show_default="off"),
    ] = False,
    json: JsonFile = None,
) -> None:
    """Give questions up at random moments, and count the answers that are another question's.

    Exit code 1 if agym's client takes one for another's, or costs more than OpenEnv's.
    """
    check_writable(json)
    count, slices = (200, 1) if quick else (give_up, SLICES)
    parts = part or [*Part]
    report = measure_openenv(parts, sessions, count, slices, peer_python, seed)
    deliver(show_openenv(report), report.to_json(), json)
    if any(target.met is False for target in report.targets):
        raise typer.Exit(1)


def measure_openenv(
    parts: Sequence[Part], sessions: int, give_up: int, slices: int, peer_python: Path, seed: int
) -> OpenEnvReport:
    """Measure the parts, each client at each server that there is."""
    peer = _peer_version(peer_python)
    peer_command = [str(peer_python), "-m", "benchmarks.agents.openenv_peer"]
    clients = [OURS, PEER] if peer else [OURS]
    pairs = list(product(clients, clients)) if Part.drill in parts else []
    rounds = slices if Part.pace in parts else 0
    drills: list[Drilled] = []
    costs: dict[str, list[float]] = {name: [] for name in clients} if rounds else {}
    with progress_bar(len(pairs) + bool(rounds)) as bar:
        for server, client in pairs:
            command = _server_command(server, peer_command, SPARE * sessions)
            with bar.part(f"{client} at {server}"), _running(command) as url:
                begun = time.perf_counter()
                if client == OURS:
                    tally = _drill_ours(url, sessions, give_up, seed)
                else:
                    numbers = map(str, (sessions, give_up, seed))
                    tally = Tally(**_answer_of([*peer_command, "drill", url, *numbers]))
                drills.append(Drilled(client, server, tally, time.perf_counter() - begun))
        if rounds:
            command = _server_command(OURS, peer_command, SPARE * PACE_SESSIONS)
            with bar.part("pace"), _running(command) as url:
                for name in clients * rounds:
                    costs[name].append(_pace(name, url, peer_command))
    return OpenEnvReport(describe_machine(), sessions, give_up, peer, drills, costs)


def _server_command(name: str, peer_command: Sequence[str], sessions: int) -> Sequence[str]:
    if name == OURS:
        return [sys.executable, "-m", __name__, str(sessions)]
    return [*peer_command, "serve", str(sessions)]


def _pace(name: str, url: str, peer_command: Sequence[str]) -> float:
    """Measure one slice; each process has done nothing before."""
    if name == PEER:
        numbers = map(str, (PACE_SESSIONS, PACE_STEPS))
        return float(_answer_of([*peer_command, "pace", url, *numbers]))
    return float(_answer_of([sys.executable, "-m", __name__, "pace", url]))


def _peer_version(python: Path) -> str:
    command = [str(python), "-m", "benchmarks.agents.openenv_peer", "version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if not done.returncode else ""


@contextmanager
def _running(command: Sequence[str]) -> Iterator[str]:
    """Run a server; give its address."""
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


class OurSession:
    """agym's client of one session."""

    def __init__(self, env: RemoteEnv) -> None:
        self._env = env

    async def reset(self, value: int) -> int:
        observation, _ = await _in_time(self._env.reset(seed=value))
        return int(observation["value"])

    async def step(self, value: int, delay: float) -> int:
        action = {"value": value, "delay": delay}
        observation, *_ = await _in_time(self._env.step(action))
        return int(observation["value"])

    async def close(self) -> None:
        await self._env.close()


async def _in_time(operation: Awaitable[Result]) -> Result:
    """Raise ``TimeoutError`` where the client's own deadline was missed."""
    try:
        return await operation
    except agym.RemoteError as error:
        if error.code == "TIMEOUT":
            raise TimeoutError from None
        raise


def _drill_ours(url: str, sessions: int, give_up: int, seed: int) -> Tally:
    factory = agym.openenv(url, timeout=PATIENCE, connect_timeout=60)
    return agym.run(drill(lambda: OurSession(factory()), sessions, give_up, seed))


def _answer_of(command: Sequence[str]) -> Any:
    """Run a process, and return the JSON of its last line."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


class EchoEnv:
    """Says what it is told, after a delay."""

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        return {"value": seed or 0}, {}

    async def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, int], float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(action["delay"])
        return {"value": action["value"]}, 0.0, False, False, {}

    async def close(self) -> None:
        pass


async def _serve(sessions: int) -> None:
    async with agym.serve(EchoEnv, sessions, token=False) as server:
        write_line(server.url)
        await server.forever()


def show_openenv(report: OpenEnvReport) -> RenderableType:
    """Return the tables."""
    release = {OURS: OURS, PEER: f"{PEER} {report.peer}"}
    missing = [] if report.peer else ["OpenEnv is not installed: pass --peer-python"]
    told = [f"{kind} ({n:,})" for row in report.drills for kind, n in row.tally.errors.items()]
    shown: list[RenderableType] = [machine_line(report.machine)]
    if report.drills:
        shown += [_drill_table(report, release), *told[:10]]
    if report.pace:
        shown.append(_pace_table(report, release))
    return Group(*shown, *missing, verdict_table(report.targets))


def _drill_table(report: OpenEnvReport, release: Mapping[str, str]) -> Table:
    title = f"{report.give_up:,} questions given up, in {report.sessions} sessions at once"
    table = Table(title=title, title_justify="left")
    for name in ("client", "server", "answered", "timeouts", "cancelled", "shifted", "errors", "s"):
        table.add_column(name, justify="left" if name in ("client", "server") else "right")
    for row in report.drills:
        tally = row.tally
        counts = (tally.answered, tally.timeouts, tally.cancelled, tally.shifted)
        table.add_row(
            release[row.client], release[row.server], *(f"{count:,}" for count in counts),
            f"{sum(tally.errors.values()):,}", f"{row.seconds:.0f}",
        )  # fmt: skip
    return table


def _pace_table(report: OpenEnvReport, release: Mapping[str, str]) -> Table:
    title = f"A step in the client's process, {PACE_SESSIONS} sessions at agym's server"
    table = Table(title=title, title_justify="left")
    table.add_column("client")
    table.add_column("µs, median", justify="right")
    table.add_column("least to most", justify="right")
    for name, slices in report.pace.items():
        spread = f"{min(slices):.1f} to {max(slices):.1f}"
        table.add_row(release[name], f"{median(slices):.1f}", spread)
    return table


if __name__ == "__main__":
    if sys.argv[1] == "pace":
        factory = agym.openenv(sys.argv[2])
        write_json(agym.run(pace(lambda: OurSession(factory()), PACE_SESSIONS, PACE_STEPS)))
    else:
        agym.run(_serve(int(sys.argv[1])))
