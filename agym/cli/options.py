"""Options that several commands have, and checks of their values."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import typer

from agym.core._system.platform import WORKER_PROCESSES
from agym.errors import UsageError

# Where commands run environments that need workers.
WITH_WORKERS: Literal["process", "thread"] = "process" if WORKER_PROCESSES else "thread"

# More environments than any machine holds.
MAX_ENVS = 1_000_000

NumEnvs = Annotated[
    int, typer.Option("-n", "--num-envs", min=1, max=MAX_ENVS, help="Number of environments.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of environments and actions.")]


def finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """Check the value of an option, as its ``callback``; bounds do not refuse ``nan``.

    Raises:
        UsageError: It is infinite or no number.
    """
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{option.opts[0]} {value} must be a finite number")
    return value
