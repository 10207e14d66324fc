"""Runs modules of the benchmark in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import deque
from typing import Any

from agym.errors import AgymError
from benchmarks.measuring.progress import Announce

PROGRESS = "# "


def run_fresh(module: str, argument: Any, announce: Announce) -> Any:
    """Run a module with a JSON argument; show the progress it prints, and return its result.

    Raises:
        AgymError: The module failed.
    """
    command = [sys.executable, "-m", module, json.dumps(argument)]
    last: deque[str] = deque(maxlen=1)
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(PROGRESS):
                announce(line.removeprefix(PROGRESS).strip())
            else:
                last.append(line)
        if process.wait() != 0:
            errors.seek(0)
            lines = errors.read().strip().splitlines()[-1:]
            raise AgymError(f"{module} failed: {' '.join(lines)}")
    return json.loads(last[0])


def report(doing: str) -> None:
    """Print progress, in such a process."""
    sys.stdout.write(f"{PROGRESS}{doing}\n")
    sys.stdout.flush()


def finish(result: Any) -> None:
    """Print the result, in such a process."""
    sys.stdout.write(f"\n{json.dumps(result)}\n")
