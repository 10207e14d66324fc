"""Progress of a benchmark: one line on stderr, redrawn only between timed parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.progress import BarColumn, Progress, TaskID, TimeElapsedColumn

from agym.cli.console import console, text_column

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Bar:
    """The progress line."""

    progress: Progress
    task: TaskID

    @contextmanager
    def part(self, name: str) -> Iterator[Announce]:
        """Show one part of the benchmark; the result is called with a few words on each step."""
        self.progress.update(self.task, description=name)
        yield lambda doing: self.progress.update(self.task, doing=doing, refresh=True)
        self.progress.advance(self.task)


@contextmanager
def progress_bar(parts: int) -> Iterator[Bar]:
    """Show progress until the end of the block."""
    columns = text_column("{task.description:20}"), BarColumn(), TimeElapsedColumn()
    with Progress(
        *columns, text_column("{task.fields[doing]}"),
        console=console(stderr=True), auto_refresh=False, transient=True,
    ) as progress:  # fmt: skip
        yield Bar(progress, progress.add_task("", total=parts, doing=""))
