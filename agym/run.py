"""Run an async program on the fastest event loop that is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from agym.executors.supervisor import new_loop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run a coroutine as ``asyncio.run`` does: on uvloop where it is installed.

    Args:
        main: The program.
        debug: asyncio's debug mode; ``None`` for its default.

    Returns:
        What the program returns.
    """
    with asyncio.Runner(debug=debug, loop_factory=new_loop) as runner:
        return runner.run(main)
