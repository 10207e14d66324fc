"""Infos: what an environment tells is heard to the last bit, and numbers travel in the table."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agym
from agym.core.protocol.infos.schema import Schema, signature_of
from agym.core.protocol.infos.vector_infos import split_info
from tests.support.drivers import Setup, each_mode, everywhere
from tests.support.envs.scripted_envs import (
    Info,
    Telling,
    heard,
    identical,
    messages,
    numbers,
    scripts,
)
from tests.support.equality import same_values

STEPS = 14
LENGTH = 4

NUMBERS: Info = {
    "lives": 3,
    "alive": True,
    "x": 0.5,
    "speed": np.float64(-0.0),
    "mask": np.array([True, False]),
    "forces": {"left": np.float32(2), "arms": np.arange(6.0).reshape(2, 3), "none": {}},
}
# Another schema, as that of an episode's end.
ENDED: Info = {**NUMBERS, "episode": {"r": 1.5, "l": 4, "t": 0.25}}


def telling(setup: Setup, script: list[Info], length: int = LENGTH) -> Any:
    return setup.adapt(partial(Telling, script, length))


def play(envs: Any, steps: int) -> list[list[Info]]:
    """The infos of each environment, in a reset and so many steps."""
    _, infos = envs.reset(seed=0)
    rows = [infos, *(envs.step([0] * envs.num_envs)[4] for _ in range(steps))]
    return [[row[i] for row in rows] for i in range(envs.num_envs)]


def play_episode(envs: Any, mode: str, *, first: bool = False) -> list[Info]:
    """Play an episode of all, and begin the next one; what they tell at its end."""
    if first or mode == "disabled":
        envs.reset(seed=0)
    for _ in range(LENGTH):
        infos = envs.step([0] * envs.num_envs)[4]
    if mode == "next_step":
        envs.step([0] * envs.num_envs)
    return [info["final_info"] if mode == "same_step" else info for info in infos]


@pytest.mark.once
@everywhere
@each_mode
def test_infos_are_heard_as_they_were_told(setup: Setup, mode: str) -> None:
    @settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(scripts(), min_size=3, max_size=3))
    def check(parts: list[list[Info]]) -> None:
        factories = [telling(setup, script) for script in parts]
        with agym.make(factories, autoreset=mode, **setup.options) as envs:
            told = play(envs, STEPS)
        for script, infos in zip(parts, told, strict=True):
            expected = heard(script, LENGTH, mode, STEPS)
            assert all(map(identical, infos, expected)), (infos, expected)

    check()


@everywhere
@each_mode
def test_numbers_take_no_message_once_they_are_known(setup: Setup, mode: str) -> None:
    script = [NUMBERS, NUMBERS, NUMBERS, NUMBERS, ENDED]  # reset, three steps, the last one
    with agym.make([telling(setup, script)] * 4, autoreset=mode, **setup.options) as envs:
        play_episode(envs, mode, first=True)
        with messages(envs) as seen:
            for _ in range(3):
                ended = play_episode(envs, mode)
                assert all(identical(info, ENDED) for info in ended)
        assert seen == []


@everywhere
def test_what_is_no_number_takes_a_message(setup: Setup) -> None:
    script: list[Info] = [{"name": "reset", "x": 1}, {"name": "step", "x": 1}]
    with agym.make([telling(setup, script)] * 2, **setup.options) as envs:
        play(envs, 2)
        with messages(envs) as seen:
            told = play(envs, 2)
        # In the caller's thread only the reset sends one: steps hand infos over as they are.
        assert len(seen) == 1 if setup.name == "serial" else len(seen) >= 3
        assert told[0] == [script[1], script[0], script[1]]


@everywhere
def test_infos_are_the_callers_own(setup: Setup) -> None:
    script = [{"at": np.zeros(3) + k, "k": {"k": np.array(k)}} for k in range(9)]
    with agym.make([telling(setup, script, 100)] * 2, copy=False, **setup.options) as envs:
        told = play(envs, 8)
        for infos in told:
            for k, info in enumerate(infos):
                assert (info["at"] == k).all()
                assert info["k"]["k"] == k
                info["at"] += 1  # nobody else sees it, and it can be written to
                info["k"]["k"] += 1
                assert info["at"].base is None


SCRIPTS: dict[str, list[Info]] = {
    "always others": [{f"key {k}": k} for k in range(40)],
    "larger than their room": [{"image": np.full((200, 200, 3), k, np.uint8)} for k in range(3)],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_infos_that_do_not_fit_into_the_table_are_heard(name: str) -> None:
    script = SCRIPTS[name]
    with agym.make([partial(Telling, script, 100)] * 2, backend="serial") as envs:
        told = play(envs, 80)[1]
    assert all(identical(info, script[k % len(script)]) for k, info in enumerate(told))


@given(st.dictionaries(st.text(), numbers()))
def test_a_schema_follows_from_the_signature(info: Info) -> None:
    signature = signature_of(info)
    assert signature is not None
    schema = Schema(signature)
    function, arguments = schema.__reduce__()
    again = function(*arguments)
    assert (again.id, again.size, again.keys) == (schema.id, schema.size, schema.keys)
    assert 0 < schema.id < 2**63
    buffer = np.zeros((2, schema.size + 1), np.uint8)
    if schema.write(buffer[1].data, 0, info):
        built = again.read(again.columns(buffer), slice(1, 2), 1)[0]
        assert identical(built, info)
    else:
        assert any(type(value) is int and not -(2**63) <= value < 2**63 for value in info.values())


RECURSIVE: Info = {"x": 1}
RECURSIVE["itself"] = RECURSIVE


@pytest.mark.parametrize(
    "info",
    [
        RECURSIVE,
        {"a": 1, "b": None},
        {1: 2},
        {"a": [1]},
        {"a": np.array(["x"])},
        {"a": np.array([None])},
        {"a": np.zeros(2, [("x", "f8")])},
        {"a": np.float64(1), "b": {"c": "x"}},
    ],
    ids=repr,
)
def test_what_fits_no_schema(info: Any) -> None:
    assert signature_of(info) is None


@pytest.mark.parametrize("ids", [None, np.array([1, 3])])
def test_infos_of_a_batch_are_split(ids: Any) -> None:
    """By masks in arrays or lists; a value without a row for each applies to all."""
    mask = np.array([True, True, False, False])
    info = {
        "all": np.arange(4), "some": np.arange(4.0), "_some": mask,
        "shape": np.array([84, 84]), "_shape": mask, "name": "A", "_name": [True] * 4,
        "nested": {"r": np.arange(4), "_r": [False, True, True, False]}, "_nested": mask,
    }  # fmt: skip
    shape = np.array([84, 84])
    expected = [
        {"all": 0, "some": 0.0, "shape": shape, "name": "A", "nested": {}},
        {"all": 1, "some": 1.0, "shape": shape, "name": "A", "nested": {"r": 1}},
        {"all": 2, "name": "A"},
        {"all": 3, "name": "A"},
    ]
    wanted = range(4) if ids is None else ids.tolist()
    assert same_values(split_info(info, 4, ids), [expected[i] for i in wanted])
