"""Scripts run as a user would run them, and what is left of their processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import psutil

from tests.support.patience import patience

ROOT = Path(__file__).parents[2]


def install_command(extra: str) -> str:
    """What adds an extra to this clone, which ``pip install -e`` has installed."""
    return f'pip install -e "{ROOT}[{extra}]"'


def start(
    folder: Path, code: str, options: Sequence[str] = (), path: Sequence[Path] = (ROOT,)
) -> subprocess.Popen[str]:
    """Start a script in a session of its own, so that Ctrl-C can be sent to all of it.

    Args:
        folder: Where it runs.
        code: The script.
        options: For the interpreter.
        path: Where its processes find modules.
    """
    script = folder / "script.py"
    script.write_text(dedent(code))
    return subprocess.Popen(
        [sys.executable, "-W", "error", *options, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(
    folder: Path,
    code: str,
    seconds: float = 3,
    options: Sequence[str] = (),
    path: Sequence[Path] = (ROOT,),
) -> tuple[int, str, str]:
    """Run a script to its end: exit code, output, errors. Nothing of it may go on.

    Args:
        folder: Where it runs.
        code: The script.
        seconds: What it takes on a quiet machine, about.
        options: For the interpreter.
        path: Where its processes find modules.
    """
    with start(folder, code, options, path) as process:
        try:
            out, err = process.communicate(timeout=patience(seconds))
        except BaseException as error:  # also the test's own limit, which is raised in here
            for member in members(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            error.add_note(_printed(process))
            raise
        finally:
            left = end_session(process.pid)
        assert not left, f"processes that outlived the script: {left}"
        return process.returncode, out, err


def _printed(process: subprocess.Popen[str]) -> str:
    """What a script that was killed had printed until then."""
    try:
        out, err = process.communicate(timeout=patience())
    except subprocess.TimeoutExpired:  # somebody who left the session holds its pipes
        return "what the script printed cannot be read: its pipes are still held"
    return f"the script's output until it was ended:\n{out}\nits errors:\n{err}"


def end_session(session: int) -> list[psutil.Process]:
    """Wait until all processes of a session have ended; kill and give those that do not."""
    _, left = psutil.wait_procs(members(session), timeout=patience())
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return left


def members(session: int) -> list[psutil.Process]:
    """Processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != "zombie":
                found.append(process)
    return found
