"""The output of the commands: consoles, which print text as it is, and errors as one sentence.

Rich would treat ``[sb3]`` in ``agym-envs[sb3]`` as a style and drop it. Every command therefore
makes its console and the text columns of its progress bars here.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text
from typer.core import TyperGroup

from agym.errors import AgymError, AgymErrorGroup, UsageError


def console(**options: Any) -> Console:
    """Return a console for text and tables; options are rich's, such as ``stderr=True``."""
    return Console(markup=False, **options)


def text_column(text: str) -> TextColumn:
    """Return a column of a progress bar, such as ``"{task.description}"``."""
    return TextColumn(text, markup=False)


class Commands(TyperGroup):
    """Prints agym's errors as one sentence, and sets the exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # some encodings lack a character
        try:
            return super().main(*args, **options)
        except OSError:
            try:
                sys.stdout.write("\n")  # test whether the error is about the output
                sys.stdout.flush()
            except OSError as error:
                sys.stdout = None  # or Python would flush it again at exit
                _complain(f"the output cannot be written: {error.strerror}")
                sys.exit(1)
            raise

    def invoke(self, ctx: Any) -> Any:
        here = str(Path.cwd())
        sys.path.insert(0, here)  # as `python` does: for module:Env-v0 and --policy
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
