"""``agym trace``: summarize how much a recorded timeline overlaps, and draw it.

Examples:
agym trace run.json

agym trace run.json -o run.png
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from agym.cli.console import console
from agym.errors import UsageError
from agym.watching.trace_report import draw, measure, read_spans
from agym.watching.video.movie import check_file, writing


def command(
    file: Annotated[Path, typer.Argument(help="Timeline written by agym.trace.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="PNG file to draw into.", show_default="not drawn"),
    ] = None,
) -> None:
    """Summarize how much a timeline overlaps; view the file in https://ui.perfetto.dev."""
    if output is not None:
        if output.suffix.lower() != ".png":
            raise UsageError(f"path={str(output)!r} must end in .png")
        check_file(output)
    with console(stderr=True).status(Text(f"reading {file}")):
        spans = read_spans(file)
        if output is not None:
            with writing(output):
                draw(spans, output)
    out = console()
    out.print(str(measure(spans)), soft_wrap=True, highlight=False)
    if output is not None:
        out.print(f"wrote {output}", soft_wrap=True, highlight=False)
