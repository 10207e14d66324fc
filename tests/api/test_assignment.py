"""``envs.gravity = 1.6``: what is not a law of every backend, and the APIs of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit

import agym
from tests.support.drivers import APIS, FORKED, each_setup, played
from tests.support.envs.plain_envs import Tally


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


def wrapped() -> gymnasium.Env[Any, Any]:
    return TimeLimit(Tally(length=9), max_episode_steps=7)


def test_attributes_of_the_batch_stay_its_own() -> None:
    with agym.make(wrapped, 2) as envs:
        envs.length = 5  # of the environments, under their wrapper
        assert envs.unwrapped.length == [5, 5]
        envs.metadata = {"mine": 1}
        envs._note = 3
        assert (envs.metadata, envs._note) == ({"mine": 1}, 3)
        assert envs.get_attr("metadata")[0]["render_fps"] == 7
        for name, meant in (("num_env", "num_envs"), ("metdata", "metadata")):
            with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
                setattr(envs, name, 3)
        with pytest.raises(AttributeError):
            envs.closed = True
    for target in (envs, envs.unwrapped):
        with pytest.raises(agym.ClosedError):
            target.length = 3


@each_setup
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


def test_a_vector_environment_as_backend() -> None:
    with agym.make("CartPole-v1", 3, backend="vector") as envs:
        envs.gravity = 1.6
        assert envs.gravity == [1.6] * 3
        with pytest.raises(AttributeError, match="gravty"):
            envs.gravty = 1
        with pytest.raises(agym.UsageError, match=r"one VectorEnv.*use backend='serial'"):
            envs[0].gravity = 1


class Counting(agym.AgymVectorEnv):
    """Has attributes of its own, one of which has the name of an environment's."""

    def __init__(self, makers: list[Callable[[], Any]], **options: Any) -> None:
        self.log: list[int] = []
        super().__init__(makers, **options)
        self.steps = 0
        self.gravity = "its own"

    def step(self, actions: Any) -> Any:
        self.steps += 1
        return super().step(actions)


@each_setup
def test_a_gymnasium_vector_environment(setup: dict[str, Any]) -> None:
    with closing(agym.AgymVectorEnv([wrapped] * 3, **setup)) as envs:
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
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.gravity = 1
    with closing(Counting([wrapped] * 2, **setup)) as own:
        before = own.get_attr("gravity")
        own.reset(seed=0)
        own.step([0, 0])
        own.gravity = "again"
        assert (own.steps, own.log) == (1, [])
        assert own.get_attr("gravity") == before


@pytest.mark.parametrize("api", APIS)
def test_an_assignment_that_fails_writes_a_capsule(api: str, tmp_path: Path) -> None:
    policy = agym.FaultPolicy(capsule_dir=tmp_path)
    with played(api, [Strict] * 2, **FORKED, on_fault=policy) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.EnvError) as caught:
            envs.set_attr("mass", [1.0, -2.0])
        assert caught.value.capsule
