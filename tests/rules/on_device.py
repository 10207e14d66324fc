"""Plays on a GPU, or numba's simulator of one, and prints a line for each way."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

import agym
from agym.envs.games.pong import Pong
from tests.rules.books import BOOKS, Everything
from tests.rules.playing import play_same, side_by_side
from tests.support.equality import same


def compare(rules: Any, mode: AutoresetMode, **options: Any) -> None:
    """Compare with plain Python."""
    envs = side_by_side(rules, ["cuda"], 3, mode, max_episode_steps=15, **options)
    _, ended = play_same(envs, 4, 40, resets=18)
    assert ended > 3, ended
    sys.stdout.write(f"{rules.__name__}:{mode.name}\n")


def stay_there() -> None:
    """Results and actions need not leave the device, and results are overwritten."""
    from numba import cuda

    ours = agym.vectorize(Everything, 5, engine="cuda", copy=False)
    theirs = agym.vectorize(Everything, 5, engine="python")
    ours.action_space.seed(0)
    (first, _), (expected, _) = ours.reset(seed=3), theirs.reset(seed=3)
    assert not isinstance(first, np.ndarray)
    assert same(first.copy_to_host(), expected)
    for _ in range(10):
        actions = ours.action_space.sample()
        *results, info = ours.step(cuda.to_device(actions))
        *others, other = theirs.step(actions)
        assert results[0] is first
        assert same([part.copy_to_host() for part in results], list(others))
        for name in ("wide", "flag", "board", "real"):
            assert same(np.ascontiguousarray(info[name].copy_to_host()), other[name])
    ours.close()
    sys.stdout.write("stay\n")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "Grid size .* low occupancy")
    for name, book in BOOKS.items():
        for each in AutoresetMode if name == "Everything" else [AutoresetMode.SAME_STEP]:
            compare(book, each)
    compare(Pong, AutoresetMode.NEXT_STEP, points=1)
    compare(Everything, AutoresetMode.SAME_STEP, goal=np.array([9, 50, 200]))
    stay_there()
