"""Fault injection: the faults that :func:`agym.chaos` triggers in a step, inside the worker."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from dataclasses import dataclass


class ChaosError(RuntimeError):
    """Raised in an environment by :func:`agym.chaos`."""


@dataclass(frozen=True)
class InjectedFault:
    """A fault to trigger.

    Attributes:
        kind: ``"kill"``, ``"segfault"``, ``"exit"``, ``"hang"``, ``"hang_gil"``, ``"error"`` or
            ``"delay"``.
        seconds: Duration of a hang or a delay.
    """

    kind: str
    seconds: float = 3600.0

    def trigger(self) -> None:
        """Trigger the fault; returns only after a delay or a short hang.

        Raises:
            ChaosError: The kind is ``"error"``.
        """
        if self.kind in ("hang", "delay"):
            time.sleep(self.seconds)
        elif self.kind == "hang_gil":
            ctypes.PyDLL(None).sleep(int(self.seconds))
        elif self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.kind == "exit":
            os._exit(1)
        else:
            raise ChaosError("agym.chaos injected an error")

    async def trigger_later(self) -> None:
        """Trigger the fault in a coroutine environment, without blocking the event loop."""
        if self.kind in ("hang", "delay"):
            await asyncio.sleep(self.seconds)
        else:
            self.trigger()
