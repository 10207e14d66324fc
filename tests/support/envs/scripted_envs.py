"""Environments that tell what they are told to, an oracle of what is then heard, and a count."""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.support.envs.plain_envs import Result
from tests.support.equality import same_array
from tests.support.insides import backend_of

Info = dict[str, Any]


class Telling(gym.Env[Any, Any]):
    """Gives the infos of a script, one after the other; an episode has ``length`` steps.

    Action 9 raises. The arrays that it gives are its own, and it spoils them in the next call.
    """

    def __init__(self, script: Sequence[Info], length: int = 4) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(10)
        self.render_mode = None
        self.script = script
        self.length = length
        self.said = self.now = 0
        self._given: Info = {}

    def _say(self) -> Info:
        for array in arrays_in(self._given):
            array.fill(77)
        info = self.script[self.said % len(self.script)]
        self.said += 1
        self._given = copy.deepcopy(info)
        return self._given

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        super().reset(seed=seed)
        self.now = 0
        return np.zeros(2, np.float32), self._say()

    def step(self, action: Any) -> Result:
        if action == 9:
            raise ValueError("boom")
        self.now += 1
        return np.zeros(2, np.float32), 1.0, self.now >= self.length, False, self._say()


def arrays_in(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, dict):
        for part in value.values():
            yield from arrays_in(part)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        yield value


def heard(script: Sequence[Info], length: int, mode: str, steps: int) -> list[Info]:
    """What one :class:`Telling` tells in a reset and so many steps, as Gymnasium has it."""
    said, now, over = 1, 0, False
    infos = [script[0]]
    for _ in range(steps):
        if over and mode == "disabled":
            infos.append({})
            continue
        info = script[said % len(script)]
        said += 1
        if over:
            now, over = 0, False
        else:
            now += 1
            over = now == length
            if over and mode == "same_step":
                begun = script[said % len(script)]
                info = {**begun, "final_obs": np.zeros(2, np.float32), "final_info": info}
                said, now, over = said + 1, 0, False
        infos.append(info)
    return infos


def identical(a: Any, b: Any) -> bool:
    """Whether two infos are the same to the last bit, in the order of their keys too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return [*a] == [*b] and all(identical(a[key], b[key]) for key in a)
    if type(a) is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, np.ndarray | np.generic):
        return same_array(a, b)
    return bool(a == b)


@contextmanager
def messages(envs: Any) -> Iterator[list[Any]]:
    """List the extras of outcomes that come meanwhile: in a worker, each is a message."""
    backend = backend_of(envs)
    poll = backend.poll
    seen: list[Any] = []

    def spy() -> Any:
        outcomes = poll()
        seen.extend(outcome.payload for outcome in outcomes if outcome.payload is not None)
        return outcomes

    backend.poll = spy
    try:
        yield seen
    finally:
        del backend.poll


NUMBERS = (np.bool_, np.int8, np.uint16, np.int32, np.int64, np.uint64, np.float16,
           np.float32, np.float64, np.complex64, np.longdouble)  # fmt: skip
DTYPES = ("?", "<i4", ">i8", "u1", "<f4", ">f8", "<f8", "<c16")


def numbers() -> st.SearchStrategy[Any]:
    """Python's numbers, NumPy's, and arrays."""
    shapes = npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
    return st.one_of(
        st.booleans(),
        st.integers(-(2**65), 2**65),
        st.floats(),
        st.builds(lambda kind, x: kind(x), st.sampled_from(NUMBERS), st.integers(0, 100)),
        st.builds(np.float64, st.floats()),
        st.builds(np.float32, st.floats(width=32)),
        st.sampled_from(DTYPES).flatmap(lambda dtype: npst.arrays(np.dtype(dtype), shapes)),
    )


def infos() -> st.SearchStrategy[Info]:
    """Infos of numbers, nested, and some that are not of numbers alone."""
    keys = st.sampled_from(["a", "b", "reward", "", "é"])
    other = st.sampled_from([None, "text", [1, 2], (1.0,), 1j, np.datetime64("2026-01-01")])
    values = st.recursive(
        numbers(), lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=4
    )
    return st.dictionaries(keys, values, max_size=4) | st.dictionaries(keys, values | other)


def scripts() -> st.SearchStrategy[list[Info]]:
    """Infos of an environment, which come again."""
    return st.lists(infos(), min_size=1, max_size=6)
