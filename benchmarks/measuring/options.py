"""Command-line options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Seconds = Annotated[
    float, typer.Option(min=0.001, max=3600, help="Seconds per slice of each system.")
]
Repeats = Annotated[int, typer.Option(min=1, help="Number of slices of each system.")]
CoreWorkers = Annotated[
    int | None, typer.Option(min=1, help="Worker processes. By default one per core.")
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Measure a little of each; the figures mean nothing.",
        show_default="off",
    ),
]
