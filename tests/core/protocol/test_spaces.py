"""Whatever an environment observes, and whatever it is sent, arrives exactly as it was."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given

import agym
from tests.support.drivers import SETUPS
from tests.support.envs.plain_envs import Echo
from tests.support.equality import same_values
from tests.support.spaces import Space, any_space, samples, seeds

N = 3


def row(space: Space, batch: Any, i: int) -> Any:
    """Cut the i-th value out of a batch, by the rule that Dict and Tuple nest and nothing else."""
    if isinstance(space, spaces.Dict):
        return {key: row(child, batch[key], i) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, batch, strict=True)
        return tuple(row(child, part, i) for child, part in parts)
    return batch[i]


def rows(space: Space, batch: Any, output: str) -> list[Any]:
    return batch if output == "list" else [row(space, batch, i) for i in range(N)]


def check_observations(space: Space, seed: int, output: Any, **setup: Any) -> None:
    values = samples(space, seed, 3 * N)
    factories = [partial(Echo, space, values[i::N]) for i in range(N)]
    with agym.make(factories, output=output, **setup) as envs:
        batches = [envs.reset().observations]
        batches += [envs.step([0] * N).observations for _ in range(2)]
        for step, batch in enumerate(batches):
            got = rows(space, batch, output)
            expected = values[step * N : (step + 1) * N]
            assert len(got) == N
            assert all(map(same_values, got, expected)), (got, expected)


def check_actions(space: Space, seed: int, **setup: Any) -> None:
    actions = samples(space, seed, N)
    batched: Space = batch_space(space, N)
    (batch,) = samples(batched, seed, 1)
    factory = partial(Echo, spaces.Discrete(2), [0], space)
    with agym.make(factory, N, **setup) as envs:
        envs.reset()
        envs.step(actions)
        envs.step(batch)
        received = envs.call("what_was_received")
    for i, (one, other) in enumerate(received):
        assert same_values(one, actions[i]), (one, actions[i])
        assert same_values(other, row(space, batch, i)), (other, batch)


@given(space=any_space(), seed=seeds)
@pytest.mark.parametrize("output", ["list", "array"])
def test_observations(space: Space, seed: int, output: str) -> None:
    check_observations(space, seed, output)


@given(space=any_space(), seed=seeds)
def test_actions(space: Space, seed: int) -> None:
    check_actions(space, seed)


@given(space=any_space(), seed=seeds)
@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_final_and_held_observations(space: Space, seed: int, mode: Any) -> None:
    first, last = samples(space, seed, 2)
    with agym.make(partial(Echo, space, [first, last], ends=True), autoreset=mode) as envs:
        envs.reset()
        observations, _, terminated, _, infos = envs.step([0])
        assert terminated == [True]
        if mode == "same_step":
            assert same_values(observations[0], first)
            assert same_values(infos[0]["final_obs"], last)
        else:
            for held in (observations, envs.step([0]).observations, envs.step([0]).observations):
                assert same_values(held[0], last)


EVERY_KIND = {
    "box": spaces.Box(-1, 1, (2, 3), np.float32),
    "scalar-box": spaces.Box(-1, 1, (), np.float64),
    "empty-box": spaces.Box(-1, 1, (0,), np.float32),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "discrete": spaces.Discrete(5, start=-2),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "multi-discrete": spaces.MultiDiscrete([2, 3], start=[-1, 7]),
    "text": spaces.Text(9),
    "sequence": spaces.Sequence(spaces.Box(-1, 1, (2,))),
    "stacked-sequence": spaces.Sequence(spaces.Discrete(3), stack=True),
    "graph": spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(4)),
    "one-of": spaces.OneOf([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
    "dict": spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Text(3)}),
    "tuple": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Graph(spaces.Box(0, 1, (1,)), None))),
    "empty-dict": spaces.Dict({}),
    "empty-tuple": spaces.Tuple(()),
}


@pytest.mark.parametrize("setup", SETUPS)
def test_every_kind_at_once(setup: dict[str, Any]) -> None:
    space = spaces.Dict(EVERY_KIND)
    check_observations(space, 0, "list", **setup)
    check_observations(space, 0, "array", **setup)
    check_actions(space, 0, **setup)


@pytest.mark.parametrize("setup", SETUPS)
def test_a_space_that_only_the_caller_knows(setup: dict[str, Any]) -> None:
    class Words(spaces.Text):
        """It travels by value; ``any_space`` has spaces that are not derived from Gymnasium's."""

    check_observations(Words(5), 0, "list", **setup)
    check_actions(Words(5), 0, **setup)


EXTREMES = {
    "float32": (
        spaces.Box(-np.inf, np.inf, (5,), np.float32),
        np.array([np.nan, -np.inf, -0.0, 1e-45, 3.4e38], np.float32),
    ),
    "float64": (
        spaces.Box(-np.inf, np.inf, (4,), np.float64),
        np.array([np.nan, np.inf, 5e-324, 0.1], np.float64),
    ),
    "int64": (
        spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
        np.array([-(2**63), 2**63 - 1], np.int64),
    ),
    "uint64": (spaces.Box(0, 2**64 - 1, (2,), np.uint64), np.array([0, 2**64 - 1], np.uint64)),
    "python-int": (spaces.Discrete(2**62), 2**61 + 1),
    "fortran-order": (
        spaces.Box(-9, 9, (2, 3), np.float32),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    ),
    "strided": (spaces.Box(-9, 9, (3,), np.int32), np.arange(6, dtype=np.int32)[::2]),
    "read-only": (spaces.Box(0, 255, (2,), np.uint8), np.frombuffer(b"ab", np.uint8)),
}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("case", EXTREMES)
def test_extreme_values(case: str, setup: dict[str, Any]) -> None:
    space, value = EXTREMES[case]
    with agym.make(partial(Echo, space, [value]), 3, **setup) as envs:
        for observation in envs.reset().observations + envs.step([0] * 3).observations:
            assert same_values(observation, value if np.ndim(value) else np.int64(value))


@pytest.mark.parametrize("num_envs", [1, 2])
def test_an_integer_that_is_too_large(num_envs: int) -> None:
    with (
        agym.make(partial(Echo, spaces.Discrete(2), [2**70]), num_envs, backend="serial") as envs,
        pytest.raises(agym.AgymError, match="does not fit observation_space"),
    ):
        envs.reset()
