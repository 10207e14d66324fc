"""``agym prove``: compare an environment's twin with the original, bit for bit.

Examples:
agym prove HalfCheetah-v5

agym prove CartPole-v1 --steps 100000
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from agym.api.options.environments import find_spec
from agym.cli.console import console, text_column
from agym.cli.options import EnvId
from agym.core.planning.verdicts import verdict_on
from agym.errors import AgymError

# The autoreset modes.
MODES = 3


def command(
    env: EnvId,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps of each of 8 environments in each autoreset mode.")
    ] = 10_000,
) -> None:
    """Compare a twin with SyncVectorEnv over the originals; remember the result."""
    spec = find_spec(env)
    with Progress(
        text_column("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console(stderr=True), transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task(f"comparing {env}", total=MODES * steps)
        verdict = verdict_on(
            spec,
            steps=MODES * steps,
            progress=lambda done: progress.update(task, completed=done),
        )
    if not verdict.equal:
        raise AgymError(
            f"{env} runs without its twin: {verdict}" if verdict.steps else str(verdict)
        )
    console().print(f"The twin of {env} is {verdict}.", soft_wrap=True, highlight=False)
