"""Each way to copy an environment is proven, and the first that is exact is taken."""

from __future__ import annotations

import threading
from functools import partial
from random import SystemRandom
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

import agym
from agym.core.hosts.states import by_attributes, codecs
from agym.core.hosts.states.codecs import registered
from agym.core.hosts.states.env_state import Record, note_start
from agym.core.hosts.states.ways import copy_env, kind_of, refute
from agym.testing import assert_same
from agym.testing.random_env import RandomEnv
from tests.support.patience import patience


def way_of(make: Any) -> Any:
    env = make()
    env.reset(seed=7)
    try:
        return copy_env(env, kind_of(env, make), make, lambda: [env])
    finally:
        env.close()


class Walk(gymnasium.Env[Any, Any]):
    """A random walk, whose place is kept as a subclass says."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        return self.place.copy(), {}

    def step(self, action: Any) -> Any:
        self.place += self.np_random.normal(size=2) + action
        return self.place.copy(), 0.0, bool(self.place.max() > 40), False, {}


class WithProtocol(Walk):
    """Has a lock, which cannot be pickled, and says itself what its state is."""

    def __init__(self) -> None:
        self.generator = (number for number in range(9))

    def get_state(self) -> Any:
        return self.place.copy(), self.np_random

    def set_state(self, state: Any) -> None:
        self.place, self.np_random = state


class WithWrongProtocol(Walk):
    """Forgets its random numbers."""

    def get_state(self) -> Any:
        return self.place.copy()

    def set_state(self, state: Any) -> None:
        self.place = state


class Eager(Walk, EzPickle):
    """Its pickle begins anew."""

    def __init__(self) -> None:
        EzPickle.__init__(self)


def wrapped() -> Any:
    statistics = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    return gymnasium.wrappers.FrameStackObservation(statistics, 4)


@pytest.mark.parametrize(
    "make",
    [
        Walk,
        partial(gymnasium.make, "CartPole-v1"),
        partial(gymnasium.make, "Taxi-v4"),
        wrapped,
        partial(RandomEnv, spaces.Box(-1, 1, (3,)), spaces.Discrete(3)),
        partial(gymnasium.make, "agym/FrozenLake-v1", engine="python"),
        Eager,
    ],
)
def test_attributes_are_an_exact_copy(make: Any) -> None:
    assert way_of(make)[0] == "attributes"


def test_one_environment_for_all_proves_nothing() -> None:
    only = Walk()
    used = [only]
    why = refute(
        lambda env, _: by_attributes.take(env), by_attributes.put, lambda: only, lambda: used
    )
    assert "instead of a new one" in why


@pytest.mark.parametrize("bad", [("Walk", len, len), (Walk, 3, len), (Walk, len, None)])
def test_a_codec_is_a_class_and_two_functions(bad: Any) -> None:
    with pytest.raises(agym.UsageTypeError, match="register"):
        agym.snapshot_codecs.register(*bad)


def test_a_protocol_is_used_only_if_it_is_exact() -> None:
    detail = "the state that WithProtocol returns and the attributes of all layers"
    assert way_of(WithProtocol)[1] == detail
    assert way_of(WithWrongProtocol)[1] == "the attributes of all layers"


class Forgetful(Walk):
    """Seldom, but now and then, does what its attributes do not say."""

    all: ClassVar[dict[int, Any]] = {}

    def __init__(self) -> None:
        self.number = len(self.all)
        self.all[self.number] = 0.0

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        if observation[0] % 1 < 0.2:
            observation += self.all[self.number]
        self.all[self.number] = float(observation[1])
        return observation, *rest


def test_what_a_copy_lacks_may_matter_seldom() -> None:
    assert "differed in step" in way_of(Forgetful)


def test_a_replay_is_proven_too() -> None:
    class Fated(Walk):
        def __init__(self) -> None:
            self.secret = (number for number in range(9))

    class Haunted(Fated):
        def step(self, action: Any) -> Any:
            _, *rest = super().step(action)
            return self.place + SystemRandom().random(), *rest

    def replayed(kind: Any) -> Any:
        env = kind()
        record = Record(note_start(env, {"seed": 3}), [1])
        env.reset(seed=3)
        env.step(1)
        return copy_env(env, kind_of(env, kind), kind, lambda: [env], record)

    assert replayed(Fated)[0] == "actions"
    assert "and by its actions: a copy differed in step 1" in replayed(Haunted)


def test_what_only_draws_stays() -> None:
    env, other = (gymnasium.make("FrozenLake-v1", render_mode="rgb_array") for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=2)
    picture = env.render()
    state = by_attributes.take(env)  # its pictures are surfaces of pygame
    other.render()
    by_attributes.put(other, state)
    assert_same(other.render(), picture)
    plain = gymnasium.make("FrozenLake-v1")
    plain.reset(seed=3)
    by_attributes.put(other, by_attributes.take(plain))
    assert other.render() is not None  # another render_mode does not come with a state
    env.close()
    other.close()


@pytest.mark.once
@pytest.mark.parametrize("probability", [0.0, 0.25, 0.9])
def test_the_action_that_ale_repeats(probability: float) -> None:
    """It is in no state of ALE's: the other environment has taken other actions."""
    pytest.importorskip("ale_py")
    make = partial(
        gymnasium.make, "ALE/Breakout-v5", repeat_action_probability=probability, obs_type="ram",
        frameskip=2,
    )  # fmt: skip
    env, other, never_copied = make(), make(), make()
    rng = np.random.default_rng(0)
    for one in (env, other, never_copied):
        one.reset(seed=5)
    for _ in range(60):
        for action in rng.integers(4, size=3):
            assert_same(env.step(action), never_copied.step(action))
        other.step(rng.integers(4))
        by_attributes.put(other, by_attributes.take(env))
        for action in rng.integers(4, size=6):
            result = never_copied.step(action)
            assert_same(env.step(action), result)
            assert_same(other.step(action), result)
            if result[2]:
                for one in (env, other, never_copied):
                    one.reset()


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("name", ["ALE/Pong-v5", "Ant-v5", "Humanoid-v5"])
def test_simulators(name: str) -> None:
    pytest.importorskip("ale_py" if name.startswith("ALE") else "mujoco")
    kind, detail, _ = way_of(partial(gymnasium.make, name, disable_env_checker=True))
    assert kind == "attributes"
    assert ("ALEInterface" if name.startswith("ALE") else "MjData") in detail


def test_one_environment_that_cannot_be_copied_is_no_rule_for_its_kind() -> None:
    env = Walk()
    env.reset(seed=1)
    env.handle = (number for number in range(3))  # type: ignore[attr-defined]
    why = copy_env(env, kind_of(env, Walk), Walk, lambda: [env])
    assert isinstance(why, str)
    assert "Walk.handle, a generator, can't be pickled" in why
    assert way_of(Walk)[0] == "attributes"


def test_two_threads_register_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_here", registered())

    class Second:
        pass

    def register_second() -> None:
        agym.snapshot_codecs.register(Second, repr, setattr)

    other = threading.Thread(target=register_second)

    class Meta(type):
        def __hash__(cls) -> int:
            """Runs while the first registration copies what is registered."""
            if other.ident is None:
                other.start()
                other.join(0.5)  # it may have to wait for the first
            return type.__hash__(cls)

    class First(metaclass=Meta):
        pass

    agym.snapshot_codecs.register(First, repr, setattr)
    other.join(patience())
    assert {First, Second} <= registered().codecs.keys()
