"""Where a measurement goes: tables to stdout, everything to a file if one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from agym._system.extras import require
from agym.cli.console import console
from agym.errors import UsageError

# Width of tables where the output is no terminal.
FILE_WIDTH = 120

JsonFile = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, help="File for all that was measured.")
]

PlotFile = Annotated[
    Path | None, typer.Option("--plot", dir_okay=False, help="File for a PNG chart.")
]

PlotFolder = Annotated[
    Path | None, typer.Option("--plot", file_okay=False, help="Folder for PNG charts.")
]


def check_plot(plot: Path | None) -> None:
    """See to it that minutes of measuring do not end without what draws.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if plot is not None:
        require("matplotlib", "bench")


def check_writable(*paths: Path | None) -> None:
    """See to it that minutes of measuring do not end with a file that cannot be written.

    Raises:
        UsageError: The folder of one of the files does not exist.
    """
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def deliver(tables: RenderableType, text: str, json: Path | None) -> None:
    """Print the tables, and write the JSON text to its file, if there is one."""
    width = None if console().is_terminal else FILE_WIDTH
    console(width=width).print(tables)
    if json is not None:
        json.write_text(text, encoding="utf-8")
