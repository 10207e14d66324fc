"""Rewards, flags, actions and final observations in every type that Gymnasium takes and gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import agym
from agym.testing import World
from tests.support.drivers import each_mode
from tests.support.envs.plain_envs import Echo
from tests.support.equality import same_values
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over

each_world = over(SERIAL, THREAD, PROCESS, ASYNCIO, COROUTINES)
THREE = spaces.Discrete(3)


def unchanged(value: Any) -> Any:
    return value


class Typed(gymnasium.Env[Any, Any]):
    """Gives rewards and flags of one type; the third step is an episode's last."""

    observation_space = action_space = THREE

    def __init__(self, convert: Callable[[Any], Any] = unchanged) -> None:
        self.convert = convert
        self.episode = self.now = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode += 1
        self.now = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.now += 1
        over = self.now == 3
        values = float(self.now % 2), over and self.episode % 2 == 0, over and self.episode % 2 == 1
        return 0, *map(self.convert, values), {}


def described(value: Any) -> str:
    """Describe a value with all types in it."""
    kind = type(value)
    if kind is dict:
        return repr({key: described(part) for key, part in value.items()})
    if kind in (list, tuple):
        return f"{kind.__name__} {[*map(described, value)]}"
    return f"{kind.__name__} {getattr(value, 'dtype', '')} {np.shape(value)} {value!r}"


# ---------------------------------------------------------------- rewards and flags


def array_of(value: Any, ndmin: int) -> Any:
    return np.array(value, ndmin=ndmin)


def tensor_of(value: Any, dtype: str | None, **options: Any) -> Any:
    import torch

    return torch.tensor([value], dtype=dtype and getattr(torch, dtype), **options)


TYPES: list[Callable[[Any], Any]] = [int, float, np.float32, np.int64, np.bool_]
TYPES += [partial(array_of, ndmin=ndmin) for ndmin in range(3)]
TENSORS = [
    partial(tensor_of, dtype=None),
    partial(tensor_of, dtype="float32", requires_grad=True),
    partial(tensor_of, dtype="bfloat16"),
]


def play(world: World, convert: Callable[[Any], Any] = unchanged, count: int = 3) -> list[Any]:
    """Return the results of some steps, with the returns and lengths of episodes."""
    factory = world.adapt(partial(Typed, convert))
    with world.with_options(episode_stats=True).open_envs(factory, count) as envs:
        envs.reset()
        results = []
        for _ in range(8):
            *columns, infos = envs.step([0, 1, 2][:count])
            episodes = [info.get("final_info", info).get("episode") for info in infos]
            returns = [one and (np.asarray(one["r"]).item(), one["l"]) for one in episodes]
            results.append((columns, returns))
            if world.autoreset == "disabled" and any(returns):
                envs.reset()
        return results


@each_mode
@each_world
def test_rewards_and_flags_may_be_arrays_of_one_element(world: World, mode: Any) -> None:
    world = replace(world, autoreset=mode)
    expected = play(world.serial)
    for convert in TYPES:
        assert same_values(play(world, convert), expected), convert


@each_mode
@pytest.mark.parametrize("kind", ["env", "coroutine"])
def test_rewards_and_flags_may_be_tensors(kind: Any, mode: Any) -> None:
    pytest.importorskip("torch", reason="the extra `torch`")
    world = World("serial" if kind == "env" else "asyncio", autoreset=mode, kind=kind)
    expected = play(world.serial)
    for convert in TENSORS:
        assert same_values(play(world, convert), expected), convert


def of_flags(convert: Callable[[bool], Any]) -> Callable[[Any], Any]:
    return lambda value: convert(value) if isinstance(value, bool) else value


@pytest.mark.parametrize("count", [1, 3])
def test_no_flag_is_a_false_one_and_a_sequence_is_refused(count: int) -> None:
    """The truth of a list is whether it has elements."""
    world = World("serial", autoreset="next_step")
    expected = play(world, count=count)
    for convert in [*TYPES, of_flags(lambda flag: flag or None)]:
        assert same_values(play(world, convert, count), expected), convert
    for convert in (of_flags(lambda flag: [flag]), of_flags(lambda flag: (flag,))):
        with world.open_envs(partial(Typed, convert), count) as envs:
            envs.reset()
            with pytest.raises(agym.AgymError, match=r"a flag of type (list|tuple), which must be"):
                envs.step([0] * count)


