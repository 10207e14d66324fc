"""A group of commands: an error of agym ends it with one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from agym.cli.console import console
from agym.errors import AgymError, AgymErrorGroup, UsageError


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
