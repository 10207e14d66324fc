"""``agym rerun``: reproduce a failure from its capsule, so that it can be debugged.

Exit codes::

    0         reproduced
    1         hangs in C code that never returns to Python; the stack is shown
    2         the file cannot be rerun
    3         not reproduced
    a signal  reproduced: the process died as the worker did

Examples:
agym rerun faults/env3-step-20260102T101112-1a2b3c4d.agym

agym rerun env3-step-20260102T101112-1a2b3c4d.agym --pdb

agym rerun env3-step-20260102T101112-1a2b3c4d.agym --timeout 60
"""

from __future__ import annotations

import bdb
import faulthandler
import pdb
import sys
import time
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress
from rich.table import Table
from rich.text import Text

from agym.cli.console import console, text_column
from agym.cli.options import flag, number
from agym.core._system.files import versions
from agym.core._system.watchdog import STDERR, Hang
from agym.core.engine.faults.capsule import Capsule, describe_error, read_capsule, shown
from agym.core.protocol.messages.failures import behind
from agym.errors import UsageError
from agym.faults.rerun import Ending, Watch, rerun

# The progress bar appears after QUICK_SECONDS and is redrawn every DRAW_SECONDS.
QUICK_SECONDS = 2.0
DRAW_SECONDS = 0.1

NOT_REPRODUCED = 3


def command(
    file: Annotated[Path, typer.Argument(help="Capsule file. Only open capsules you trust.")],
    debug: Annotated[bool, flag("--pdb", "Open the debugger at the failure.")] = False,
    timeout: Annotated[
        float, number("Seconds after which a step counts as hung.", min=0.001)
    ] = 10.0,
) -> None:
    """Reproduce the failure of an environment in this process, from its capsule.

    A capsule can run any code when it is opened: only open capsules you trust.

    Exit code 0: reproduced; 3: not reproduced; 2: the file cannot be rerun.

    A failure that killed the worker kills this process by the same signal.

    A hang in C code that never returns to Python has exit code 1, and its stack is shown.
    """
    capsule = read_capsule(file)
    console().print(table(capsule))
    if capsule.factory is None:
        raise UsageError(f"{file} cannot be rerun: {'; '.join(capsule.missing)}")
    for warning in lacks(capsule):
        _warn(warning)
    reporter = _Reporter(capsule, debug, timeout)
    watch = Watch(reporter.after_step, reporter.last, reporter.ended, reporter.stuck, timeout)
    if capsule.fault.kind == "died":
        faulthandler.enable(STDERR)
    try:
        ending = rerun(capsule, watch)
    finally:
        reporter.stop_bar()
        if capsule.fault.kind == "died":
            faulthandler.disable()
    if not is_reproduced(capsule, ending):
        raise typer.Exit(NOT_REPRODUCED)


class _Reporter:
    """Shows the progress and the result of a rerun."""

    def __init__(self, capsule: Capsule, debug: bool, timeout: float) -> None:
        self._capsule = capsule
        self._debug = debug
        self._timeout = timeout
        self._started_at = self._drawn = time.monotonic()
        self._shown = False
        columns = text_column("actions"), BarColumn(), MofNCompleteColumn()
        self._bar = Progress(
            *columns, console=console(stderr=True), auto_refresh=False, transient=True
        )
        self._task = self._bar.add_task("", total=len(capsule.actions))

    def after_step(self, steps: int) -> None:
        now = time.monotonic()
        if now - self._started_at > QUICK_SECONDS and now - self._drawn > DRAW_SECONDS:
            self._drawn = now
            self._shown = True
            self._bar.start()
            self._bar.update(self._task, completed=steps, refresh=True)

    def stop_bar(self) -> None:
        if self._shown:
            self._shown = False
            self._bar.stop()

    def last(self) -> None:
        """Announce the operation that failed: the next line of the calling frame runs it."""
        self.stop_bar()
        kind, operation = self._capsule.fault.kind, self._capsule.fault.operation
        if kind == "timeout":
            _warn(f"running the {operation} that hung, for up to {self._timeout:g} s")
        elif kind == "died" and self._debug:
            _warn(f"the next line runs the {operation} that died: s steps into it, c continues")
            frame = sys._getframe().f_back
            pdb.Pdb().set_trace(frame)
        elif kind == "died":
            _warn("this process is about to die as the worker did")
        sys.stdout.flush()

    def ended(self, ending: Ending) -> None:
        """Report the result, and open the debugger if ``--pdb`` was given."""
        self.stop_bar()
        error = ending.error
        where = None if error is None else _skip_our_frames(error.__traceback__)
        if error is not None and not isinstance(error, bdb.BdbQuit):
            lines = traceback.format_exception(type(error), error, where)
            _warn("".join(traceback.format_tb(where) if isinstance(error, Hang) else lines), "")
        if not is_reproduced(self._capsule, ending) and self._capsule.fault.traceback:
            _warn(f"The recorded failure:\n\n{self._capsule.fault.traceback}", "")
        _say(verdict(self._capsule, ending, self._timeout))
        if self._debug and where is not None and not isinstance(error, bdb.BdbQuit):
            pdb.post_mortem(where)

    def stuck(self, operation: str, frame: FrameType) -> None:
        """Report a hang that cannot be interrupted; a debugger cannot open then, either."""
        _warn("".join(traceback.format_stack(frame)), "")
        _say(verdict(self._capsule, Ending(Hang(), operation, 0, True), self._timeout))
        sys.stdout.flush()


