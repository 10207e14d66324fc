"""Worlds of scripted environments, for tests of what is not a law; each worker has two of four."""

from __future__ import annotations

from typing import Any

import pytest

from agym.testing import World
from tests.support.backends import FORK

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
