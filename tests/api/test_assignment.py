"""``envs.gravity = 1.6``: reaches every environment, or says which ones refused it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit

import agym
from tests.support.drivers import FORKED, Setup, everywhere, played
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Tally

SERIAL = {"backend": "serial"}
each_kind = pytest.mark.parametrize(
    "setup", [SERIAL, {**FORKED, "workers": 2}], ids=["serial", "process"]
)


class Strict(Tally):
    """Has an attribute that cannot be set, one with a rule, and perhaps one more."""

    def __init__(self, extra: bool = False) -> None:
        super().__init__()
        if extra:
            self.extra = 1
        self._mass = 1.0

    @property
    def fixed(self) -> int:
        return 3

    @property
    def mass(self) -> float:
        return self._mass

    @mass.setter
    def mass(self, value: float) -> None:
        if value <= 0:
            raise ValueError("mass must be positive")
        self._mass = value


def wrapped(length: int = 9) -> gymnasium.Env[Any, Any]:
    return TimeLimit(Tally(length=length), max_episode_steps=7)


# ---------------------------------------------------------------- the sync API


@everywhere
def test_it_reaches_every_environment(setup: Setup) -> None:
    with agym.make(setup.of(3, length=99), **setup.options) as envs:
        envs.gravity = 1.6
        assert envs.get_attr("gravity") == envs.gravity == [1.6] * 3
        assert envs.call("add", 1) == [2.6] * 3
        envs.unwrapped.gravity = 2.5
        assert envs.unwrapped.gravity == envs.gravity == [2.5] * 3
        envs.gravity = [1, 2, 3]
        envs.unwrapped.length = (4, 5, 6)
        assert (envs.gravity, envs.length) == ([1, 2, 3], [4, 5, 6])
        envs.gravity = [2 * g for g in envs.gravity]
        assert envs.gravity == [2, 4, 6]
        with pytest.raises(agym.UsageError, match="2 values for 3 environments"):
            envs.gravity = [1, 2]


@each_kind
def test_through_wrappers(setup: dict[str, Any]) -> None:
    with agym.make(wrapped, 2, **setup) as envs:
        envs.length = 5
        assert envs.unwrapped.length == [5, 5]
        envs.set_attr("_max_episode_steps", 3)
        assert envs.get_attr("_max_episode_steps") == [3, 3]
        assert envs[1].get_wrapper_attr("_max_episode_steps") == 3


@everywhere
def test_groups_and_handles(setup: Setup) -> None:
    with agym.make(setup.of(4), **setup.options) as envs:
        one, other = envs.split(2)
        one.gravity = 1
        other.unwrapped.gravity = [2, 3]
        assert [one.gravity, other.gravity] == [[1, 1], [2, 3]]
        one[0].gravity = 7
        other[1].unwrapped.gravity = 8
        assert sorted(envs.gravity) == [1, 2, 7, 8]
        assert (one[0].gravity, other[1].unwrapped.gravity) == (7, 8)


@everywhere
def test_a_typo_is_not_swallowed(setup: Setup) -> None:
    with agym.make(setup.of(2), **setup.options) as envs:
        for assign in (
            partial(setattr, envs, "gravty"),
            partial(setattr, envs.unwrapped, "gravty"),
            partial(setattr, envs[1], "gravty"),
            partial(setattr, envs[1].unwrapped, "gravty"),
        ):
            with pytest.raises(AttributeError, match=r"environments? .*1 .*gravty.*set_attr"):
                assign(1.6)
        assert not hasattr(envs, "gravty")
        with pytest.raises(AttributeError, match="did you mean 'num_envs'"):
            envs.num_env = 3
        with pytest.raises(AttributeError, match="did you mean 'metadata'"):
            envs.metdata = {}
        with pytest.raises(AttributeError):
            envs.closed = True
        envs.set_attr("gravty", 1.6)  # who means it says so
        envs.gravty = 2
        assert envs.gravty == [2, 2]


def test_own_attributes_stay_own() -> None:
    with agym.make(Tally, 2) as envs:
        envs.metadata = {"mine": 1}
        envs._note = 3
        assert (envs.metadata, envs._note) == ({"mine": 1}, 3)
        assert envs.get_attr("metadata")[0]["render_fps"] == 7


@each_kind
def test_which_refused_and_why(setup: dict[str, Any]) -> None:
    with agym.make([Strict, partial(Strict, True), Strict], **setup) as envs:
        with pytest.raises(AttributeError, match=r"environments 0, 2 .*'extra'.*in the other env"):
            envs.extra = 5
        assert envs[1].extra == 5
        with pytest.raises(agym.EnvError, match=r"environment 1 .*mass must be positive") as caught:
            envs.mass = [1.0, -1.0, 2.0]
        assert (caught.value.env_id, caught.value.operation) == (1, "set_attr")
        assert envs.mass == [1.0, 1.0, 2.0]
        with pytest.raises(ExceptionGroup) as group:
            envs.fixed = 4
        errors: tuple[Any, ...] = group.value.exceptions
        assert sorted(error.env_id for error in errors) == [0, 1, 2]
        assert all(isinstance(error.exception, AttributeError) for error in errors)


def test_what_cannot_be_sent() -> None:
    with agym.make(Tally, 2, **FORKED) as envs:
        with pytest.raises(agym.UsageError, match="pickled"):
            envs.gravity = (x for x in "ab")
        assert envs.gravity == [9.8] * 2


def test_closed() -> None:
    envs = agym.make(Tally, 2)
    envs.close()
    with pytest.raises(agym.ClosedError):
        envs.gravity = 1.6
    with pytest.raises(agym.ClosedError):
        envs.unwrapped.gravity = 1.6


def test_a_batched_program() -> None:
    with agym.make("CartPole-v1", 3, backend="vector") as envs:
        envs.gravity = 1.6
        assert envs.gravity == [1.6] * 3
        with pytest.raises(AttributeError, match="gravty"):
            envs.gravty = 1
        with pytest.raises(agym.UsageError, match="one VectorEnv"):
            envs[0].gravity = 1


# ---------------------------------------------------------------- the async API


@everywhere
async def test_an_assignment_cannot_be_awaited(setup: Setup) -> None:
    async with agym.make_async(setup.of(2), **setup.options) as envs:
        with pytest.raises(AttributeError, match=r"`await envs.set_attr\('gravity', value\)`"):
            envs.gravity = 1.6
        with pytest.raises(AttributeError, match=r"`await env.set_attr\('gravity', value\)`"):
            envs[0].gravity = 1.6
        with pytest.raises(AttributeError, match=r"await envs.get_attr\('gravity'\)"):
            _ = envs.gravity
        with pytest.raises(AttributeError, match=r"await env.get_attr\('gravity'\)"):
            _ = envs[0].gravity
        with pytest.raises(AttributeError, match="did you mean 'num_envs'"):
            envs.num_env = 3
        await envs.set_attr("gravity", 1.6)
        await envs[0].set_attr("gravity", 2.5)
        await envs[1].unwrapped.set_attr("length", 5)
        assert await envs.get_attr("gravity") == [2.5, 1.6]
        assert await envs[1].get_attr("length") == 5


async def test_before_they_are_open() -> None:
    envs = agym.make_async(Tally, 2)
    with pytest.raises(AttributeError, match="set_attr"):
        envs.gravity = 1
    with pytest.raises(AttributeError, match="open"):
        _ = envs.observation_space
    await envs
    await envs.aclose()


# ---------------------------------------------------------------- Gymnasium's and SB3's classes


@each_kind
def test_vector(setup: dict[str, Any]) -> None:
    makers: list[Callable[[], Any]] = [wrapped] * 3
    envs = agym.AgymVectorEnv(makers, **setup)
    try:
        envs.gravity = 1.6
        assert envs.get_attr("gravity") == (1.6,) * 3
        envs.unwrapped.gravity = [1, 2, 3]
        assert envs.call("add", 1) == (2, 3, 4)
        with pytest.raises(AttributeError, match=r"envs.get_attr\('gravity'\)"):
            _ = envs.gravity
        assert not hasattr(envs, "get_wrapper_attr")  # or it would pass for a single environment
        envs.is_labelled = True  # no environment has it, so it is the object's, as in Gymnasium
        assert envs.is_labelled
        assert not hasattr(envs, "no_such_thing")
        envs.reset(seed=0)
        envs.step_async([0, 0, 0])
        with pytest.raises(gymnasium.error.AlreadyPendingCallError):
            envs.gravity = 1
        envs.step_wait()
        envs.spec = None  # its own
        envs._note = 1
    finally:
        envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.gravity = 1


class Counting(agym.AgymVectorEnv):
    def __init__(self, makers: list[Callable[[], Any]], **options: Any) -> None:
        self.log: list[int] = []
        super().__init__(makers, **options)
        self.steps = 0
        self.gravity = "its own"

    def step(self, actions: Any) -> Any:
        self.steps += 1
        return super().step(actions)


@each_kind
def test_a_subclass_of_the_vector_environment_has_attributes_of_its_own(
    setup: dict[str, Any],
) -> None:
    with_attributes = Counting([wrapped] * 2, **setup)
    try:
        before = with_attributes.get_attr("gravity")
        with_attributes.reset(seed=0)
        with_attributes.step([0, 0])
        with_attributes.gravity = "again"
        assert (with_attributes.steps, with_attributes.log) == (1, [])
        assert with_attributes.get_attr("gravity") == before
    finally:
        with_attributes.close()


@each_kind
def test_sb3_sets_attributes_as_it_does(setup: dict[str, Any]) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    envs = agym.sb3.AgymVecEnv([Strict] * 2, **setup)
    try:
        envs.set_attr("gravity", 1.6)
        assert envs.get_attr("gravity") == [1.6] * 2
        envs.set_attr("mass", 2.0, indices=[1])
        assert envs.get_attr("mass") == [1.0, 2.0]
        with pytest.raises(agym.EnvError, match=r"environment 1 .*mass must be positive"):
            envs.set_attr("mass", -1.0, indices=1)
    finally:
        envs.close()


def test_coroutine_environments_without_wrappers() -> None:
    with agym.make(partial(AsyncTally, Tally), 2, backend="asyncio") as envs:
        envs.gravity = [3, 4]
        assert envs.call("add", 0) == [3, 4]


@pytest.mark.parametrize("api", ["sync", "async"])
def test_capsules_still_tell_what_was_set(api: str, tmp_path: Any) -> None:
    policy = agym.FaultPolicy(capsule_dir=tmp_path)
    with played(api, [Strict] * 2, **FORKED, on_fault=policy) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.EnvError) as caught:
            envs.set_attr("mass", [1.0, -2.0])
        assert caught.value.capsule