def is_reproduced(capsule: Capsule, ending: Ending) -> bool:
    """Return whether the environment failed as recorded: the same exception, or a hang."""
    fault, error = capsule.fault, ending.error
    if error is None or not ending.last:
        return False
    if fault.kind == "timeout":
        return isinstance(error, Hang)
    return fault.kind == "raised" and fault.error.split(":")[0] == type(error).__name__


def verdict(capsule: Capsule, ending: Ending, timeout: float) -> str:
    """Return one sentence: whether the failure was reproduced, and what happened."""
    fault, error = capsule.fault, ending.error
    name = f"environment {fault.env_id}"
    if isinstance(error, bdb.BdbQuit):
        return f"NOT reproduced: the debugger quit before the {fault.operation} that failed"
    if error is None:
        return f"NOT reproduced: {name} did not fail; the recorded failure is: {fault.error}"
    if isinstance(error, Hang):
        failure = f"hangs in {ending.operation}, for more than {timeout:g} s"
    else:
        failure = f"raised {describe_error(error)} in {ending.operation}"
    if is_reproduced(capsule, ending):
        return f"reproduced: {name} {failure}"
    place = "" if ending.last else f", after {ending.steps} of {len(capsule.actions)} actions"
    recorded = f"the recorded failure is: {fault.error} in {fault.operation}"
    return f"NOT reproduced: {name} {failure}{place}; {recorded}"


def lacks(capsule: Capsule) -> list[str]:
    """Return the reasons why the rerun may differ from the recording, a sentence each."""
    sentences = [f"the capsule lacks {part}" for part in capsule.missing]
    if not capsule.complete and not sentences:
        sentences.append(
            "the capsule lacks the start of the episode (the episode had more actions than"
            " replay_limit, or its reset was not recorded)"
        )
    if sentences:
        sentences.append("so the failure cannot be reproduced exactly")
    here = versions()
    for name, old in capsule.versions.items():
        if old != here[name]:
            sentences.append(f"it was written with {name} {old}, but {here[name]} is installed")
    return sentences


def table(capsule: Capsule) -> Table:
    """Return a table of the capsule's contents."""
    fault, start = capsule.fault, capsule.start
    reset = f"seed {start.seed}" if start.rng is None else "state of its random numbers"
    rows: dict[str, Any] = {
        "environment": f"{fault.env_id}: {capsule.factory_text}",
        "failed in": f"{fault.operation} (episode {fault.episode}, step {fault.step})",
        "error": f"{fault.error} ({fault.kind})",
        "reset": reset if not start.options else f"{reset}, options {shown(start.options)}",
        "actions": f"{len(capsule.actions)} since the reset (autoreset {capsule.autoreset})",
        "last action": shown(fault.action),
    }
    shape = Table(show_header=False)
    for name, value in rows.items():
        shape.add_row(name, Text(value))
    return shape


def _skip_our_frames(where: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that is in the environment's code, if there is any."""
    outer = where
    while outer is not None:
        after = outer.tb_next
        if after is not None and after.tb_frame.f_globals.get("__name__") == Hang.__module__:
            outer.tb_next = after = None
        outer = after
    return behind(where, "agym.faults.", "agym.core.hosts.")


def _say(sentence: str) -> None:
    console().print(Text(sentence), soft_wrap=True)


def _warn(text: str, style: str = "yellow") -> None:
    console(stderr=True).print(Text(text.rstrip("\n"), style=style), soft_wrap=True)
