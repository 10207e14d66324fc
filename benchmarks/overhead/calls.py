"""``calls``: the number of agym's files and calls in a step of all environments."""

from __future__ import annotations

import json as json_format
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import numpy as np
import typer
from rich.table import Table

import agym
from agym.core.backends.spinning import SpinPolicy
from benchmarks.measuring.computing_envs import StillEnv
from benchmarks.reports.output import JsonFile, check_writable, deliver

EXAMPLES = """Examples:

python -m benchmarks calls

python -m benchmarks calls --show "await, process"
"""

PACKAGE = Path(agym.__file__).parent

# The maximum number of files and calls of a step, by API and backend. Steps that are awaited have a
# deadline, and their environments are restarted after a fault.
LIMITS = {
    "serial": (8, 25),
    "process": (13, 60),
    "await, serial": (9, 25),
    "await, process": (12, 60),
}

BACKENDS = {"serial": agym.backends.Serial(), "process": agym.backends.Process(workers=2)}

# Number of steps; the one with the fewest files and calls counts. The others were timed for the
# statistics, or waited for a worker that had no core.
STEPS = 300

# How long to give way to the workers.
YIELD_SECONDS = 2e-3


class Place(NamedTuple):
    """A call: the file, relative to the package, and the function."""

    file: str
    function: str


def calls_of_a_step(way: str, num_envs: int = 4, steps: int = STEPS) -> list[Place]:
    """Return agym's calls in the caller's thread, of the step with the fewest calls.

    Args:
        way: One of :data:`LIMITS`.
        num_envs: Number of environments.
        steps: Number of steps to try.
    """
    backend = BACKENDS[way.removeprefix("await, ")]
    # As on an idle machine: whatever earlier waits took, the caller spins, and its first look finds
    # the result.
    yielding = patch("agym.core.backends.spinning.give_way", lambda: time.sleep(YIELD_SECONDS))
    with patch.object(SpinPolicy, "worth_spinning", return_value=True), yielding:
        if way.startswith("await"):
            return agym.run(_awaited(backend, num_envs, steps))
        options: dict[str, Any] = {"autoreset": "next_step", "output": "array"}
        with agym.make(StillEnv, num_envs, backend=backend, **options) as envs:
            envs.reset(seed=0)
            actions = np.zeros(num_envs, np.int64)
            found = []
            for _ in range(steps):
                with _noting() as calls:
                    envs.step(actions)
                found.append(calls)
        return min(found, key=lambda calls: (files_of(calls), len(calls)))


async def _awaited(backend: Any, num_envs: int, steps: int) -> list[Place]:
    options: dict[str, Any] = {"timeout": 60, "on_fault": "restart"}
    async with agym.make_async(StillEnv, num_envs, backend=backend, **options) as envs:
        await envs.reset(seed=0)
        actions = np.zeros(num_envs, np.int64)
        found = []
        for _ in range(steps):
            with _noting() as calls:
                await envs.step(actions)
            found.append(calls)
        return min(found, key=lambda calls: (files_of(calls), len(calls)))


@contextmanager
def _noting() -> Iterator[list[Place]]:
    """Record the calls in a block."""
    calls: list[Place] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(PACKAGE):
                name = frame.f_code.co_qualname
                calls.append(Place(str(file.relative_to(PACKAGE)), name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def files_of(calls: list[Place]) -> int:
    """Return the number of files."""
    return len({call.file for call in calls})


def calls(
    num_envs: Annotated[int, typer.Option(min=2, help="Number of environments.")] = 4,
    show: Annotated[str | None, typer.Option(help="Way whose calls to list.")] = None,
    json: JsonFile = None,
) -> None:
    """Count agym's calls in a step of all environments, with nothing else under way."""
    check_writable(json)
    found = {way: calls_of_a_step(way, num_envs) for way in LIMITS}
    table = Table("way", "files", "target", "calls", "target", title="A step", title_justify="left")
    for way, (files, most) in LIMITS.items():
        counts = str(files_of(found[way])), str(len(found[way]))
        table.add_row(way, counts[0], f"≤ {files}", counts[1], f"≤ {most}")
    if show is not None:
        table = Table("file", "function", title=f"A step: {show}", title_justify="left")
        for call in found.get(show, ()):
            table.add_row(*call)
    deliver(table, json_format.dumps(found, indent=2), json)
