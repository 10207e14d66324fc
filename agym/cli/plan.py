"""``agym plan``: show which backend suits an environment, and why."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TimeElapsedColumn
from rich.table import Table

from agym.api.auto.plan import plan
from agym.backends.options import Ray
from agym.cli.console import console, text_column
from agym.cli.options import MAX_ENVS, finite
from agym.errors import MissingExtraError, UsageError
from agym.planning.model import Candidate
from agym.planning.plans import Plan, describe

EXAMPLES = """Examples:

agym plan CartPole-v1 64

agym plan ALE/Pong-v5 16 --verify

agym plan Acrobot-v1 32 --async --overlap 0.002

agym plan HumanoidStandup-v5 1024 --cluster
"""


def plan_command(
    env: Annotated[str, typer.Argument(help="Id of the environment.")],
    num_envs: Annotated[
        int, typer.Argument(min=1, max=MAX_ENVS, help="Number of environments.")
    ] = 1,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Also measure every backend with all environments.", show_default="off"
        ),
    ] = False,
    loop: Annotated[
        bool,
        typer.Option(
            "--async", help="Plan for make_async: nothing may block its loop.", show_default="off"
        ),
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers.", show_default="any number")
    ] = None,
    overlap: Annotated[
        float,
        typer.Option(
            min=0,
            callback=finite,
            help="Seconds that the caller computes while a batch is stepped.",
        ),
    ] = 0.0,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Also consider a Ray cluster, and say if it pays.", show_default="off"
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(help="Address of the Ray cluster; implies --cluster.", show_default="none"),
    ] = None,
) -> None:
    """Measure one environment, predict the time of a batch on every backend, and choose one."""
    if address is not None and not address.strip():
        raise UsageError("--address is empty: take one such as ray://head:10001, or auto")
    with Progress(
        text_column("{task.description}"), BarColumn(), TimeElapsedColumn(),
        console=console(stderr=True), auto_refresh=False, transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task("measuring one environment", total=None)
        progress.refresh()

        def announce(candidate: Candidate) -> None:
            progress.update(task, description=f"trying {candidate.name}", total=None, refresh=True)

        def measuring(share: float) -> None:
            progress.update(
                task, description="measuring this machine, once", total=1.0, completed=share,
                refresh=True,
            )  # fmt: skip

        try:
            found = plan(
                env, num_envs, blocking=not loop, workers=workers, overlap=overlap, verify=verify,
                cluster=Ray(address=address) if cluster or address else False,
                on_candidate=announce, on_progress=measuring,
            )  # fmt: skip
        except (UsageError, MissingExtraError):
            raise
        except Exception as error:
            raise UsageError(f"{env} cannot be measured: {str(error) or repr(error)}") from error
    output = console()
    output.print(table(found))
    if found.profile is not None:
        output.print(describe(found.profile), soft_wrap=True, highlight=False)
    output.print(found.why, soft_wrap=True, highlight=False)


def table(found: Plan) -> Table:
    """Return a table with a row per candidate."""
    names, rows = found.rows()
    shown = Table(title=f"{found.name} ×{found.num_envs}, time per batch")
    for name in names:
        right = name in ("workers", "predicted", "pessimistic", "measured")
        shown.add_column(name, justify="right" if right else "left")
    for row in rows:
        shown.add_row(*row, style="bold" if row[0] else None)
    return shown
