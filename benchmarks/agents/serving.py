"""``serving``: sessions of agym's server on one core, and its speed beside OpenEnv's own server.

::

    sessions   thousands of sessions whose steps wait for a second
    echo       steps per second of environments that only echo, in turns with OpenEnv's server

Every server is a process on one core. The client is another process, on the other cores, the same
for all servers: see :mod:`benchmarks.agents.serving_load`.
"""

from __future__ import annotations

import json as json_module
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import typer
from rich.console import Group, RenderableType
from rich.table import Table

from agym.errors import UsageError
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import progress_bar
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict, to_json
from benchmarks.reports.tables import machine_line, verdict_table

OURS = "agym"
# OpenEnv's server calls tools, as its own echo environment does, or steps environments in a thread
# for each session (``def step``) or on its event loop (``async def step_async``).
PEERS = {"OpenEnv, a tool": "tool", "OpenEnv, step": "sync", "OpenEnv, step_async": "async"}
# The aims: seconds of a round whose steps wait for a second, and how much faster than the peer.
MAX_ROUND, FASTER = 1.15, 1.0
HERE = Path(__file__).parent

EXAMPLES = """Examples:

python -m benchmarks serving --part sessions

python -m benchmarks serving --part echo --peer-python ../openenv/bin/python

python -m benchmarks serving --quick
"""


class Part(Enum):
    """The parts of the command."""

    sessions = "sessions"
    echo = "echo"


@dataclass(frozen=True)
class Slice:
    """One run of the client at one server.

    Attributes:
        server: The server.
        rate: Steps per second.
        cost: Microseconds of the server's processor time for a step.
    """

    server: str
    rate: float
    cost: float


@dataclass(frozen=True)
class ServingReport:
    """A run of the command.

    Attributes:
        machine: See :func:`benchmarks.measuring.machine.describe_machine`.
        sessions: Sessions of the first part.
        echoes: Sessions of the second part.
        peer: The peer's release, ``""`` if it is not installed.
        rounds: Seconds of each round of the first part.
        failed: Answers that were errors, and connections that were lost.
        slices: The second part.
    """

    machine: Mapping[str, str]
    sessions: int
    echoes: int
    peer: str
    rounds: Sequence[float] = ()
    failed: int = 0
    slices: Sequence[Slice] = ()

    def of(self, server: str) -> list[Slice]:
        """Return the slices of one server."""
        return [each for each in self.slices if each.server == server]

    @property
    def targets(self) -> tuple[Verdict, ...]:
        rates = {name: median(each.rate for each in self.of(name)) for name in self.servers}
        peers = [name for name in PEERS if name in rates]
        measured = bool(self.rounds)
        longest = median(self.rounds) if measured else None
        text = f"{self.sessions:,} sessions on one core, steps of one second: seconds of a round"
        failures = float(self.failed) if measured or self.slices else None
        return (
            Verdict(
                text, MAX_ROUND, longest, None if longest is None else longest <= MAX_ROUND,
                "s", at_most=True,
            ),
            Verdict(
                "failed steps", 0, failures, None if failures is None else not failures, "",
                at_most=True,
            ),
            *(
                Verdict.on_ratio(
                    f"{self.echoes} sessions, steps per second against {name}", FASTER,
                    rates[OURS] / rates[name],
                )
                for name in peers
            ),
        )  # fmt: skip

    @property
    def servers(self) -> list[str]:
        """The servers of the second part."""
        return [*dict.fromkeys(each.server for each in self.slices)]

    def to_json(self) -> str:
        """Return everything as JSON."""
        return to_json({**asdict(self), "targets": [asdict(target) for target in self.targets]})


