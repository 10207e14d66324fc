"""A change of anything that rules read is noticed, so that no machine code of old rules is used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, IntFlag
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import agym
from agym.rules.binding import fingerprint
from tests.rules.books import Steps
from tests.support.scripts import run

pytestmark = pytest.mark.xdist_group("compiled")


class Sizes(NamedTuple):
    width: int = 3


def helper_of_helper(number: int) -> Any:
    def inner(x: Any, factor: int = number) -> Any:
        return x * factor

    return lambda x: inner(x)


def keyword_default(number: int) -> Any:
    def helper(x: Any, *, factor: int = number) -> Any:
        return x * factor

    return helper


def many_modules(number: int) -> Any:
    part: Any = number
    for name in ["speed", *(f"inner{k}" for k in range(9, -1, -1))]:
        owner = ModuleType("owner")
        setattr(owner, name, part)
        part = owner
    return part


# Parts that rules may name; each depends on a number.
NAMED: dict[str, Callable[[int], Any]] = {
    "an enumeration": lambda number: Enum("Prize", {"WIN": number}),
    "a member": lambda number: Enum("Prize", {"WIN": number}).WIN,  # type: ignore[attr-defined]
    "a flag": lambda number: IntFlag("Wall", {"NORTH": number}),
    "fields": lambda number: Sizes(number),
    "defaults of fields": lambda number: (
        NamedTuple("Sizes", [("width", int)]) if number == 3 else Sizes
    ),
    "a class's attribute": lambda number: type("Config", (), {"speed": number}),
    "many modules": many_modules,
    "a compiled helper": lambda number: pytest.importorskip("numba").njit(lambda x: x * number),
    "a helper of a helper": helper_of_helper,
    "a keyword's default": keyword_default,
    "an array": lambda number: np.array([1, number], np.int8),
    "an order of memory": lambda number: np.zeros((3, 3), order="C" if number == 3 else "F"),
    "nested": lambda number: (1, (2.0, np.float32(number)), {"a": [number]}),
    "alternatives": lambda number: frozenset({"north", "south", number}),
    "a zero": lambda number: 0.0 if number == 3 else -0.0,
}


NAMING = """
def function(x):
    thing.WIN.value, thing.width, thing.speed, thing(x), thing[0]
    return thing.inner0.inner1.inner2.inner3.inner4.inner5.inner6.inner7.inner8.inner9.speed
"""


def naming(thing: Any) -> Any:
    names = {"thing": thing}
    exec(NAMING, names)
    return names["function"]


@pytest.mark.parametrize("kind", NAMED)
def test_a_fingerprint_tells_values_apart(kind: str) -> None:
    marks = [fingerprint(naming(NAMED[kind](number))) for number in (3, 5, 3)]
    assert marks[0] == marks[2] != marks[1]
    assert [unreadable for _, unreadable in marks] == [[], [], []]


def test_a_module_may_be_passed_on() -> None:
    """The function that reads of it does not name it."""
    settings = ModuleType("settings")
    names: dict[str, Any] = {"settings": settings}
    exec("def inner(owner):\n  return owner.speed\ndef outer():\n  return inner(settings)", names)
    marks = []
    for settings.speed in (3, 5, 3):  # type: ignore[attr-defined]
        marks.append(fingerprint(names["outer"])[0])
    assert marks[0] == marks[2] != marks[1]


@pytest.mark.parametrize("kind", ["vectorize", "guvectorize", "List", "intrinsic"])
def test_what_cannot_be_read_has_a_fingerprint_of_its_own_each_time(kind: str) -> None:
    numba = pytest.importorskip("numba")
    things = {
        "vectorize": lambda: numba.vectorize(lambda x: x * 3),
        "guvectorize": lambda: numba.guvectorize("(n)->(n)")(lambda x, y: None),
        "List": lambda: numba.typed.List([3]),
        "intrinsic": lambda: numba.extending.intrinsic(lambda typing, x: None),
    }
    function = naming(things[kind]())
    marks = [fingerprint(function) for _ in range(2)]
    assert marks[0][0] != marks[1][0]
    assert marks[0][1][0].startswith("thing (")


@pytest.mark.parametrize(
    "thing",
    [Steps, object(), partial(int, 3), logging.getLogger("a")],
    ids=["class", "object", "partial", "logger"],
)
def test_what_cannot_be_compiled_needs_no_fingerprint(thing: Any) -> None:
    assert fingerprint(naming(thing)) == fingerprint(naming(thing))


def test_a_fingerprint_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Sets of text have another order in each."""
    code = """
    from agym.envs.games.pong import Pong
    from agym.rules.compiling import mark_of
    from agym.rules.contract import RuleBook
    from tests.rules.test_fingerprints import NAMED, fingerprint, naming

    print(mark_of(RuleBook.of(Pong)), fingerprint(naming(NAMED["alternatives"](3))))
    """
    outputs = {run(tmp_path, code, 8)[:2] for _ in range(2)}
    assert len(outputs) == 1
    assert outputs.pop()[0] == 0


CELLS = {
    "an enumeration": "class Prize(Enum):\n    WIN = {number}\ndef prize(x):\n"
    "    return Prize.WIN.value",
    "a compiled helper": "FACTOR = {number}\n@numba.njit\ndef prize(x):\n    return FACTOR",
    "vectorize": "FACTOR = {number}\n@numba.vectorize\ndef prize(x):\n    return FACTOR",
}


@pytest.mark.full
@pytest.mark.parametrize("kind", [*CELLS])
def test_a_cell_that_is_run_again(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    names: dict[str, Any] = {"Enum": Enum, "numba": pytest.importorskip("numba"), "Steps": Steps}
    game = "class Game(Steps):\n    def step(state, action, rng):\n        return prize(1), False"
    for number in (3, 5):
        exec(CELLS[kind].format(number=number), names)
        exec(game, names)
        for engine in ("python", "compiled"):
            envs = agym.vectorize(names["Game"], 2, engine=engine)
            envs.reset(seed=0)
            assert envs.step([0, 0])[1].tolist() == [number, number]
    told = [text for text in caplog.messages if "compiled again for each batch" in text]
    assert len(told) == (2 if kind == "vectorize" else 0)
    if told:
        assert "can't detect changes of prize (DUFunc)" in told[0]


@pytest.mark.full
def test_a_constant_of_a_compiled_helper_changes_alone() -> None:
    """numba goes on with the first value in its own code, and so would a copy on the disk."""
    names: dict[str, Any] = {"numba": pytest.importorskip("numba"), "Steps": Steps}
    exec(CELLS["a compiled helper"].format(number=3), names)
    helpers = ModuleType("helpers")
    helpers.prize = names["prize"]  # type: ignore[attr-defined]
    names["helpers"] = helpers
    game = """class Game(Steps):
    def step(state, action, rng):
        return prize(1) + 10 * helpers.prize(1), False"""
    exec(game, names)
    for names["FACTOR"] in (3, 5):
        for engine in ("python", "compiled"):
            envs = agym.vectorize(names["Game"], 2, engine=engine)
            envs.reset(seed=0)
            assert envs.step([0, 0])[1].tolist() == [11 * names["FACTOR"]] * 2
