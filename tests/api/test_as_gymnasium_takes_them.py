"""Rewards, flags, actions and final observations in every type that Gymnasium takes and gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import agym
from tests.support.backends import FORK
from tests.support.envs.plain_envs import Result
from tests.support.equality import same_values

BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    "process": {"backend": FORK, "workers": 2},
}
MODES = ["next_step", "same_step", "disabled"]


def matrix_of(value: Any) -> Any:
    return np.array([[value]])


def tensor_of(value: Any, **options: Any) -> Any:
    import torch

    return torch.tensor([value], **options)


def tensor_with_gradient(value: Any) -> Any:
    return tensor_of(float(value), requires_grad=True)


def half_tensor(value: Any) -> Any:
    import torch

    return tensor_of(value, dtype=torch.bfloat16)


def vector_of(value: Any) -> Any:
    return np.array([value])


KINDS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "float32": np.float32,
    "int64": np.int64,
    "bool_": np.bool_,
    "array-0d": np.array,
    "array-1d": vector_of,
    "array-2d": matrix_of,
}
TENSORS = {"tensor": tensor_of, "gradient": tensor_with_gradient, "bfloat16": half_tensor}


class Gives(gymnasium.Env[Any, Any]):
    """Gives rewards 0 and 1 and flags in some type."""

    observation_space = spaces.Box(0, 99, (2,), np.float32)
    action_space = spaces.Discrete(5)

    def __init__(self, kind: Callable[[Any], Any] | None = None) -> None:
        self.kind = kind or (lambda value: value)
        self.now = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.now = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Result:
        self.now += 1
        given = [float(self.now % 2), self.now >= 3 and action < 2, self.now >= 3 and action >= 2]
        reward, terminated, truncated = map(self.kind, given)
        return np.full(2, self.now, np.float32), reward, terminated, truncated, {}


class AsyncGives(Gives):
    """The same as a coroutine environment."""

    async def reset(self, **options: Any) -> Any:  # type: ignore[override]
        return super().reset(**options)

    async def step(self, action: Any) -> Result:  # type: ignore[override]
        return super().step(action)

    async def close(self) -> None:  # type: ignore[override]
        pass


def play(factory: Any, **options: Any) -> list[Any]:
    """All that some steps give, episodes and their returns as well."""
    with agym.make(factory, 3, output="array", episode_stats=True, **options) as envs:
        told = [envs.reset(seed=0)]
        for _ in range(8):
            result = envs.step(np.array([0, 1, 2]))
            for info in result.infos:
                for ended in (info, info.get("final_info", {})):
                    if "episode" in ended:
                        returned = np.asarray(ended["episode"]["r"]).item()
                        ended["episode"] = returned, ended["episode"]["l"]
            told.append(result)
            over = np.flatnonzero(result.terminated | result.truncated)
            if options["autoreset"] == "disabled" and len(over):
                told.append(envs.reset(env_ids=over.tolist()))
        return told


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_rewards_and_flags_in_arrays_of_one_element(backend: str, mode: str) -> None:
    expected = play(Gives, backend="serial", autoreset=mode)
    for name, kind in KINDS.items():
        assert same_values(
            play(partial(Gives, kind), autoreset=mode, **BACKENDS[backend]), expected
        ), name


@pytest.mark.once
@pytest.mark.parametrize("backend", [{"backend": "asyncio"}, BACKENDS["process"]])
def test_those_of_coroutine_environments(backend: dict[str, Any]) -> None:
    for mode in MODES:
        expected = play(Gives, backend="serial", autoreset=mode)
        for name, kind in KINDS.items():
            assert same_values(
                play(partial(AsyncGives, kind), autoreset=mode, **backend), expected
            ), name


@pytest.mark.parametrize("mode", MODES)
def test_rewards_and_flags_in_tensors(mode: str) -> None:
    pytest.importorskip("torch", reason="the extra `torch`")
    expected = play(Gives, backend="serial", autoreset=mode)
    for name, kind in TENSORS.items():
        assert same_values(
            play(partial(Gives, kind), backend="serial", autoreset=mode), expected
        ), name
        coroutines = partial(AsyncGives, kind)
        assert same_values(play(coroutines, backend="asyncio", autoreset=mode), expected), name


@pytest.mark.parametrize("size", [0, 2])
def test_an_array_of_several_elements_is_an_error_of_its_environment(size: int) -> None:
    def kind(value: Any) -> Any:
        return np.full(size, value)

    with agym.make([Gives, partial(Gives, kind), Gives], backend="serial") as envs:
        envs.reset()
        # To NumPy 2.0 and 2.1 an empty array is still false, with a warning.
        told = "environment 1 raised in step: (ValueError|DeprecationWarning)"
        with pytest.raises(agym.EnvError, match=told):
            envs.step([0, 0, 0])


# ---------------------------------------------------------------- actions


class Hears(gymnasium.Env[Any, Any]):
    """Remembers what it was given, with all types in it."""

    observation_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.action_space = space
        self.heard: list[str] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Result:
        self.heard.append(described(action))
        return 0, 0.0, False, False, {}


def described(value: Any) -> str:
    kind = type(value)
    if kind is dict:
        return repr({key: described(part) for key, part in value.items()})
    if kind in (list, tuple):
        return f"{kind.__name__} {[*map(described, value)]}"
    return f"{kind.__name__} {getattr(value, 'dtype', '')} {np.shape(value)} {value!r}"


BOX = spaces.Box(-9, 9, (2,), np.float32)
NUMBER = spaces.Box(-9, 9, (), np.float32)
THREE = spaces.Discrete(3)
DICT = spaces.Dict({"force": BOX, "gear": THREE})
TUPLE = spaces.Tuple((BOX, THREE))
THIRDS = np.arange(6).reshape(3, 2) / 3

ACTIONS: dict[str, tuple[Any, Any]] = {
    "float32": (BOX, THIRDS.astype(np.float32)),
    "float64": (BOX, THIRDS),
    "float16": (BOX, THIRDS.astype(np.float16)),
    "integers for floats": (BOX, np.arange(6).reshape(3, 2)),
    "list of arrays": (BOX, [*THIRDS]),
    "list of lists": (BOX, THIRDS.tolist()),
    "number float32": (NUMBER, THIRDS[:, 1].astype(np.float32)),
    "number float64": (NUMBER, THIRDS[:, 1]),
    "another shape": (BOX, THIRDS[:, 1]),
    "discrete": (THREE, np.array([0, 1, 2])),
    "discrete int32": (THREE, np.array([0, 1, 2], np.int32)),
    "discrete bool": (THREE, np.array([True, False, True])),
    "discrete floats": (THREE, np.array([0.0, 1.0, 2.0])),
    "discrete list": (THREE, [0, 1, 2]),
    "discrete tuple": (THREE, (0, np.int8(1), 2)),
    "multi-discrete": (spaces.MultiDiscrete([3, 4]), np.array([[0, 1], [1, 2], [2, 3]])),
    "multi-binary": (spaces.MultiBinary(2), np.array([[0, 1], [1, 0], [1, 1]])),
    "dict": (DICT, {"force": THIRDS.astype(np.float32), "gear": np.array([0, 1, 2])}),
    "dict float64": (DICT, {"force": THIRDS, "gear": np.array([0, 1, 2])}),
    "dict list": (DICT, {"force": THIRDS.tolist(), "gear": [0, 1, 2]}),
    "tuple float64": (TUPLE, (THIRDS, np.array([0, 1, 2]))),
    "tuple": (TUPLE, (THIRDS.astype(np.float32), np.array([0, 1, 2]))),
}


@pytest.mark.once
@pytest.mark.parametrize("backend", BACKENDS)
def test_actions_reach_environments_as_in_gymnasium(backend: str) -> None:
    for name, (space, actions) in ACTIONS.items():
        factories = [partial(Hears, space)] * 3
        heard = []
        for envs in (
            SyncVectorEnv(factories),
            agym.AgymVectorEnv(factories, **BACKENDS[backend]),
            agym.make_vec(factories[0], 3, **BACKENDS[backend]),
        ):
            envs.reset()
            envs.step(actions)
            envs.step(actions)
            heard.append(envs.get_attr("heard"))
            envs.close()
        assert heard[1] == heard[0], name
        assert heard[2] == heard[0], name


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_in_lists_are_not_rounded(backend: str) -> None:
    for name in ("float32", "float64", "float16", "list of arrays", "dict float64"):
        space, actions = ACTIONS[name]
        theirs = SyncVectorEnv([partial(Hears, space)] * 3)
        theirs.reset()
        theirs.step(actions)
        heard = theirs.get_attr("heard")
        theirs.close()
        with agym.make(partial(Hears, space), 3, **BACKENDS[backend]) as envs:
            envs.reset()
            envs.step(actions)
            assert envs.get_attr("heard") == [*heard], name


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_for_some_are_not_rounded(backend: str) -> None:
    with agym.make(partial(Hears, BOX), 3, **BACKENDS[backend]) as envs:
        envs.reset()
        envs[2].step(THIRDS[2])
        envs.step([THIRDS[0], THIRDS[1]], env_ids=[0, 2])
        envs.send([THIRDS[2], THIRDS[0]], env_ids=[2, 0])
        envs.recv(min_envs=2)
        first, second, third = map(described, THIRDS)
        assert envs.get_attr("heard") == [[first, first], [], [third, second, third]]


def test_floats_are_not_rounded_on_a_loop() -> None:
    class Loops(Hears):
        async def reset(self, **options: Any) -> Any:  # type: ignore[override]
            return super().reset(**options)

        async def step(self, action: Any) -> Result:  # type: ignore[override]
            return super().step(action)

        async def close(self) -> None:  # type: ignore[override]
            pass

    for setup in ({"backend": "asyncio"}, BACKENDS["process"]):
        with agym.make(partial(Loops, BOX), 3, **setup) as envs:
            envs.reset()
            envs.step(THIRDS)
            assert envs.get_attr("heard") == [[described(row)] for row in THIRDS]


def test_what_was_sent_stays_the_environments() -> None:
    """The caller may write into its array again, whatever an environment keeps."""
    actions = THIRDS.copy()
    for setup in BACKENDS.values():
        with agym.make(Keeps, 3, **setup) as envs:
            envs.reset()
            envs.step(actions)
            actions[...] = 0
            assert [one.tolist() for one in envs.get_attr("kept")] == THIRDS.tolist()
            actions[...] = THIRDS


class Keeps(Hears):
    """Keeps the action itself."""

    def __init__(self) -> None:
        super().__init__(BOX)

    def step(self, action: Any) -> Result:
        self.kept = action
        return super().step(action)


def test_a_trajectory_with_float64_actions_is_gymnasiums() -> None:
    theirs = gymnasium.make_vec("Pendulum-v1", 3, vectorization_mode="sync")
    ours = agym.make_vec("Pendulum-v1", 3, backend="serial")
    actions = np.random.default_rng(3).uniform(-2, 2, (50, 3, 1))
    try:
        assert same_values(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
        for action in actions:
            assert same_values(ours.step(action)[:4], theirs.step(action)[:4])
    finally:
        theirs.close()
        ours.close()


@pytest.mark.parametrize("actions", [np.zeros((2, 2)), [0, 1], [0, 1, 2, 3], None, 5])
def test_a_wrong_number_is_refused_before_anything_is_sent(actions: Any) -> None:
    envs = agym.AgymVectorEnv([partial(Hears, BOX)] * 3, backend="serial")
    try:
        envs.reset()
        with pytest.raises((ValueError, TypeError), match="action"):
            envs.step(actions)
        assert envs.get_attr("heard") == ([], [], [])
    finally:
        envs.close()


# ---------------------------------------------------------------- final observations


class Ends(gymnasium.Env[Any, Any]):
    """Ends every episode after two steps, with an observation of its own types."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any, observation: Any) -> None:
        self.observation_space = space
        self.observation = observation
        self.now = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.now = 0
        return self.observation, {}

    def step(self, action: Any) -> Result:
        self.now += 1
        return self.observation, 1.0, self.now == 2, False, {"now": self.now}


