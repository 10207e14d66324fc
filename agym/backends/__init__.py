"""The option classes of the backends on which environments run."""

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
