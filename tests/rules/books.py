"""Rule books for the tests, which use every feature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

TABLE = np.array([[3, -1, 4], [1, -5, 9]])
FLOATS = np.array([0.5, -1.25, 2.75], np.float32)
LIMIT = 40


def doubled(value: Any) -> Any:
    return 2 * value


def quadrupled(value: Any) -> Any:
    return doubled(doubled(value))


def adder(amount: Any) -> Callable[[Any], Any]:
    def add(value: Any) -> Any:
        return quadrupled(value) + amount

    return add


add_seven = adder(7)


class Everything:
    """All kinds of fields, all methods of ``rng``, parameters, infos, helpers and constants."""

    state = np.dtype(
        [
            ("flag", np.bool_), ("tiny", np.int8), ("small", np.int16), ("middle", np.int32),
            ("wide", np.int64), ("real", np.float64), ("board", np.int8, (2, 3)),
            ("reals", np.float64, (3,)), ("flags", np.int8, (4,)), ("speed", np.float64),
            ("goal", np.int32), ("weights", np.float64, (2,)),
        ]
    )  # fmt: skip
    observation_space = spaces.Box(-np.inf, np.inf, (9,), np.float32)
    action_space = spaces.MultiDiscrete([3, 4])
    parameters = {"speed": 0.5, "goal": 60, "weights": [1.0, -0.25]}  # noqa: RUF012
    info_dtype = np.dtype(
        [("wide", np.int64), ("flag", np.bool_), ("board", np.int8, (2, 3)), ("real", np.float64)]
    )
    max_episode_steps = LIMIT

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.real = rng.normal(1.0, state.speed)
        state.wide = rng.bits()
        state.small = rng.integers(-300, 300)
        for k in range(3):
            state.reals[k] = rng.uniform(-1.0, k + 1.0)
        state.board[:] = 7

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        row, column = action[0] % 2, action[1] % 3
        state.board[row, column] = (state.board[row, column] + TABLE[row, column]) % 100
        state.tiny = (state.tiny + 100) % 128 - rng.integers(0, 2)
        state.middle += add_seven(action[1])
        state.flag = rng.random() < 0.5
        state.flags[state.middle % 4] = 1 - state.flags[state.middle % 4]
        state.real = state.real * 0.75 + FLOATS[action[0]] + rng.normal(0.0, 0.125)
        state.wide = (state.wide * 31 + rng.bits_at(-7) + rng.drawn()) & 0xFFFFFFFF
        if state.flag:
            state.reals[row] = math.sin(state.real) + rng.uniform(0.0, state.speed)
        total = 0.0
        for weight in state.weights:
            total += weight * state.reals[column]
        return total, state.middle > state.goal or (state.flag and abs(state.tiny) > 120)

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.flag
        out[1] = state.tiny
        out[2] = state.middle / 3
        out[3] = state.wide
        out[4] = state.real
        for k in range(3):
            out[5 + k] = state.reals[k]
        out[8] = state.board[0, 1] + state.board[1, 2] + state.flags[1]

    @staticmethod
    def truncated(state: Any) -> bool:
        return bool(state.small + state.middle > 250)

    @staticmethod
    def info(state: Any, out: Any) -> None:
        out.wide = state.wide
        out.flag = state.flags[2] == 1
        for i in range(2):
            for j in range(3):
                out.board[i, j] = state.board[i, j]
        out.real = state.real

    @staticmethod
    def check(speed: float, goal: int, weights: Any) -> None:
        if goal < 1:
            raise ValueError(f"goal={goal} must be 1 or more")


class Steps:
    """Discrete observations and actions, neither of which begins at zero."""

    state = np.dtype([("place", np.int64)])
    observation_space = spaces.Discrete(21, start=-10)
    action_space = spaces.Discrete(3, start=-1)
    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 5}  # noqa: RUF012
    keys_to_action = {("a",): -1, ("d",): 1}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.place = rng.integers(-3, 4)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.place += action + (rng.integers(-1, 2) if rng.random() < 0.25 else 0)
        state.place = min(max(state.place, -10), 10)
        return state.place * 0.5, abs(state.place) > 6

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.place

    @staticmethod
    def render(state: Any, mode: str) -> Any:
        if mode == "ansi":
            return f"at {state.place}"
        return np.full((2, 2, 3), 10 + state.place, np.uint8)


class Switches:
    """Bits in, several numbers out; never over by itself, but cut off."""

    state = np.dtype([("on", np.int8, (2, 3)), ("age", np.int16)])
    observation_space = spaces.MultiDiscrete([2, 7, 100])
    action_space = spaces.MultiBinary((2, 3))
    info_dtype = np.dtype([("age", np.int16)])

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.age = rng.integers(0, 20)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        lit = 0
        for i in range(2):
            for j in range(3):
                state.on[i, j] = state.on[i, j] != (action[i, j] == 1)
                lit += state.on[i, j]
        state.age += 1
        return lit, False

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.on[0, 0]
        out[1] = state.on.shape[1] + int(state.on[1, 2])
        out[2] = state.age

    @staticmethod
    def truncated(state: Any) -> bool:
        return bool(state.age > 30)

    @staticmethod
    def info(state: Any, out: Any) -> None:
        out.age = state.age


class Grid:
    """A picture out, real numbers in."""

    state = np.dtype([("x", np.float64), ("y", np.float64), ("hits", np.int32)])
    observation_space = spaces.Box(0, 255, (4, 5), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.x = rng.uniform(0.0, 5.0)
        state.y = rng.uniform(0.0, 4.0)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.x = (state.x + min(max(action[0], -0.5), 0.5)) % 5.0
        state.y = (state.y + math.tanh(action[1])) % 4.0
        hit = int(state.x) == int(state.y)
        state.hits += hit
        return math.sqrt(state.x * state.x + state.y * state.y), state.hits > 8

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[:, :] = 0
        out[int(state.y), int(state.x)] = 255

    @staticmethod
    def render(state: Any) -> Any:
        picture = np.zeros((4, 5, 3), np.uint8)
        Grid.observe(state, picture[:, :, 0])
        return picture


class Bits:
    """The remaining kinds: a bit array out, one real number in; no space of more dimensions."""

    state = np.dtype([("level", np.float64)])
    observation_space = spaces.MultiBinary(3)
    action_space = spaces.Box(-2.0, 2.0, (), np.float64)

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.level = rng.normal(0.0, 1.0)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.level += action
        return action, not -3.0 < state.level < 3.0

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        for k in range(len(out)):
            out[k] = state.level > k - 1


def step(level: Any) -> Any:
    """Bear the name of what is agym's own."""
    return level + SMALL[0] + SMALL[0] - 2 * SMALL[0]


def observe(first: Any, second: Any) -> Any:
    """Bear the name of what is a part of rules."""
    return 10 * first + second


SMALL = np.array([100], np.int8)


class Level:
    """A single number out, integers of a box in; two helpers have names of parts of rules."""

    state = np.dtype([("level", np.int32), ("kept", np.int32)])
    observation_space = spaces.Box(-1000, 1000, (), np.int16)
    action_space = spaces.Box(-3, 3, (2,), np.int8)
    parameters = {"kept": 5}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.level = step(state.kept)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.level += action[0] * action[1]
        if state.level < -500:
            return -1.0, True
        return observe(action[0], 1), abs(state.level - state.kept) > 9

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.level


BOOKS = {book.__name__: book for book in (Everything, Steps, Switches, Grid, Bits, Level)}