class AsyncEnds(Ends):
    """The same as a coroutine environment."""

    async def reset(self, **options: Any) -> Any:  # type: ignore[override]
        return super().reset(**options)

    async def step(self, action: Any) -> Result:  # type: ignore[override]
        return super().step(action)

    async def close(self) -> None:  # type: ignore[override]
        pass


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


@pytest.mark.parametrize("backend", [*BACKENDS, "asyncio"])
def test_final_observations_are_gymnasiums(backend: str) -> None:
    kind: Any = AsyncEnds if backend == "asyncio" else Ends
    for name, (space, observation) in FINALS.items():
        theirs = SyncVectorEnv(
            [partial(Ends, space, observation)] * 2, autoreset_mode=AutoresetMode.SAME_STEP
        )
        ours = agym.AgymVectorEnv(
            [partial(kind, space, observation)] * 2,
            autoreset_mode=AutoresetMode.SAME_STEP,
            **BACKENDS.get(backend, {"backend": backend}),
        )
        try:
            ours.reset()
            theirs.reset()
            for step in range(4):
                told, expected = (envs.step(np.array([0, 1]))[4] for envs in (ours, theirs))
                assert told.keys() == expected.keys(), name
                if step % 2:
                    finals = [[*map(described, info["final_obs"])] for info in (told, expected)]
                    assert finals[0] == finals[1], name
                    assert told["final_info"].keys() == expected["final_info"].keys(), name
        finally:
            ours.close()
            theirs.close()


def test_final_observations_of_gymnasiums_own() -> None:
    """FrozenLake gives integers of Python's, and CartPole arrays."""
    with agym.make(
        "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3",
        2,
        backend="serial",
        autoreset="same_step",
        max_episode_steps=3,
    ) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            result = envs.step([0, 0])
        assert [type(info["final_obs"]) for info in result.infos] == [int, int]
