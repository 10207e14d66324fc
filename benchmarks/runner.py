"""The event loop of all measurements of the async face: uvloop's where it is installed."""

from __future__ import annotations

import asyncio

from agym.backends.process.supervisor import new_loop


def new_runner() -> asyncio.Runner:
    """Make a runner, whose loop stands still between two runs."""
    return asyncio.Runner(loop_factory=new_loop)
