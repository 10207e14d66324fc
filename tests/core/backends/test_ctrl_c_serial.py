"""Ctrl-C at any point of a serial step: nothing is half done afterwards."""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import agym
from tests.support.equality import same

SERIAL: dict[str, Any] = {"backend": "serial", "autoreset": "next_step", "output": "array"}

PACKAGE = str(Path(agym.__file__).parent)


SMALL, LARGE = 3, 80_000  # batches of so many floats are leased


class Show(gym.Env[Any, Any]):
    """Shows its steps, and also tells them."""

    action_space = spaces.Discrete(10)

    def __init__(self, size: int) -> None:
        self.observation_space = spaces.Box(0, 99, (size,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.now = 0
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        shown = np.full(self.observation_space.shape, self.now + action, np.float32)
        return shown, 1.0, self.now == 2, False, {"now": self.now}


class Interrupt:
    """Sends SIGINT at the n-th line of agym's that is run; a function for ``sys.settrace``."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_code.co_filename.startswith(PACKAGE):
            self.left -= 1
            if not self.left:
                signal.raise_signal(signal.SIGINT)
        return self


def play(envs: agym.Envs[Any, Any]) -> Any:
    return envs.reset(seed=0), envs.step([1, 2]), envs.step([3, 4]), envs.step([5, 6])


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_whatever_line_it_comes_at(size: int) -> None:
    line, interrupted = 0, True
    handler, tracer = signal.getsignal(signal.SIGINT), sys.gettrace()
    with agym.make(partial(Show, size), 2, **SERIAL) as envs:
        expected = play(envs)
        while interrupted:
            line += 1
            interrupt = Interrupt(line)
            kept, _ = envs.reset(seed=0)
            before = kept.copy()
            sys.settrace(interrupt)
            try:
                envs.step([1, 2])
            except KeyboardInterrupt:
                assert not interrupt.left
            finally:
                sys.settrace(tracer)
            interrupted = not interrupt.left
            assert signal.getsignal(signal.SIGINT) is handler
            with suppress(agym.ResetNeededError):
                envs.step([1, 2])
            again = play(envs)
            assert [same(a, b) for a, b in zip(again, expected, strict=True)] == [True] * 4
            assert same(kept, before)
        if size == LARGE:  # no memory was lost: the latest batch is no copy
            del kept, expected, again
            gc.collect()
            envs.reset(seed=0)
            assert not envs.step([1, 2]).observations.flags.owndata
    assert line > 50
