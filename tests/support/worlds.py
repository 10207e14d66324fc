"""Worlds of scripted environments, for tests of what is not a law; each worker has two of four."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agym.testing import World
from agym.testing.scripted import Gate
from tests.support.backends import FORK
from tests.support.patience import patience

SERIAL = World("serial")
THREAD = World("thread", workers=2)
PROCESS = World(FORK, workers=2)
COROUTINES = World(FORK, kind="coroutine", workers=2)
ASYNCIO = World("asyncio", kind="coroutine")


def over(*worlds: World) -> pytest.MarkDecorator:
    """Run a test in each of these worlds."""
    return pytest.mark.parametrize("world", worlds, ids=str)


def steps_of(result: Any) -> list[list[int]]:
    """The step and the action that each row of a result observes."""
    rows: list[list[int]] = result.observations[:, 2:].tolist()
    return rows


@contextmanager
def ctrl_c(gate: Gate) -> Iterator[None]:
    """Interrupt the block by Ctrl-C while an environment waits at the gate; then open the gate.

    The caller sleeps by then: an interrupt of ``step_async`` would be another test.
    """
    interrupted = threading.Event()
    caller = threading.get_ident()

    def sleeps() -> bool:
        frames = traceback.walk_stack(sys._current_frames()[caller])
        return any(frame.f_code.co_name == "sleep_on" for frame, _ in frames)

    def interrupt() -> None:
        end = time.monotonic() + patience()
        with Path(gate.path).open("w"):
            while not sleeps() and time.monotonic() < end:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            interrupted.wait(patience())

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    interrupted.set()
    thread.join()
