"""The options of the backends on which environments run, and the names of the backends."""

from agym.core.backends.options import (
    Asyncio,
    Auto,
    BackendName,
    BackendSpec,
    Process,
    Ray,
    Serial,
    Thread,
    Vector,
)

__all__ = [
    "Asyncio",
    "Auto",
    "BackendName",
    "BackendSpec",
    "Process",
    "Ray",
    "Serial",
    "Thread",
    "Vector",
]
