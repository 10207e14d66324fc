"""Attributes, methods, wrappers and images of single environments; arguments that cannot work."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from tests.support.envs.plain_envs import Nested, Probe, Tally
from tests.support.training import BOX, each_place, vec_envs


class Outer(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that can be told from others."""


class Inner(Outer):
    """One that is also of its base's kind."""


def wrapped() -> Any:
    return Outer(Inner(Tally()))


def with_inner() -> Any:
    return Inner(Probe())


@each_place
def test_attributes_as_with_dummy(options: dict[str, Any]) -> None:
    answers = []
    for vec_env in (agym.sb3.AgymVecEnv([wrapped] * 3, **options),
                    vec_envs.DummyVecEnv([wrapped] * 3)):  # fmt: skip
        assert not vec_env.has_attr("dummy")
        with pytest.raises(AttributeError, match="dummy"):
            vec_env.get_attr("dummy")
        vec_env.set_attr("dummy", 12)
        vec_env.set_attr("dummy", 13, indices=[-1])
        vec_env.set_attr("gravity", 1.6, indices=0)  # on the outermost wrapper alone
        vec_env.env_method("set_wrapper_attr", "length", 9, indices=[2, 0])
        answers.append([
            vec_env.get_attr("dummy"),
            vec_env.get_attr("gravity"),
            vec_env.get_attr("length", indices=[2, 1, -3]),
            vec_env.env_method("add", 1, b=2, indices=1),
            vec_env.env_method("add", 1, indices=()),
            vec_env.has_attr("add"),
            vec_env.has_attr("length"),
        ])  # fmt: skip
        with pytest.raises(IndexError):
            vec_env.get_attr("length", indices=3)
        with pytest.raises(AttributeError, match="nothing"):
            vec_env.env_method("nothing")
        vec_env.close()
    assert answers[0] == answers[1]


@each_place
def test_which_are_wrapped(options: dict[str, Any]) -> None:
    class Local(Outer):
        pass

    functions = [Tally, wrapped, with_inner, lambda: Local(Tally())]
    for vec_env in (agym.sb3.AgymVecEnv(functions, **options), vec_envs.DummyVecEnv(functions)):
        assert vec_env.env_is_wrapped(Outer) == [False, True, True, True]
        assert vec_env.env_is_wrapped(Inner) == [False, True, True, False]
        assert vec_env.env_is_wrapped(Local) == [False, False, False, True]
        assert vec_env.env_is_wrapped(gymnasium.Wrapper, indices=[1, 0]) == [True, False]
        vec_env.close()


@each_place
def test_what_cannot_be_sent_can_be_asked_for(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.AgymVecEnv([Unsendable] * 2, **options)
    assert vec_env.has_attr("lock")
    assert not vec_env.has_attr("key")
    vec_env.close()


class Unsendable(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.lock = (value for value in ())


@each_place
def test_images(options: dict[str, Any]) -> None:
    pytest.importorskip("pygame", reason="rendering CartPole needs pygame: the extra `render`")
    make = partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")
    frames = []
    for vec_env in (agym.sb3.AgymVecEnv([make] * 3, **options), vec_envs.DummyVecEnv([make] * 3)):
        vec_env.seed(0)
        vec_env.reset()
        assert len(vec_env.get_images()) == 3
        with pytest.warns(UserWarning, match="something_else"):
            assert vec_env.render("something_else") is None
        frames.append(vec_env.render())
        vec_env.close()
    assert frames[0].shape == (800, 1200, 3)
    assert np.array_equal(*frames)


def test_images_without_a_mode_for_them() -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally] * 2, backend="serial")
    assert vec_env.render_mode == "ansi"
    with pytest.warns(UserWarning, match="rgb_array"):
        assert vec_env.get_images() == [None, None]
    vec_env.close()


@each_place
def test_the_same_environment_twice_is_refused(options: dict[str, Any]) -> None:
    env = Tally()
    with pytest.raises(ValueError, match="the same environment"):
        agym.sb3.AgymVecEnv([lambda: env] * 4, **options)


REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "none": ([], {}, ValueError, "env_fns is empty"),
    "no function": ([3], {}, ValueError, "factories"),
    "one function": (Tally, {}, TypeError, "a list of functions"),
    "start method": (
        [Tally], {"backend": "process", "start_method": "illegal_method"}, ValueError,
        "start_method='illegal_method' is unknown",
    ),
    "start method without processes": (
        [Tally], {"start_method": "spawn"}, ValueError,
        "start_method='spawn' .* backend='serial' has none: leave it out",
    ),
    "backend": ([Tally], {"backend": "gpu"}, ValueError, "backend"),
    "workers": ([Tally], {"workers": 0}, ValueError, "workers"),
    "option": ([Tally], {"worker": 2}, TypeError, "worker"),
    "nested": ([Nested], {}, NotImplementedError, "[Nn]ested"),
    "text": ([partial(RandomEnv, spaces.Text(3), BOX)], {}, ValueError, "fixed shape"),
}  # fmt: skip


@pytest.mark.parametrize(("functions", "options", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_refused(
    functions: Any, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        agym.sb3.AgymVecEnv(functions, **{"backend": "serial", **options})


def test_bad_arguments_of_calls() -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally] * 3, backend="serial")
    vec_env.reset()
    with pytest.raises(ValueError, match="3 actions"):
        vec_env.step([0, 0])
    with pytest.raises(ValueError, match="2 options"):
        vec_env.set_options([{}, {}])
    vec_env.step([0, 0, 0])
    vec_env.close()
    with pytest.raises(agym.UsageError, match="cannot be found"):
        agym.sb3.make_vec_env("Nothing-v0")


@each_place
def test_snapshots_of_single_environments(options: dict[str, Any]) -> None:
    vec_env = agym.sb3.AgymVecEnv([Probe] * 3, **options)
    vec_env.reset()
    observations, *_ = vec_env.step(np.array([1, 2, 3]))
    taken = vec_env.env_method("snapshot", indices=[2, 0])
    once, *_ = vec_env.step(np.array([4, 4, 4]))
    (observation,) = vec_env.env_method("restore", taken[0], indices=[-1])
    assert np.array_equal(observation, observations[2])
    again, *_ = vec_env.step(np.array([4, 4, 4]))
    assert np.array_equal(again[2], once[2])
    vec_env.close()
