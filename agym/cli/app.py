"""The ``agym`` command: assembles the commands, one file each, into one app.

Errors that agym raises on purpose are printed as one sentence, without a traceback::

    exit code 0     done
              1     an environment or a worker failed, or an extra is missing
              2     invalid usage
              3     agym rerun: not reproduced
              130   Ctrl-C
"""

from __future__ import annotations

import importlib.metadata
import os
from typing import Annotated

import typer

from agym.cli.commands import Commands
from agym.cli.console import console
from agym.cli.demo import EXAMPLES as DEMO_EXAMPLES
from agym.cli.demo import demo
from agym.cli.plan import EXAMPLES as PLAN_EXAMPLES
from agym.cli.plan import plan_command
from agym.cli.play import EXAMPLES as PLAY_EXAMPLES
from agym.cli.play import play_command
from agym.cli.record import EXAMPLES as RECORD_EXAMPLES
from agym.cli.record import record_command
from agym.cli.rerun import EXAMPLES as RERUN_EXAMPLES
from agym.cli.rerun import rerun
from agym.cli.serve import EXAMPLES as SERVE_EXAMPLES
from agym.cli.serve import serve_command
from agym.cli.trace import EXAMPLES as TRACE_EXAMPLES
from agym.cli.trace import trace_command
from agym.cli.watch import EXAMPLES as WATCH_EXAMPLES
from agym.cli.watch import watch_command
from agym.core._system.pygame_support import headless

EXAMPLES = """Examples:

agym demo

agym demo CartPole-v1 -n 1024 --workers 4

agym plan ALE/Pong-v5 16

agym watch CartPole-v1 -n 64
"""


app = typer.Typer(
    name="agym",
    cls=Commands,
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog=DEMO_EXAMPLES)(demo)
app.command("plan", epilog=PLAN_EXAMPLES)(plan_command)
app.command("play", epilog=PLAY_EXAMPLES)(play_command)
app.command("record", epilog=RECORD_EXAMPLES)(record_command)
app.command(epilog=RERUN_EXAMPLES)(rerun)
app.command("serve", epilog=SERVE_EXAMPLES)(serve_command)
app.command("trace", epilog=TRACE_EXAMPLES)(trace_command)
app.command("watch", epilog=WATCH_EXAMPLES)(watch_command)


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
