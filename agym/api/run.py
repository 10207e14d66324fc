"""Run an async program on the fastest event loop that is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from agym.core.backends.process.worker_process import new_loop
from agym.errors import UsageError, UsageTypeError

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run a coroutine as ``asyncio.run`` does, on uvloop where it is installed.

    Example:
        >>> import agym, asyncio
        >>> async def main():
        ...     await asyncio.sleep(0)
        ...     return 1
        >>> agym.run(main())
        1

    Args:
        main: The coroutine.
        debug: asyncio's debug mode; ``None`` for its default.

    Returns:
        The coroutine's result.

    Raises:
        UsageError: A loop is running already, or ``main`` is not a coroutine.
    """
    if not asyncio.iscoroutine(main):
        name = getattr(main, "__name__", "main")
        remedy = f": call it, agym.run({name}())" if callable(main) else ""
        raise UsageTypeError(f"agym.run needs a coroutine, not {type(main).__name__}{remedy}")
    if asyncio._get_running_loop() is not None:
        main.close()
        raise UsageError(
            "an event loop is running already, as in Jupyter or inside a coroutine: write"
            f" `await {getattr(main, '__name__', 'main')}()` there instead of agym.run"
        )
    with asyncio.Runner(debug=debug, loop_factory=new_loop) as runner:
        return runner.run(main)
