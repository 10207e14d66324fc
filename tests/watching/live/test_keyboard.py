"""Which action keys mean: the environment's own, the player's, or the numbers of its actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.envs.games.pong import Pong, PongRally
from agym.watching.live.keyboard import Keyboard

FOUR = spaces.Discrete(4)


def test_the_environments_own_keys() -> None:
    env = agym.vectorize(Pong)
    keyboard = Keyboard.of(env.action_space, None, None, env.get_keys_to_action())
    assert keyboard.action(frozenset()) == 0
    assert keyboard.action(frozenset("w")) == keyboard.action(frozenset(["ArrowUp"])) == 1
    assert keyboard.action(frozenset("sx")) == 2
    rally = agym.vectorize(PongRally)
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


@pytest.mark.parametrize(
    "keys",
    ["a", "=1", "a=", "a=7", "a=left", "a=[1]", "", " ", "+=0", "a+=0", "a++b=0", "Nonsense=0",
     "a=0 a=1", "a+w=0 W+A=1", "left=0 ArrowLeft=1", "a=true", "a=99999999999999999999", "a=NaN"],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("name", "browser"),
    [("left", "ArrowLeft"), ("UP", "ArrowUp"), ("arrowdown", "ArrowDown"), ("space", " "),
     ("shift", "Shift"), ("Ctrl", "Control"), ("esc", "Escape"), ("F5", "F5"), ("=", "="),
     ("-", "-"), ("É", "é")],
)  # fmt: skip
def test_keys_go_by_the_names_that_people_use(name: str, browser: str) -> None:
    assert Keyboard.of(FOUR, f"{name}=3", None).action(frozenset([browser])) == 3


@pytest.mark.parametrize(
    ("name", "browser"),
    [("LSHIFT", "Shift"), ("RCTRL", "Control"), ("LALT", "Alt"), ("TAB", "Tab"), ("F12", "F12"),
     ("DELETE", "Delete"), ("HOME", "Home"), ("PAGEDOWN", "PageDown"), ("KP_ENTER", "Enter"),
     ("KP0", "0"), ("KP7", "7"), ("KP_PLUS", "+"), ("LEFT", "ArrowLeft"), ("SPACE", " ")],
)  # fmt: skip
def test_pygames_keys_have_the_browsers_names(name: str, browser: str) -> None:
    number = getattr(pytest.importorskip("pygame"), f"K_{name}")
    assert Keyboard.of(FOUR, None, None, {(number,): 3}).action(frozenset([browser])) == 3


@pytest.mark.parametrize(
    "own",
    [{None: 1}, {(1073742200,): 1}, {(-1,): 1}, {(1 << 40,): 1}, {("Nonsense",): 1}, {(2.5,): 1},
     [("a", 1)], "a"],
    ids=str,
)  # fmt: skip
def test_an_environments_own_keys_that_make_no_sense(own: Any) -> None:
    with pytest.raises(agym.UsageError, match="get_keys_to_action"):
        Keyboard.of(FOUR, None, None, own)
    assert Keyboard.of(FOUR, "a=1", None, own).action(frozenset("a")) == 1


def test_spaces_of_several_parts() -> None:
    pair = spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))])
    with pytest.raises(agym.UsageError, match="--keys, such as 'a="):
        Keyboard.of(pair, None, None)
