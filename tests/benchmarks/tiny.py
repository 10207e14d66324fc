"""Runs of commands on next to nothing, in this process: no system here leaves a fork server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.systems.runners import AgymAuto, AgymProcess, AgymSerial, Bare, GymnasiumSync

PNG = b"\x89PNG\r\n\x1a\n"

# Two of agym's, what they are held against, and its own choice.
FEW = (Bare, AgymAuto, AgymSerial, AgymProcess, GymnasiumSync)


def few_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes long to start."""
    for name in (
        "throughput.grid.SYSTEMS",
        "measuring.measure.SYSTEMS",
        "throughput.busy.SYSTEMS",
        "overhead.command.COMPARED",
    ):
        monkeypatch.setattr(f"benchmarks.{name}", FEW)


@dataclass(frozen=True)
class Done:
    """What a command printed, and wrote."""

    stdout: str
    data: Any


def run(folder: Path, *arguments: str, plot: str | None = None) -> Done:
    """Run ``python -m benchmarks`` with a JSON file in a folder, and a chart if one is named."""
    path = folder / "result.json"
    charts = ["--plot", str(folder / plot)] if plot is not None else []
    result = CliRunner().invoke(app, [*arguments, "--json", str(path), *charts])
    assert result.exit_code == 0, result.output
    return Done(result.stdout, json.loads(path.read_text(encoding="utf-8")))
