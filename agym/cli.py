"""Command line: one small file per command; here they are hung into one app.

What agym raises on purpose is shown as one sentence, without a traceback::

    exit code 0     done
              1     an environment, a worker or an extra failed, or a soak missed a requirement
              2     the command was given something that cannot work
              3     agym replay: not reproduced
              130   Ctrl-C
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from agym.bench.app import app as bench
from agym.console import console
from agym.demo import EXAMPLES as DEMO_EXAMPLES
from agym.demo import demo
from agym.errors import AgymError, AgymErrorGroup, UsageError
from agym.plan_command import EXAMPLES as PLAN_EXAMPLES
from agym.plan_command import plan_command
from agym.play_command import EXAMPLES as PLAY_EXAMPLES
from agym.play_command import play_command
from agym.record_command import EXAMPLES as RECORD_EXAMPLES
from agym.record_command import record_command
from agym.replay import EXAMPLES as REPLAY_EXAMPLES
from agym.replay import replay
from agym.trace_command import EXAMPLES as TRACE_EXAMPLES
from agym.trace_command import trace_command
from agym.watch_command import EXAMPLES as WATCH_EXAMPLES
from agym.watch_command import watch_command

EXAMPLES = """Examples:

agym demo

agym demo CartPole-v1 -n 1024 --workers 4

agym plan ALE/Pong-v5 16

agym watch CartPole-v1 -n 64

agym bench throughput CartPole-v1:8
"""


class Commands(TyperGroup):
    """The commands; errors of agym end them with one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run what the command line names."""
        here = str(Path.cwd())
        sys.path.insert(0, here)  # as `python` has it: for module:Env-v0 and --policy
        try:
            return super().invoke(ctx)
        except AgymError as error:
            errors = error.exceptions if isinstance(error, AgymErrorGroup) else [error]
            for each in errors:
                _complain(str(each))
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
        except KeyboardInterrupt:
            _complain("stopped")
            raise typer.Exit(130) from None
        finally:
            sys.path.remove(here)


def _complain(sentence: str) -> None:
    console(stderr=True).print(Text(sentence, style="red"), soft_wrap=True)


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
app.command(epilog=REPLAY_EXAMPLES)(replay)
app.command("trace", epilog=TRACE_EXAMPLES)(trace_command)
app.command("watch", epilog=WATCH_EXAMPLES)(watch_command)
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        console().print(f"agym {importlib.metadata.version('agym-envs')}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Tell and end."),
    ] = False,
) -> None:
    """Run many Gymnasium environments concurrently."""


if __name__ == "__main__":
    app()
