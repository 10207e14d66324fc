"""Runs commands in this process, on systems that leave no fork server behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.systems.runners import AgymAuto, AgymProcess, AgymSerial, Bare, GymnasiumSync

PNG = b"\x89PNG\r\n\x1a\n"

# Two of agym's, what they are compared with, and agym's own choice.
FEW = (Bare, AgymAuto, AgymSerial, AgymProcess, GymnasiumSync)


@dataclass(frozen=True)
class Done:
    """What a command printed, and the text and the content of its JSON file."""

    stdout: str
    text: str
    data: Any

    @classmethod
    def of(cls, stdout: str, path: Path) -> Done:
        text = path.read_text(encoding="utf-8")
        return cls(stdout, text, json.loads(text))


def run(folder: Path, *arguments: str, plot: str | None = None) -> Done:
    """Run ``python -m benchmarks`` with a JSON file in a folder, and a chart if one is named."""
    path = folder / "result.json"
    charts = ["--plot", str(folder / plot)] if plot is not None else []
    result = CliRunner().invoke(app, [*arguments, "--json", str(path), *charts])
    assert result.exit_code == 0, result.output
    return Done.of(result.stdout, path)
