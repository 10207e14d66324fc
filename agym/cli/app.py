"""The ``agym`` command: assembles the commands, one file each, into one app.

Errors that agym raises on purpose are printed as one sentence, without a traceback::

    exit code 0     done
              1     an environment or a worker failed, or an extra is missing
              2     invalid usage
              3     agym rerun: not reproduced
              130   Ctrl-C

Examples:
agym demo

agym demo CartPole-v1 -n 1024 --workers 4

agym plan ALE/Pong-v5 16

agym watch CartPole-v1 -n 64
"""

from __future__ import annotations

import importlib.metadata
import os
from typing import Annotated

import typer

from agym.cli import demo, plan, play, prove, record, rerun, serve, trace, watch
from agym.cli.console import Commands, console
from agym.core._system.pygame_support import headless


def examples(docstring: str | None) -> str:
    """Return the examples at the end of a module's docstring."""
    return "Examples:\n\n" + (docstring or "").partition("Examples:")[2].lstrip()


app = typer.Typer(
    name="agym",
    cls=Commands,
    epilog=examples(__doc__),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (demo, plan, play, prove, record, rerun, serve, trace, watch):
    name = module.__name__.rpartition(".")[2]
    app.command(name, epilog=examples(module.__doc__))(module.command)


def _show_version(wanted: bool) -> None:
    if wanted:
        console().print(f"agym {importlib.metadata.version('agym-envs')}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show version and exit."
        ),
    ] = False,
) -> None:
    """Run many Gymnasium environments concurrently."""
    # Only a rerun environment may have render_mode="human", which opens a window.
    os.environ.update(headless(always=context.invoked_subcommand != "rerun"))
