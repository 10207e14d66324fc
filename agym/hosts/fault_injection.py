"""Afflictions: what chaos does to a step, for good, in the place where the environment lives."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from dataclasses import dataclass


class ChaosError(RuntimeError):
    """What an environment raises that was told to by :func:`agym.chaos`."""


@dataclass(frozen=True)
class InjectedFault:
    """One thing to go wrong.

    Attributes:
        kind: ``"kill"``, ``"segfault"``, ``"exit"``, ``"hang"``, ``"hang_gil"``, ``"error"`` or
            ``"delay"``.
        seconds: How long a hang or a delay takes.
    """

    kind: str
    seconds: float = 3600.0

    def trigger(self) -> None:
        """Do it; only a delay, or a hang that was too short, comes back.

        Raises:
            ChaosError: That is what is to be done.
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
            raise ChaosError("agym.chaos struck")

    async def trigger_later(self) -> None:
        """The same for a coroutine environment, which must not hold its loop up."""
        if self.kind in ("hang", "delay"):
            await asyncio.sleep(self.seconds)
        else:
            self.trigger()
