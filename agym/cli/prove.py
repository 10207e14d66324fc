"""``agym prove``: compare environments' twins with the originals, bit for bit.

Examples:
agym prove HalfCheetah-v5

agym prove CartPole-v1 Taxi-v4 --steps 100000

agym prove --all
"""

from __future__ import annotations

from typing import Annotated

import gymnasium
import typer
from gymnasium.envs.registration import EnvSpec
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from agym.api.options.environments import find_spec
from agym.cli.console import console, text_column
from agym.cli.options import flag
from agym.core.hosts.vector.twins import twin_of
from agym.core.planning.verdicts import Verdict, verdict_on
from agym.errors import AgymError, UsageError

# The autoreset modes.
MODES = 3


def command(
    envs: Annotated[
        list[str] | None, typer.Argument(metavar="ENV...", help="Ids of environments.")
    ] = None,
    every: Annotated[bool, flag("--all", "All registered environments that have a twin.")] = False,
    steps: Annotated[
        int, typer.Option(min=100, help="Steps of each of 8 environments in each autoreset mode.")
    ] = 10_000,
) -> None:
    """Compare twins with SyncVectorEnv over the originals; remember the results."""
    if every == bool(envs):
        raise UsageError("name environments, as in `agym prove CartPole-v1`, or use --all")
    specs = [find_spec(each) for each in envs or ()] or [
        spec for spec in gymnasium.registry.values() if twin_of(spec)[0] is not None
    ]
    different = []
    for spec in specs:
        verdict = compare(spec, steps)
        if verdict.equal:
            text = f"The twin of {spec.id} is {verdict}."
            console().print(text, soft_wrap=True, highlight=False)
        else:
            different.append(
                f"{spec.id} runs without its twin: {verdict}" if verdict.steps else str(verdict)
            )
    if different:
        raise AgymError("; ".join(different))


def compare(spec: EnvSpec, steps: int) -> Verdict:
    """Compare one twin, with a progress bar."""
    with Progress(
        text_column("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console(stderr=True), transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task(f"comparing {spec.id}", total=MODES * steps)
        return verdict_on(
            spec,
            steps=MODES * steps,
            progress=lambda done: progress.update(task, completed=done),
        )
