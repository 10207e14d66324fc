"""Ctrl-C at any point of a step in the caller's thread: nothing is half done afterwards."""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from gymnasium import spaces

import agym
from agym.core.backends.options import ProcessWithCaller
from agym.testing import RandomEnv
from tests.support.equality import same

ARRAYS: Any = {"autoreset": "next_step", "output": "array"}
CALLER = ProcessWithCaller(start_method="fork")

PACKAGE = str(Path(agym.__file__).parent)


SMALL, LARGE = 3, 80_000  # batches of so many floats are leased


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
    steps = ([k, k + 1] * (len(envs) // 2) for k in (1, 3, 5))
    return envs.reset(seed=0), *map(envs.step, steps)


@pytest.mark.parametrize(
    ("size", "num_envs", "options"),
    [
        pytest.param(SMALL, 2, {"backend": "serial"}, id="serial"),
        pytest.param(LARGE, 2, {"backend": "serial"}, id="leased", marks=pytest.mark.full),
        pytest.param(SMALL, 4, {"backend": CALLER, "workers": 2}, id="caller and worker"),
    ],
)
def test_whatever_line_it_comes_at(size: int, num_envs: int, options: dict[str, Any]) -> None:
    is_serial = options["backend"] == "serial"
    interrupted, actions = 0, [1, 2] * (num_envs // 2)
    handler, tracer = signal.getsignal(signal.SIGINT), sys.gettrace()
    env = partial(RandomEnv, spaces.Box(0, 99, (size,)), spaces.Discrete(10))
    with agym.make(env, num_envs, **ARRAYS, **options) as envs:
        expected = play(envs)
        for line in range(1, 300):
            interrupt = Interrupt(line)
            kept, _ = envs.reset(seed=0)
            before = kept.copy()
            sys.settrace(interrupt)
            try:
                envs.step(actions)
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                sys.settrace(tracer)
            if is_serial:
                assert signal.getsignal(signal.SIGINT) is handler
            signal.signal(signal.SIGINT, handler)
            with suppress(agym.ResetNeededError, agym.BusyError):
                envs.step(actions)
            again = play(envs)
            assert same(again, expected), line
            assert same(kept, before)
            if interrupt.left and is_serial:
                break  # the step has fewer lines
        if size == LARGE:  # no memory was lost: the latest batch is no copy
            del kept, expected, again
            gc.collect()
            envs.reset(seed=0)
            assert not envs.step(actions).observations.flags.owndata
    assert interrupted > 50
