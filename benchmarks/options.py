"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Seconds = Annotated[float, typer.Option(min=0.001, help="Length of one slice of one system.")]
Repeats = Annotated[int, typer.Option(min=1, help="Slices of each system.")]
CoreWorkers = Annotated[
    int | None, typer.Option(min=1, help="Worker processes. By default as many as cores.")
]
