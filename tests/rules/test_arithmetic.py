"""Rules compute as Python does, in every engine, or are refused."""

from __future__ import annotations

import linecache
import math
from enum import Enum, IntEnum
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from tests.rules.one_liners import book_of, one_liners
from tests.rules.playing import play_same, side_by_side

pytestmark = pytest.mark.xdist_group("compiled")

ENGINES = ("compiled", "parallel")


class Prize(Enum):
    WIN = 3


class Rate(Enum):
    HALF = 0.5


class Level(IntEnum):
    LOW = 1


def module(name: str, **parts: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(parts)
    return made


NAMES = {
    "np": np, "math": math, "spaces": spaces, "Prize": Prize, "Rate": Rate, "Level": Level,
    "TABLE": np.array([3, -100, 4], np.int8), "BYTES": np.array([1, 200, 3], np.uint8),
    "FLAGS": np.array([True, False]), "SINGLES": np.array([0.1, -2.7], np.float32),
    "FACTOR": np.int8(100), "NESTED": (np.int8(-128), (np.float32(0.1), 2)),
    "settings": module(
        "settings", SMALL=np.int8(-128), SINGLE=np.float32(0.3),
        deeper=module("deeper", SMALL=np.int16(-32768)),
    ),
    "doubled": lambda number: 2 * number,
}  # fmt: skip


def rules_of(text: str) -> Any:
    """Return the class of a text, whose lines messages can show."""
    file = f"<lines {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {**NAMES, "__name__": "lines"}
    exec(compile(text, file, "exec"), names)
    return names["Lines"]


@pytest.fixture(autouse=True)
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few games suffice for every core to have some."""
    monkeypatch.setattr("agym.rules.engines.SHARE", 16)


@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_lines_have_the_same_results_in_every_engine(seed: int) -> None:
    lines = one_liners(40, seed)
    envs = side_by_side(rules_of(book_of(lines, seed)), ENGINES, 48, AutoresetMode.NEXT_STEP)
    for env in envs:
        env.reset(seed=seed)
    actions = np.arange(48) % 5 - 2
    results = [(step[0], step[4]["results"]) for step in (env.step(actions) for env in envs)]
    differing = {
        line: (expected[rows, k][:1], found[rows, k][:1])
        for result in results[1:]
        for expected, found in zip(results[0], result, strict=True)
        for k, line in enumerate(lines)
        if (rows := expected[:, k].view(np.int64) != found[:, k].view(np.int64)).any()
    }
    assert not differing
    play_same(envs, seed, 5)