@pytest.mark.parametrize("size", [0, 2])
def test_an_array_of_several_elements_is_an_error_of_its_environment(size: int) -> None:
    wrong = partial(Typed, lambda value: np.full(size, value))
    with agym.make([Typed, wrong, Typed], backend="serial") as envs:
        envs.reset()
        # To NumPy 2.0 and 2.1 an empty array is still false, with a warning.
        message = "environment 1 raised in step: (ValueError|DeprecationWarning)"
        with pytest.raises(agym.EnvError, match=message):
            envs.step([0, 0, 0])


# ---------------------------------------------------------------- actions

BOX = spaces.Box(-9, 9, (2,), np.float32)
NUMBER = spaces.Box(-9, 9, (), np.float32)
DICT = spaces.Dict({"force": BOX, "gear": THREE})
TUPLE = spaces.Tuple((BOX, THREE))
THIRDS = np.arange(6).reshape(3, 2) / 3
GEARS = np.arange(3)

# Floats that no API rounds to the dtype of the space; and what only the Gymnasium API takes.
FLOATS: dict[str, tuple[Any, Any]] = {
    "float32": (BOX, THIRDS.astype(np.float32)),
    "float64": (BOX, THIRDS),
    "float16": (BOX, THIRDS.astype(np.float16)),
    "list of arrays": (BOX, [*THIRDS]),
    "float16 for float64": (spaces.Box(-9, 9, (2,), np.float64), THIRDS.astype(np.float16)),
    "dict float64": (DICT, {"force": THIRDS, "gear": GEARS}),
}
ACTIONS = FLOATS | {
    "integers for floats": (BOX, np.arange(6).reshape(3, 2)),
    "list of lists": (BOX, THIRDS.tolist()),
    "number float32": (NUMBER, THIRDS[:, 1].astype(np.float32)),
    "number float64": (NUMBER, THIRDS[:, 1]),
    "another shape": (BOX, THIRDS[:, 1]),
    "discrete": (THREE, GEARS),
    "discrete int32": (THREE, GEARS.astype(np.int32)),
    "discrete bool": (THREE, np.array([True, False, True])),
    "discrete floats": (THREE, GEARS.astype(float)),
    "discrete list": (THREE, [0, 1, 2]),
    "discrete tuple": (THREE, (0, np.int8(1), 2)),
    "multi-discrete": (spaces.MultiDiscrete([3, 4]), np.array([[0, 1], [1, 2], [2, 3]])),
    "multi-binary": (spaces.MultiBinary(2), np.array([[0, 1], [1, 0], [1, 1]])),
    "dict": (DICT, {"force": THIRDS.astype(np.float32), "gear": GEARS}),
    "dict list": (DICT, {"force": THIRDS.tolist(), "gear": [0, 1, 2]}),
    "tuple float64": (TUPLE, (THIRDS, GEARS)),
    "tuple": (TUPLE, (THIRDS.astype(np.float32), GEARS)),
}


def hears(space: Any) -> Callable[[], Any]:
    """Return a factory of environments that keep their actions."""
    return partial(Echo, THREE, [0], space)


def heard(envs: Any) -> list[list[str]]:
    return [[*map(described, received)] for received in envs.get_attr("received")]


def play_actions(envs: Any, actions: Any) -> list[list[str]]:
    with closing(envs):
        envs.reset()
        envs.step(actions)
        envs.step(actions)
        return heard(envs)


@pytest.mark.once
@over(SERIAL, THREAD, PROCESS)
def test_actions_reach_environments_as_in_gymnasium(world: World) -> None:
    options: Any = {"backend": world.backend, "workers": world.workers}
    for name, (space, actions) in ACTIONS.items():
        factories = [hears(space)] * 3
        expected = play_actions(SyncVectorEnv(factories), actions)
        for ours in (
            agym.AgymVectorEnv(factories, **options),
            agym.make_vec(factories[0], 3, **options),
        ):
            assert play_actions(ours, actions) == expected, name


