"""State in odd places, much of which matters only after the proof of a copy."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.core.hosts.states import by_attributes
from agym.core.hosts.states.ways import copy_env, kind_of
from agym.testing import assert_same

LATE = 20


class Base(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-1e9, 1e9, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.place = float(self.np_random.random())
        self.begin()
        return np.array([self.steps, self.place]), {}

    def begin(self) -> None: ...

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.place += 0.1 * action
        self.move(action)
        return np.array([self.steps, self.place]), self.place, False, False, {}

    def move(self, action: Any) -> None: ...


class Method(Base):
    """Its state is which of its methods is next."""

    def begin(self) -> None:
        self.phase = self.slow

    def slow(self) -> None:
        self.place += 0.01
        if self.steps == LATE:
            self.phase = self.fast

    def fast(self) -> None:
        self.place += 1

    def move(self, action: Any) -> None:
        self.phase()


class Class(Base):
    """Its state is a class, and a module."""

    def begin(self) -> None:
        self.kind: Any = int
        self.module: types.ModuleType = types

    def move(self, action: Any) -> None:
        if self.steps == LATE:
            self.kind, self.module = float, np
        self.place = self.kind(1.5 + self.steps) + len(self.module.__name__)


class Callbacks(Base):
    """Its state is a list of functions, some of which are closures."""

    def begin(self) -> None:
        self.pending: list[Callable[[], float]] = [lambda: 0.5]

    def move(self, action: Any) -> None:
        if self.steps == LATE:
            self.pending.append(lambda: 7.0)
        self.place += sum(each() for each in self.pending)


class Drawing(Base):
    """Draws from a space."""

    def begin(self) -> None:
        self.goals = spaces.Box(0, 1, (2,), np.float64)
        self.goals.seed(int(self.np_random.integers(99)))

    def move(self, action: Any) -> None:
        self.place += self.goals.sample()[0]


class Views(Base):
    """Arrays that share memory; ``pickled`` says whether there is something that is not plain."""

    def __init__(self, *, pickled: bool = False, order: Any = "C") -> None:
        self.pickled, self.order = pickled, order

    def begin(self) -> None:
        self.board = np.zeros((4, 3), order=self.order)
        self.row, self.backwards = self.board[1:3], self.board[::-1, 1]
        self.other = types.SimpleNamespace(row=self.row) if self.pickled else None

    def move(self, action: Any) -> None:
        if self.steps >= LATE:
            self.row += 7
            self.backwards[0] += 1
        self.place += self.board[1].sum() + self.board[3, 1]


class Bits(Base):
    """Two generators that share their random bits."""

    def begin(self) -> None:
        bits = np.random.PCG64(int(self.np_random.integers(999)))
        self.one, self.other = np.random.Generator(bits), np.random.Generator(bits)

    def move(self, action: Any) -> None:
        if self.steps >= LATE:
            self.place += self.one.random() + self.other.random()


class Simulator:
    """Cannot be pickled."""

    def __init__(self) -> None:
        self.at = 0
        self.handle = (number for number in range(3))


class Lazy(Base):
    """Has a simulator after its first reset, and mentions it twice."""

    def begin(self) -> None:
        self.simulator = Simulator()
        self.alias = [self.simulator]

    def move(self, action: Any) -> None:
        self.simulator.at += action
        self.place += self.alias[0].at


class Slots(Base):
    """Has state in slots, one of which is private, and one empty at first."""

    __slots__ = ("__secret", "hidden", "late")

    def begin(self) -> None:
        self.hidden, self.__secret = 0, [0]

    def move(self, action: Any) -> None:
        self.hidden += action
        self.__secret[0] += self.hidden
        if self.hidden == 7:
            self.late = self.np_random.random()
        self.place += self.hidden + self.__secret[0] + getattr(self, "late", 0)


class NoEnv(Base):
    """Has an attribute that is called as wrappers call their environment."""

    def begin(self) -> None:
        self.env = {"name": "Hopper", "at": 0}

    def move(self, action: Any) -> None:
        if self.steps == LATE:
            self.env["at"] = 3
        self.place += self.env["at"]


KINDS = [
    Method, Class, Callbacks, Drawing, Views, partial(Views, order="F"),
    partial(Views, pickled=True), Bits, Lazy, NoEnv, Slots,
]  # fmt: skip


@pytest.mark.parametrize("fresh", [True, False], ids=["never_reset", "used"])
@pytest.mark.parametrize("when", [0, LATE - 5, LATE + 5])
@pytest.mark.parametrize("make", KINDS)
def test_a_copy_goes_on_as_its_original(make: Any, when: int, fresh: bool) -> None:
    agym.snapshot_codecs.register(
        Simulator, lambda one: one.at, lambda one, state: setattr(one, "at", state)
    )
    env, other = make(), make()
    env.reset(seed=3)
    for k in range(when):
        env.step(k % 2)
    if not fresh:
        other.reset(seed=8)
        other.step(1)
    other.late = 5
    by_attributes.put(other, by_attributes.take(env))
    assert hasattr(other, "late") == hasattr(env, "late")
    for k in range(20):
        assert_same(env.step(k % 2), other.step(k % 2))
    way, detail, _ = copy_env(env, kind_of(env, make), make, lambda: [env])
    assert way == "attributes"
    assert detail.startswith("the state of Simulator and ") == (make is Lazy)


class Made(Base):
    """What it does depends on how it is made."""

    elsewhere: ClassVar[dict[int, float]] = {}

    def __init__(self, *, honest: bool) -> None:
        self.honest, self.number = honest, len(self.elsewhere)
        self.elsewhere[self.number] = 0.0

    def move(self, action: Any) -> None:
        if not self.honest:
            self.elsewhere[self.number] += 1 + action
            self.place += self.elsewhere[self.number]


def test_a_proof_is_for_environments_that_are_made_alike() -> None:
    for honest in (True, False):
        make = partial(Made, honest=honest)
        env = make()
        env.reset(seed=1)
        assert (
            isinstance(copy_env(env, kind_of(env, make), make, partial(list, [env])), str)
            is not honest
        )


LIMIT, SCALE = gymnasium.wrappers.TimeLimit, gymnasium.wrappers.TransformReward


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            lambda: LIMIT(SCALE(Method(), lambda reward: reward), 100),
            lambda: SCALE(LIMIT(Method(), 100), lambda reward: 5 * reward),
            "TimeLimit around .*, not from .*TransformRe",
        ),
        (
            partial(gymnasium.make, "CartPole-v1", max_episode_steps=10),
            partial(gymnasium.make, "CartPole-v1"),
            "at most 10 steps",
        ),
    ],
)
def test_states_of_other_layers_are_refused_and_change_nothing(
    one: Any, other: Any, message: str
) -> None:
    """The caller is at fault, not the environment."""
    with agym.make(one, 1) as ones, agym.make(other, 1, on_fault="restart") as others:
        ones.reset(seed=1)
        first = others.reset(seed=2), others.step([0])
        with pytest.raises(agym.SnapshotError, match=message):
            others.restore(ones.snapshot())
        assert others.stats().envs[0].faults == 0
        assert_same((others.reset(seed=2), others.step([0])), first)


class Thing:
    total = 0


def test_classes_keep_their_attributes() -> None:
    class Local:
        total = 0

    class Has(Base):
        def begin(self) -> None:
            self.things = Thing(), Local()

    env = Has()
    env.reset(seed=1)
    state = by_attributes.take(env)
    Thing.total = 77
    by_attributes.put(env, state)
    assert Thing.total == 77
    assert type(env.things[0]) is Thing


def test_the_proof_leaves_the_callers_samples_alone() -> None:
    class Sampled(Base):
        action_space = spaces.Discrete(1000)

    drawn = []
    for snapshots in (False, True):
        with agym.make(Sampled, 1, backend="serial") as envs:
            envs.reset(seed=0)
            envs.single_action_space.seed(5)
            if snapshots:
                envs.snapshot()
            drawn.append([envs.single_action_space.sample() for _ in range(5)])
    assert drawn[0] == drawn[1]


def test_snapshots_are_values() -> None:
    with agym.make(Method, 1) as envs:
        envs.reset(seed=0)
        (snapshot,) = envs.snapshot()
        snapshot.observation[:] = 99
        others = {*envs.snapshot(), *envs.snapshot()}
        assert len(others) == 2
        assert snapshot not in others
        observations, _ = envs.restore(snapshot)
        assert observations[0].max() < 2
