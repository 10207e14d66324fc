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
    Twin,
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
    "Twin",
    "Vector",
]
