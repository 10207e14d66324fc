"""Capsules for tests, and ways to replay them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from agym.cli.app import app
from agym.core.engine.faults.capsule import Capsule, write_capsule
from agym.core.protocol.messages.resets import EpisodeStart
from agym.errors import Fault
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Tally
from tests.support.patience import patience
from tests.support.scripts import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def a_capsule(**changes: Any) -> Capsule:
    """Return a capsule; the changes are of its own fields, of its fault and of its start."""
    values: dict[str, Any] = {
        "env_id": 3,
        "factory": partial(Tally, length=9),
        "autoreset": "next_step",
        "operation": "step",
        "kind": "raised",
        "error": "ValueError: boom in step",
        "seed": 7,
        "actions": [1, 2],
        "action": 9,
        "traceback": "Traceback ...\nValueError: boom in step\n",
        "episode": 2,
        "step": 4,
        **changes,
    }
    start = EpisodeStart(*(values.pop(name, None) for name in ("seed", "rng", "options")))
    of_fault = {field.name for field in fields(Fault)} & values.keys()
    fault = Fault(**{name: values.pop(name) for name in of_fault})
    return Capsule(fault, start, **values)


def with_head(path: Path, **changes: Any) -> Path:
    """Change the head of a capsule's file, and its checksum."""
    line, _, body = path.read_bytes().partition(b"\n")
    head = {**json.loads(line), **changes}
    del head["crc32"]
    start = json.dumps(head).encode().removesuffix(b"}")
    crc = zlib.crc32(b"\n" + body, zlib.crc32(start))
    path.write_bytes(b'%s, "crc32": %d}\n%s' % (start, crc, body))
    return path


def rerun(folder: Path, capsule: Capsule) -> Result:
    """Replay in this process."""
    return CliRunner().invoke(app, ["rerun", str(write_capsule(folder, capsule))])


def rerun_apart(
    path: Path, *options: str, typed: str = "", folder: Path | None = None
) -> tuple[int, str, str]:
    """Replay in another process: exit code, output, errors."""
    command = [sys.executable, "-m", "agym", "rerun", str(path), *options]
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=patience(6),
        cwd=folder or path.parent, env=ENVIRONMENT,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def failing(where: str = "step", exception: str = "plain") -> Callable[[], Any]:
    return partial(Raises, where, exception)


@contextmanager
def at_terminal(path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Replay in another process that has a terminal; gives our end of that."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "agym", "rerun", str(path), *options],
        stdin=end, stdout=end, stderr=end, env={**ENVIRONMENT, "TERM": "xterm"},
    )  # fmt: skip
    os.close(end)
    try:
        yield process, terminal
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def read_until(terminal: int, wanted: bytes) -> bytes:
    """Read up to what is wanted; return all that was read."""
    seen = b""
    while wanted not in seen:
        seen += os.read(terminal, 1000)
    return seen
