"""Options that several commands have, and checks of their values."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import typer

from agym.backends import BackendName
from agym.core._system.platform import WORKER_PROCESSES
from agym.errors import UsageError

# The backend of commands that need workers.
WITH_WORKERS: Literal["process", "thread"] = "process" if WORKER_PROCESSES else "thread"

# More environments than fit on any machine.
MAX_ENVS = 1_000_000


def flag(name: str, text: str) -> Any:
    """Return an option that is off by default."""
    return typer.Option(name, help=text, show_default="off")


def number(text: str, default: str | bool = True, **limits: Any) -> Any:
    """Return an option for a finite float; ``default`` is shown in the help."""
    return typer.Option(help=text, show_default=default, callback=_finite, **limits)


def _finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """Check a value, since ``min`` and ``max`` let ``nan`` pass.

    Raises:
        UsageError: The value is infinite or ``nan``.
    """
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{option.opts[0]} {value} must be a finite number")
    return value


EnvId = Annotated[str, typer.Argument(help="Id of the environment.")]
NumEnvs = Annotated[
    int, typer.Option("-n", "--num-envs", min=1, max=MAX_ENVS, help="Number of environments.")
]
Backend = Annotated[BackendName, typer.Option(help="Where environments run, as in agym.make.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Worker processes.", show_default="one per core")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free port.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of environments and actions.")]
OpenPage = Annotated[bool, flag("--open", "Open the page in a browser.")]
