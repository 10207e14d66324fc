"""Worlds of scripted environments, for tests of what is not a law; each worker has two of four."""

from __future__ import annotations

import os
import signal
import threading
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
    """Interrupt the block by Ctrl-C once an environment waits at the gate; then open the gate."""
    interrupted = threading.Event()

    def interrupt() -> None:
        with Path(gate.path).open("w"):
            os.kill(os.getpid(), signal.SIGINT)
            interrupted.wait(patience())

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    interrupted.set()
    thread.join()
