"""Which action keys mean: the environment's own, the player's, or the numbers of its actions."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.envs.pong.single import PongEnv, PongRallyEnv
from agym.tools.live.keyboard import Keyboard

FOUR = spaces.Discrete(4)


def test_the_environments_own_keys() -> None:
    env = PongEnv()
    keyboard = Keyboard.of(env.action_space, None, None, env.get_keys_to_action())
    assert keyboard.action(frozenset()) == 0
    assert keyboard.action(frozenset("w")) == keyboard.action(frozenset(["ArrowUp"])) == 1
    assert keyboard.action(frozenset("sx")) == 2
    rally = PongRallyEnv()
    both = Keyboard.of(rally.action_space, None, None, rally.get_keys_to_action())
    assert both.action(frozenset(["w", "ArrowDown"])).tolist() == [1, 2]
    assert both.action(frozenset(["w"])).tolist() == [1, 0]
    assert both.action(frozenset()).tolist() == [0, 0]


def test_atari_keys_have_names() -> None:
    own = {(ord("w"), 32): 1, (1073741904,): 3, (): 0, (ord("A"),): 2}
    keyboard = Keyboard.of(FOUR, None, None, own, ["NOOP", "FIRE", "RIGHT", "LEFT"])
    assert keyboard.legend == "Space bar + W: FIRE\n←: LEFT\nA: RIGHT"
    assert keyboard.action(frozenset(["w", " ", "q"])) == 1
    assert keyboard.action(frozenset(["w"])) == keyboard.noop == 0


def test_numbers_where_nobody_says_anything() -> None:
    keyboard = Keyboard.of(spaces.Discrete(3, start=5), None, None)
    assert [keyboard.action(frozenset(key)) for key in "012x"] == [5, 6, 7, 5]


def test_the_players_keys() -> None:
    keyboard = Keyboard.of(FOUR, "a=1 a+w=3 ArrowUp=2", "0")
    assert keyboard.action(frozenset("aw")) == 3
    assert keyboard.action(frozenset("a")) == 1
    box = spaces.Box(-2, 2, (1,), np.float32)
    pendulum = Keyboard.of(box, "a=[-2.0] d=[2]", None)
    assert pendulum.action(frozenset("d")).tolist() == [2]
    assert pendulum.action(frozenset()).dtype == np.float32


@pytest.mark.parametrize("keys", ["a", "=1", "a=", "a=7", "a=left", "a=[1]"])
def test_keys_that_make_no_sense(keys: str) -> None:
    with pytest.raises(agym.UsageError, match="--keys"):
        Keyboard.of(FOUR, keys, None)


def test_an_environment_without_keys_asks_for_some() -> None:
    box = spaces.Box(-1, 1, (2,))
    with pytest.raises(agym.UsageError, match=r"a=\[0\.0,0\.0\]"):
        Keyboard.of(box, None, None)
    with pytest.raises(agym.UsageError, match="--noop"):
        Keyboard.of(FOUR, "a=1", "9")


@given(st.frozensets(st.text(max_size=9), max_size=6))
def test_whatever_is_held_down_there_is_an_action(held: frozenset[str]) -> None:
    keyboard = Keyboard.of(FOUR, "a=1 a+w=3 ArrowUp=2", None)
    assert FOUR.contains(keyboard.action(held))
