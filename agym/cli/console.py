"""Consoles of the commands: what they print is text, never rich's markup.

Rich takes ``[sb3]`` in ``agym-envs[sb3]`` for a style, and leaves it out. So every command makes
its console, and the words beside its progress bars, here.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import TextColumn


def console(**options: Any) -> Console:
    """A console for text and tables; the options are rich's, such as ``stderr=True``."""
    return Console(markup=False, **options)


def text_column(text: str) -> TextColumn:
    """A column of a progress bar, such as ``"{task.description}"``."""
    return TextColumn(text, markup=False)
