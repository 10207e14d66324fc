"""Fault injection: the faults that :func:`agym.chaos` triggers in a step, inside the worker."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass


class ChaosError(RuntimeError):
    """Raised in an environment by :func:`agym.chaos`."""


def _raise(seconds: float) -> None:
    raise ChaosError("agym.chaos injected an error")


def _segfault(seconds: float) -> None:
    faulthandler.disable()  # the traceback of an intended crash would only alarm its reader
    os.kill(os.getpid(), signal.SIGSEGV)


# The effect of each kind of fault; the argument is its duration in seconds.
FAULTS: dict[str, Callable[[float], object]] = {
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": _segfault,
    "exit": lambda _: os._exit(1),
    "hang": time.sleep,
    "hang_gil": lambda seconds: ctypes.PyDLL(None).sleep(int(seconds)),
    "error": _raise,
    "delay": time.sleep,
}


@dataclass(frozen=True)
class InjectedFault:
    """A fault to trigger.

    Attributes:
        kind: A key of :data:`FAULTS`.
        seconds: Duration of a hang or a delay.
    """

    kind: str
    seconds: float = 3600.0

    def trigger(self) -> None:
        """Trigger the fault; returns only after a delay or a short hang.

        Raises:
            ChaosError: The kind is ``"error"``.
        """
        FAULTS[self.kind](self.seconds)

    async def trigger_async(self) -> None:
        """Trigger the fault in a coroutine environment, without blocking the event loop."""
        if FAULTS[self.kind] is time.sleep:
            await asyncio.sleep(self.seconds)
        else:
            self.trigger()
