"""``agym plan``: show which backend is best for an environment, and why.

Examples:
agym plan CartPole-v1 64

agym plan ALE/Pong-v5 16 --verify

agym plan Acrobot-v1 32 --async
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TimeElapsedColumn

from agym import plan
from agym.cli.console import console, text_column
from agym.cli.options import MAX_ENVS, EnvId, flag
from agym.errors import MissingExtraError, UsageError


def command(
    env: EnvId,
    num_envs: Annotated[
        int, typer.Argument(min=1, max=MAX_ENVS, help="Number of environments.")
    ] = 1,
    verify: Annotated[
        bool, flag("--verify", "Also run all environments on every backend.")
    ] = False,
    loop: Annotated[
        bool, flag("--async", "Plan for make_async: never block its event loop.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers.", show_default="any number")
    ] = None,
) -> None:
    """Measure one environment, predict the time per batch of each backend, and choose one."""
    with Progress(
        text_column("{task.description}"), BarColumn(), TimeElapsedColumn(),
        console=console(stderr=True), auto_refresh=False, transient=True,
    ) as progress:  # fmt: skip
        progress.add_task(f"measuring {env}", total=None)
        progress.refresh()
        try:
            result = plan(env, num_envs, blocking=not loop, workers=workers, verify=verify)
        except (UsageError, MissingExtraError):
            raise
        except Exception as error:
            raise UsageError(f"{env} cannot be measured: {str(error) or repr(error)}") from error
    console().print(str(result), soft_wrap=True, highlight=False)
