"""``calls``: how many files and calls of agym's a step of all environments goes through."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table

import agym
from agym.backends.spinning import SpinPolicy
from benchmarks.measuring.computing_envs import StillEnv
from benchmarks.reports.output import JsonFile, check_writable, deliver

EXAMPLES = """Examples:

python -m benchmarks calls

python -m benchmarks calls --show process
"""

PACKAGE = Path(agym.__file__).parent

# The most files and calls of a step, by backend.
LIMITS = {"serial": (8, 25), "process": (8, 35)}

# Steps of which the one with the fewest calls counts: the others were timed for the statistics, or
# waited for a worker that the system did not run.
STEPS = 300


class Place(NamedTuple):
    """A call: the file, relative to the package, and the function."""

    file: str
    function: str


def calls_of_a_step(backend: Any, num_envs: int = 4, steps: int = STEPS) -> list[Place]:
    """Return the calls of agym's in the caller's thread of the step that has the fewest."""
    found: list[Place] = []
    envs = agym.make(StillEnv, num_envs, backend=backend, autoreset="next_step", output="array")
    with envs:
        envs.reset(seed=0)
        actions = np.zeros(num_envs, np.int64)
        for _ in range(steps):
            # As on an idle machine: whatever earlier waits took, this one is watched.
            envs._backend.workers.spinning = SpinPolicy()
            calls = _profiled(envs, actions)
            if not found or len(calls) < len(found):
                found = calls
    return found


def _profiled(envs: agym.Envs[Any, Any], actions: Any) -> list[Place]:
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
        envs.step(actions)
    finally:
        sys.setprofile(before)
    return calls


def files_of(calls: list[Place]) -> int:
    """Return the number of files."""
    return len({call.file for call in calls})


def calls(
    num_envs: Annotated[int, typer.Option(min=2, help="Number of environments.")] = 4,
    show: Annotated[str | None, typer.Option(help="Backend whose calls to list.")] = None,
    json: JsonFile = None,
) -> None:
    """Count the calls of agym's in a step of all environments, with nothing else under way."""
    check_writable(json)
    backends = {"serial": agym.backends.Serial(), "process": agym.backends.Process(workers=2)}
    found = {name: calls_of_a_step(backend, num_envs) for name, backend in backends.items()}
    table = Table(
        "backend", "files", "target", "calls", "target", title="A step", title_justify="left"
    )
    for name, (files, most) in LIMITS.items():
        counts = str(files_of(found[name])), str(len(found[name]))
        table.add_row(name, counts[0], f"≤ {files}", counts[1], f"≤ {most}")
    if show is not None:
        table = Table("file", "function", title=f"A step on {show}", title_justify="left")
        for call in found.get(show, ()):
            table.add_row(*call)
    deliver(table, json_format.dumps(found, indent=2), json)
