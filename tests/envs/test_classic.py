"""Classic control: the same dynamics, rewards, flags and pictures as Gymnasium's."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.envs.classic.acrobot import FASTEST_1, FASTEST_2, Acrobot
from agym.envs.classic.cart_pole import CartPole
from agym.envs.classic.mountain_car import MountainCar, MountainCarContinuous
from agym.envs.classic.pendulum import Pendulum
from agym.rules.records import Record
from tests.rules.playing import blank, rng_of
from tests.support.core_selection import examples

IDS = {
    CartPole: "CartPole-v1",
    Acrobot: "Acrobot-v1",
    MountainCar: "MountainCar-v0",
    MountainCarContinuous: "MountainCarContinuous-v0",
    Pendulum: "Pendulum-v1",
}

# The fields that Gymnasium has in `state`, in its order, with the bounds they may have.
CAR = {"position": (-1.2, 0.6), "velocity": (-0.07, 0.07)}
FIELDS: dict[Any, dict[str, tuple[float, float]]] = {
    CartPole: {"position": (-2.4, 2.4), "velocity": (-9, 9), "angle": (-0.21, 0.21)}
    | {"spin": (-9, 9)},
    Acrobot: {"angle_1": (-math.pi, math.pi), "angle_2": (-math.pi, math.pi)}
    | {"spin_1": (-FASTEST_1, FASTEST_1), "spin_2": (-FASTEST_2, FASTEST_2)},
    MountainCar: CAR,
    MountainCarContinuous: CAR,
    Pendulum: {"angle": (-50, 50), "spin": (-8, 8)},
}

# Where episodes begin, by field.
STARTS: dict[Any, list[tuple[float, float]]] = {
    CartPole: [(-0.05, 0.05)] * 4,
    Acrobot: [(-0.1, 0.1)] * 4,
    MountainCar: [(-0.6, -0.4), (0, 0)],
    MountainCarContinuous: [(-0.6, -0.4), (0, 0)],
    Pendulum: [(-math.pi, math.pi), (-1, 1)],
}

PARAMETERS: list[tuple[Any, dict[str, Any]]] = [
    *((rules, {}) for rules in IDS),
    (CartPole, {"sutton_barto_reward": True}),
    (MountainCar, {"goal_velocity": 0.02}),
    (MountainCarContinuous, {"goal_velocity": 0.02}),
    (Pendulum, {"g": 9.81}),
]

by_rules = pytest.mark.parametrize("rules", IDS, ids=lambda rules: rules.__name__)
by_parameters = pytest.mark.parametrize(("rules", "parameters"), PARAMETERS)


class Twins:
    """A game of ours, and the same one of Gymnasium's."""

    def __init__(self, rules: Any, render_mode: str | None = None, **parameters: Any) -> None:
        self.rules = rules
        self.ours = blank(rules, **parameters)
        env_id = IDS[rules]
        env = gymnasium.make(
            env_id, render_mode=render_mode, **parameters, disable_env_checker=True
        )
        self.theirs: Any = env.unwrapped
        self.theirs.reset(seed=0)
        self.theirs.action_space.seed(0)

    def put(self, state: Any) -> None:
        """Set both to a state."""
        precision = np.float32 if self.rules is MountainCarContinuous else np.float64
        self.theirs.state = np.array(state, precision)
        self.theirs.steps_beyond_terminated = None
        for name, value in zip(FIELDS[self.rules], self.theirs.state, strict=True):
            setattr(self.ours, name, float(value))

    def step(self, action: Any) -> bool:
        """Play a step in both, compare all that follows, and return whether the game is over."""
        observation, reward, terminated, _, _ = self.theirs.step(action)
        given = np.asarray(action, np.float64) if np.ndim(action) else int(action)
        assert self.rules.step(self.ours, given, None) == (
            pytest.approx(reward, abs=1e-9), terminated,
        )  # fmt: skip
        np.testing.assert_allclose(observed(self.rules, self.ours), observation, 1e-6, 1e-6)
        for name, value in zip(FIELDS[self.rules], self.theirs.state, strict=True):
            off = getattr(self.ours, name) - value
            off -= 2 * math.pi * round(off / (2 * math.pi)) if name.startswith("angle") else 0
            assert abs(off) < 1e-6, (name, getattr(self.ours, name), value)
        return bool(terminated)


def observed(rules: Any, record: Record) -> Any:
    out = np.full(rules.observation_space.shape, np.nan, rules.observation_space.dtype)
    rules.observe(record, out)
    return out


@by_parameters
def test_whole_episodes_are_gymnasiums(rules: Any, parameters: dict[str, Any]) -> None:
    twins = Twins(rules, **parameters)
    for _ in range(4):
        twins.theirs.reset()
        twins.put(twins.theirs.state)
        for _ in range(200):
            if twins.step(twins.theirs.action_space.sample()):
                break


def states(rules: Any) -> st.SearchStrategy[Any]:
    return st.tuples(
        *(
            st.sampled_from([low, 0.0, high]) | st.floats(low, high)
            for low, high in FIELDS[rules].values()
        )
    )


def actions(rules: Any) -> st.SearchStrategy[Any]:
    """All actions, and forces that are too strong."""
    space = rules.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return st.integers(0, int(space.n) - 1)
    return st.floats(-4, 4, width=32).map(lambda force: np.array([force], np.float32))


@by_parameters
def test_any_state_and_action(rules: Any, parameters: dict[str, Any]) -> None:
    twins = Twins(rules, **parameters)

    @examples(100)
    @given(states(rules), actions(rules))
    def check(state: Any, action: Any) -> None:
        twins.put(state)
        twins.step(action)

    check()


@by_rules
def test_where_episodes_begin(rules: Any) -> None:
    rng, record = rng_of(0), blank(rules)
    begun = []
    for _ in range(1000):
        rules.reset(record, rng)
        begun.append([getattr(record, name) for name in FIELDS[rules]])
        assert rules.observation_space.contains(observed(rules, record))
    for values, (low, high) in zip(np.transpose(begun), STARTS[rules], strict=True):
        margin = (high - low) / 100
        assert low - 1e-7 <= values.min() <= low + margin
        assert high - margin <= values.max() <= high + 1e-7


@by_rules
def test_pictures_are_gymnasiums(rules: Any) -> None:
    pytest.importorskip("pygame")
    twins = Twins(rules, "rgb_array")
    twins.theirs.reset(seed=1)
    twins.put(twins.theirs.state)
    np.testing.assert_array_equal(rules.render(twins.ours), twins.theirs.render())
    for _ in range(5):
        twins.step(twins.theirs.action_space.sample())
        twins.put(twins.theirs.state)
    np.testing.assert_array_equal(rules.render(twins.ours), twins.theirs.render())
    twins.theirs.close()  # which ends pygame: ours goes on
    np.testing.assert_array_equal(rules.render(twins.ours), rules.render(twins.ours))