ZEROS = np.zeros((3, 2), np.float32)
SMALL, SIGNED = spaces.Box(0, 255, (), np.uint8), spaces.Box(-128, 127, (), np.int8)
# Actions in Gymnasium's form, and in forms that only agym takes.
FORMS: list[tuple[Any, Any, list[Any]]] = [
    (THREE, GEARS, [range(3), GEARS.astype(np.uint64), [False, np.int32(1), np.array(2)]]),
    (DICT, {"force": ZEROS, "gear": GEARS}, [
        {"force": [*ZEROS], "gear": GEARS, "extra": 3},
        tuple({"force": [0, 0], "gear": gear} for gear in range(3)),
    ]),
    (TUPLE, (ZEROS, GEARS), [[[ZEROS[0], 0], (ZEROS[1], 1), [ZEROS[2], 2]]]),
    (SMALL, np.array([0, 254, 255], np.uint8), [[0, 254, 255]]),
    (SIGNED, np.array([-128, 0, 127], np.int8), [[-128, 0, 127]]),
    (spaces.MultiBinary(2), np.array([[1, 0]] * 3, np.int8), [np.array([[True, False]] * 3)]),
]  # fmt: skip


def test_forms_that_only_agym_takes() -> None:
    for space, plain, forms in FORMS:
        expected, *found = [play_actions(agym.make(hears(space), 3), a) for a in (plain, *forms)]
        assert found == [expected] * len(forms), space


@each_world
def test_floats_are_not_rounded(world: World) -> None:
    """Nor are those for some environments; and the caller may write into its array again."""
    for name, (space, actions) in FLOATS.items():
        expected = play_actions(SyncVectorEnv([hears(space)] * 3), actions)
        with world.open_envs(world.adapt(hears(space)), 3) as envs:
            assert play_actions(envs, actions) == expected, name
    with world.open_envs(world.adapt(hears(BOX)), 3) as envs:
        envs.reset()
        envs[2].step(THIRDS[2])
        envs.step([THIRDS[0], THIRDS[1]], env_ids=[0, 2])
        sent = THIRDS[[2, 0]]
        envs.send(sent, env_ids=[2, 0])
        envs.recv(min_envs=2)
        sent[...] = 0
        first, second, third = map(described, THIRDS)
        assert heard(envs) == [[first, first], [], [third, second, third]]


# ---------------------------------------------------------------- final observations

FINALS: dict[str, tuple[Any, Any]] = {
    "int": (THREE, 2),
    "int64": (THREE, np.int64(2)),
    "int32": (THREE, np.int32(2)),
    "0-d array": (THREE, np.array(2)),
    "float32": (BOX, np.ones(2, np.float32)),
    "float64": (BOX, np.ones(2) / 3),
    "list": (BOX, [1.0, 2.0]),
    "number": (NUMBER, 0.5),
    "dict": (DICT, {"force": np.ones(2, np.float32), "gear": 1}),
    "tuple": (spaces.Tuple((THREE, spaces.Text(3))), (2, "abc")),
}


@each_world
def test_final_observations_have_the_types_of_gymnasium(world: World) -> None:
    mode: Any = {"autoreset_mode": AutoresetMode.SAME_STEP}
    options: Any = {"backend": world.backend, "workers": world.workers, **mode}
    for name, (space, observation) in FINALS.items():
        factory = partial(Echo, space, [observation], THREE, ends=True)
        with (
            closing(SyncVectorEnv([factory] * 2, **mode)) as theirs,
            closing(agym.AgymVectorEnv([world.adapt(factory)] * 2, **options)) as ours,
        ):
            ours.reset()
            theirs.reset()
            for _ in range(2):
                told, expected = [envs.step(np.array([0, 1]))[4] for envs in (ours, theirs)]
                assert told.keys() == expected.keys(), name
                finals = [[*map(described, info["final_obs"])] for info in (told, expected)]
                assert finals[0] == finals[1], name
