"""``openenv``: whether a client of environments at a server ever takes an answer for another's.

::

    drill    10,000 timeouts and cancellations at random moments, for each client and server
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.table import Table

import agym
from agym.tools.openenv.client import RemoteEnv
from benchmarks.agents.openenv_drill import PATIENCE, Tally, drill, write_line
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import progress_bar
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict, to_json
from benchmarks.reports.tables import machine_line, verdict_table

Result = TypeVar("Result")

ROOT = Path(__file__).parents[2]
OURS, PEER = "agym", "OpenEnv"
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
    """

    machine: Mapping[str, str]
    sessions: int
    give_up: int
    peer: str
    drills: Sequence[Drilled]

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

    Exit code 1 if agym's client takes one for another's.
    """
    check_writable(json)
    assert part is None or set(part) <= {*Part}
    count = 200 if quick else give_up
    report = measure_openenv(sessions, count, peer_python, seed)
    deliver(show_openenv(report), report.to_json(), json)
    if any(target.met is False for target in report.targets):
        raise typer.Exit(1)


def measure_openenv(sessions: int, give_up: int, peer_python: Path, seed: int) -> OpenEnvReport:
    """Run the drill of each client at each server that there is."""
    peer = _peer_version(peer_python)
    peer_command = [str(peer_python), "-m", "benchmarks.agents.openenv_peer"]
    servers = {OURS: [sys.executable, "-m", __name__, str(SPARE * sessions)]}
    if peer:
        servers[PEER] = [*peer_command, "serve", str(SPARE * sessions)]
    clients = [OURS, PEER] if peer else [OURS]
    drills = []
    with progress_bar(len(servers) * len(clients)) as bar:
        for server, command in servers.items():
            for client in clients:
                with bar.part(f"{client} at {server}"), _running(command) as url:
                    begun = time.perf_counter()
                    if client == OURS:
                        tally = _drill_ours(url, sessions, give_up, seed)
                    else:
                        numbers = map(str, (sessions, give_up, seed))
                        tally = _drill_peer([*peer_command, "drill", url, *numbers])
                    drills.append(Drilled(client, server, tally, time.perf_counter() - begun))
    return OpenEnvReport(describe_machine(), sessions, give_up, peer, drills)


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


def _drill_peer(command: Sequence[str]) -> Tally:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Tally(**json.loads(done.stdout.splitlines()[-1]))


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
    title = f"{report.give_up:,} questions given up, in {report.sessions} sessions at once"
    table = Table(title=title, title_justify="left")
    for name in ("client", "server", "answered", "timeouts", "cancelled", "shifted", "errors", "s"):
        table.add_column(name, justify="left" if name in ("client", "server") else "right")
    release = {OURS: OURS, PEER: f"{PEER} {report.peer}"}
    for row in report.drills:
        tally = row.tally
        counts = (tally.answered, tally.timeouts, tally.cancelled, tally.shifted)
        table.add_row(
            release[row.client], release[row.server], *(f"{count:,}" for count in counts),
            f"{sum(tally.errors.values()):,}", f"{row.seconds:.0f}",
        )  # fmt: skip
    told = [
        f"{kind} ({count:,})" for row in report.drills for kind, count in row.tally.errors.items()
    ]
    missing = [] if report.peer else ["OpenEnv is not installed: pass --peer-python"]
    return Group(
        machine_line(report.machine), table, *told[:10], *missing, verdict_table(report.targets)
    )


if __name__ == "__main__":
    agym.run(_serve(int(sys.argv[1])))
