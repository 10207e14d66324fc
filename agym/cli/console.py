"""Consoles of the commands; they print text as it is, without rich's markup.

Rich would treat ``[sb3]`` in ``agym-envs[sb3]`` as a style and drop it. Every command therefore
makes its console and the text columns of its progress bars here.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import TextColumn


def console(**options: Any) -> Console:
    """Return a console for text and tables; options are rich's, such as ``stderr=True``."""
    return Console(markup=False, **options)


def text_column(text: str) -> TextColumn:
    """Return a column of a progress bar, such as ``"{task.description}"``."""
    return TextColumn(text, markup=False)
