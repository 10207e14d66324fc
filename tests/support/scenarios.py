"""Stories: what a script does with environments, row by row, to hold runs against each other."""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.drivers import FORKED, Player, Setup, played
from tests.support.envs.trapped_envs import Traps
from tests.support.equality import same
from tests.support.patience import patience

Row = tuple[Any, ...]

STEPS = 14
COUNT = 4

# Two environments in each worker.
PROCESS = Setup("process", False, {**FORKED, "workers": 2})
COROUTINES = Setup("process-coroutines", True, {**FORKED, "workers": 2})
THREAD = Setup("thread", False, {"backend": "thread", "workers": 2})
ASYNCIO = Setup("asyncio", True, {"backend": "asyncio"})
SERIAL = Setup("serial", False, {"backend": "serial"})


def over(*setups: Setup) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("setup", setups, ids=lambda setup: setup.name)


@pytest.fixture
def traps(tmp_path: Path) -> Iterator[Traps]:
    traps = Traps(tmp_path)
    yield traps
    traps.release()  # also when the test fails


def trapped(setup: Setup, traps: Traps, count: int = COUNT, **keywords: Any) -> list[Any]:
    coroutines = setup in (COROUTINES, ASYNCIO)
    return traps.factories(count, coroutines=coroutines, **keywords)


def rows(result: Any) -> list[Row]:
    """What a step gave, by environment."""
    observations, rewards, terminated, truncated, infos = result
    return [
        (
            observations[k].tolist(),
            float(rewards[k]),
            bool(terminated[k]),
            bool(truncated[k]),
            infos[k],
        )
        for k in range(len(infos))
    ]


def beginnings(result: Any) -> list[Row]:
    """What a reset gave, by environment."""
    observations, infos = result
    return [(observations[k].tolist(), infos[k]) for k in range(len(infos))]


def play(
    envs: Player | Any, before: Callable[[int], object] = lambda _: None, steps: int = STEPS
) -> list[list[Row]]:
    """Reset with a seed, step, and reset once more, without one; ``before`` is told of each step.

    Returns:
        For each environment what it gave.
    """
    told = [beginnings(envs.reset(seed=3))]
    for k in range(steps):
        before(k)
        if k == RESET_AT:
            told.append(beginnings(envs.reset()))
        else:
            told.append(rows(envs.step([(k + i) % 9 for i in range(envs.num_envs)])))
    return [list(column) for column in zip(*told, strict=True)]


RESET_AT = 9


@functools.cache
def undisturbed(mode: str) -> list[list[Row]]:
    """The story of :class:`Trapped` environments that nothing happens to."""
    with tempfile.TemporaryDirectory() as folder:
        factories = Traps(Path(folder)).factories(COUNT)
        with played("sync", factories, backend="serial", autoreset=mode) as envs:
            return play(envs)


def disturbed(told: Sequence[Sequence[Row]], expected: Sequence[Sequence[Row]]) -> dict[int, int]:
    """Which environments' stories differ, and from where on."""
    found = {}
    for i, (mine, theirs) in enumerate(zip(told, expected, strict=True)):
        differing = [k for k, pair in enumerate(zip(mine, theirs, strict=True)) if not same(*pair)]
        if differing:
            found[i] = differing[0]
    return found


def wait_for_threads() -> None:
    """Wait for threads that were left behind and are let go."""
    for thread in threading.enumerate():
        if thread.name.startswith("agym-"):
            thread.join(patience())
            assert not thread.is_alive()