def serving(
    part: Annotated[
        list[Part] | None, typer.Option(help="Part to measure; repeatable.", show_default="all")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions whose steps wait.")] = 2048,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of these.")] = 10,
    echoes: Annotated[int, typer.Option(min=1, help="Sessions that echo.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, help="Slices of each server, in turns.")] = 5,
    peer_python: Annotated[
        Path, typer.Option(help="A Python that has OpenEnv's package.", show_default="this one")
    ] = Path(sys.executable),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Measure a little; it means nothing.", show_default="off"),
    ] = False,
    json: JsonFile = None,
) -> None:
    """Measure how many sessions a core serves, and how many steps of theirs.

    Exit code 1 if an aim is missed.
    """
    check_writable(json)
    parts = part or [*Part]
    if quick:
        sessions, rounds, repeats = min(sessions, 64), 1, 1
    peer = _peer_version(peer_python)
    report = ServingReport(describe_machine(), sessions, echoes, peer)
    with progress_bar(len(parts)) as bar:
        fields: dict[str, Any] = {}
        if Part.sessions in parts:
            with bar.part("sessions"):
                fields |= measure_sessions(sessions, rounds)
        if Part.echo in parts:
            with bar.part("echo"):
                slices, failed = measure_echo(
                    echoes, repeats, 0.5 if quick else 2.0, peer_python if peer else None
                )
                fields |= {"slices": slices, "failed": failed + fields.get("failed", 0)}
        report = ServingReport(describe_machine(), sessions, echoes, peer, **fields)
    deliver(show_serving(report), report.to_json(), json)
    if any(target.met is False for target in report.targets):
        raise typer.Exit(1)


def measure_sessions(sessions: int, rounds: int) -> dict[str, Any]:
    """Let all sessions step at once, again and again."""
    with _running(_ours("wait", sessions)) as (url, _):
        result = _load(url, sessions, "echo", "rounds", str(rounds))
    return {"rounds": result["rounds"], "failed": result["failed"]}


def measure_echo(
    sessions: int, repeats: int, seconds: float, peer_python: Path | None
) -> tuple[list[Slice], int]:
    """Measure all servers in turns."""
    commands = {OURS: _ours("echo", sessions)}
    if peer_python is not None:
        # Isolated, so that files beside the script are not taken for packages.
        peer = [str(peer_python), "-I", str(HERE / "serving_peer.py")]
        # Sessions of the last slice may still be closing.
        commands |= {name: [*peer, kind, str(2 * sessions)] for name, kind in PEERS.items()}
    slices, failed = [], 0
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(_running(command)) for name, command in commands.items()
        }
        for _, name in in_turns([*running], repeats):
            url, process = running[name]
            step = "tool" if PEERS.get(name) == "tool" else "echo"
            result = _load(url, sessions, step, "seconds", str(seconds), process)
            slices.append(Slice(name, result["rate"], result["cost"]))
            failed += result["failed"]
    return slices, failed


def _ours(kind: str, sessions: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.agents.serving_ours", kind, str(2 * sessions)]


@contextmanager
def _running(command: Sequence[str]) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server, which prints its address first."""
    with subprocess.Popen(  # a peer complains of clients that leave
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise UsageError(f"the server did not start: {' '.join(command)}")
            yield url, psutil.Process(process.pid)
        finally:
            process.kill()


def _load(
    url: str,
    sessions: int,
    step: str,
    kind: str,
    amount: str,
    server: psutil.Process | None = None,
) -> dict[str, Any]:
    """Run the client, on other cores than the server's if there are any."""
    command = [sys.executable, "-m", "benchmarks.agents.serving_load", url, str(sessions)]
    command += [step, kind, amount, *([] if server is None else [str(server.pid)])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    result: dict[str, Any] = json_module.loads(done.stdout)
    return result


def _peer_version(python: Path) -> str:
    """Return the release of OpenEnv that a Python has."""
    code = "from importlib.metadata import version as v; print(v('openenv'))"
    try:
        done = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        raise UsageError(f"--peer-python {python}: {error.strerror}") from error
    return done.stdout.strip()


def show_serving(report: ServingReport) -> RenderableType:
    """Return the tables."""
    parts: list[RenderableType] = []
    if report.slices:
        table = Table(title=f"{report.echoes} sessions of an echo environment, server on one core")
        table.add_column("server")
        for name in ("steps/s", "µs of processor per step", "× agym's"):
            table.add_column(name, justify="right")
        ours = median(each.rate for each in report.of(OURS))
        for name in report.servers:
            rate = median(each.rate for each in report.of(name))
            cost = median(each.cost for each in report.of(name))
            table.add_row(name, f"{rate:,.0f}", f"{cost:.0f}", f"{rate / ours:.2f}")
        parts.append(table)
    parts.append(verdict_table(report.targets))
    if not report.peer:
        parts.append("OpenEnv is not installed here: give a Python that has it as --peer-python.")
    else:
        parts.append(f"OpenEnv {report.peer}")
    return Group(*parts, machine_line(report.machine))
