"""Backends: where environments run, and the options of each."""

from agym.backends.options import (
    Asyncio,
    Auto,
    BackendSpec,
    Native,
    Process,
    Ray,
    Serial,
    Thread,
)

__all__ = ["Asyncio", "Auto", "BackendSpec", "Native", "Process", "Ray", "Serial", "Thread"]
