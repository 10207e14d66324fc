"""Output of a command: tables to stdout, and everything to a JSON file if one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from agym.cli.console import console
from agym.core._system.extras import require
from agym.errors import UsageError

# Width of tables where the output is not a terminal.
FILE_WIDTH = 120

JsonFile = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, help="JSON file for all measurements.")
]

PlotFile = Annotated[
    Path | None, typer.Option("--plot", dir_okay=False, help="PNG file for a chart.")
]

PlotFolder = Annotated[
    Path | None, typer.Option("--plot", file_okay=False, help="Folder for PNG charts.")
]


def check_plot(plot: Path | None) -> None:
    """Check that charts can be drawn, before minutes of measuring.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if plot is not None:
        require("matplotlib", "plot")


def check_writable(*paths: Path | None) -> None:
    """Check that files can be written, before minutes of measuring.

    Raises:
        UsageError: A file's folder does not exist.
    """
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def deliver(tables: RenderableType, text: str, json: Path | None) -> None:
    """Print the tables, and write the JSON text to its file, if any."""
    width = None if console().is_terminal else FILE_WIDTH
    console(width=width).print(tables)
    if json is not None:
        json.write_text(text, encoding="utf-8")
