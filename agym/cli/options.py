"""Options that several commands have, and checks of their values."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import typer

from agym.core._system.platform import WORKER_PROCESSES
from agym.errors import UsageError

# The backend of commands that need workers.
WITH_WORKERS: Literal["process", "thread"] = "process" if WORKER_PROCESSES else "thread"

# More environments than fit on any machine.
MAX_ENVS = 1_000_000

NumEnvs = Annotated[
    int, typer.Option("-n", "--num-envs", min=1, max=MAX_ENVS, help="Number of environments.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free port.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of environments and actions.")]


def finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """Check the value of an option, as its ``callback``: ``min`` and ``max`` let ``nan`` pass.

    Raises:
        UsageError: The value is infinite or ``nan``.
    """
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{option.opts[0]} {value} must be a finite number")
    return value
