"""Environments that fail, each in its own way, and the exceptions they fail with."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from agym.testing.scripted import EXCEPTIONS as SCRIPTED
from tests.support.envs.plain_envs import Result, Tally


class Abrupt(BaseException):
    """No ``Exception``, as ``SystemExit`` is none."""


# The exceptions of scripted environments, by shorter names.
EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "plain": SCRIPTED["raise"],
    "stop-iteration": lambda: StopIteration("boom"),
    **{
        name.removeprefix("raise ").replace(" ", "-"): make
        for name, make in SCRIPTED.items() if name != "raise"
    },
}  # fmt: skip
ABRUPT: dict[str, Callable[[], BaseException]] = {
    "abrupt": lambda: Abrupt("boom"),
    "system-exit": lambda: SystemExit("boom"),
    "keyboard-interrupt": lambda: KeyboardInterrupt("boom"),
}


class Raises(Tally):
    """Raises ``exception`` in ``where``; a step does so when its action is 9."""

    def __init__(self, where: str, exception: str = "plain", length: int = 1000) -> None:
        super().__init__(length=length)
        self.where = where
        self.exception = exception
        self._maybe("make")

    def _maybe(self, where: str) -> None:
        if self.where == where:
            exception = {**EXCEPTIONS, **ABRUPT}[self.exception]
            raise exception()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._maybe("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Result:
        if action == 9:
            self._maybe("step")
        return super().step(action)

    def render(self) -> Any:
        self._maybe("render")
        return super().render()

    def close(self) -> None:
        self._maybe("close")


class Misfit(Tally):
    """Returns what its spaces do not hold: ``wrong`` says what."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong = wrong

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if action != 9:
            return observation, reward, terminated, truncated, info
        wrong = {
            "shape": (np.zeros(4), reward, terminated, truncated, info),
            "dtype": (np.zeros(3, complex), reward, terminated, truncated, info),
            "type": (None, reward, terminated, truncated, info),
            "reward": (observation, "much", terminated, truncated, info),
            "rewards": (observation, np.ones(2), terminated, truncated, info),
            "four": (observation, reward, terminated, info),
            "info": (observation, reward, terminated, truncated, 5),
        }
        return wrong[self.wrong]


class Hangs(Tally):
    """Says so on standard output and then hangs, when its action is 9.

    It hangs in Python, or ``in_c``: there it never gives the GIL back, whatever signals come.
    """

    def __init__(self, in_c: bool = False) -> None:
        super().__init__(length=10**9)
        self._in_c = in_c

    def step(self, action: Any) -> Result:
        if action == 9:
            self.hang()
        return super().step(action)

    def hang(self) -> None:
        os.write(1, b"hangs\n")
        if self._in_c:
            reader, self._writer = os.pipe()
            ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)
        while True:
            pass

    def pid(self) -> int:
        return os.getpid()


class Babbles(Tally):
    """Sends bytes of its own on its worker's channel when its action is 9."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def step(self, action: Any) -> Result:
        if action == 9:
            self._babble()
        return super().step(action)

    def _babble(self) -> None:
        """Send them on the socket whose other end was made in another process: the channel."""
        for descriptor in range(3, 1000):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as channel:
                peer = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                if struct.unpack("3i", peer)[0] != os.getpid():
                    channel.sendall(self._data)
                    return
