"""The event loop of all async measurements: uvloop's where it is installed."""

from __future__ import annotations

import asyncio

from agym.core.backends.process.worker_process import new_loop


def new_runner() -> asyncio.Runner:
    """Return a runner; its loop does not run between two calls."""
    return asyncio.Runner(loop_factory=new_loop)
