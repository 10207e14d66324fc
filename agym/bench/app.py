"""``agym bench``: the measurements, one small file per command."""

from __future__ import annotations

import typer

from agym.bench.throughput import EXAMPLES, throughput

app = typer.Typer(
    help="Measure agym against other runners, side by side.", no_args_is_help=True, epilog=EXAMPLES
)
app.command(epilog=EXAMPLES)(throughput)


@app.callback()
def bench() -> None:
    """Measure agym against other runners, side by side."""
