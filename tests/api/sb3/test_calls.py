"""Attributes, methods, wrappers and images of single environments; arguments that cannot work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from tests.support.envs.plain_envs import Nested, Tally
from tests.support.training import BOX, each_place, vec_envs


class Outer(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that can be told from others."""


class Inner(Outer):
    """One that is also of its base's kind."""

    @property
    def unsendable(self) -> Any:
        return (value for value in ())


def wrapped() -> Any:
    return Outer(Inner(Tally()))


@each_place
def test_attributes_and_wrappers_as_with_dummy(options: dict[str, Any]) -> None:
    class Local(Outer):
        pass

    functions = [wrapped, wrapped, wrapped, lambda: Local(wrapped())]
    answers = []
    for vec_env in (agym.sb3.AgymVecEnv(functions, **options), vec_envs.DummyVecEnv(functions)):
        assert not vec_env.has_attr("dummy")
        for ask in (vec_env.get_attr, vec_env.env_method):
            with pytest.raises(AttributeError, match="nothing"):
                ask("nothing")
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
            [vec_env.has_attr(name) for name in ("add", "length", "unsendable")],
            [vec_env.env_is_wrapped(wrapper) for wrapper in (Outer, Inner, Local)],
            vec_env.env_is_wrapped(gymnasium.Wrapper, indices=[1, 0]),
        ])  # fmt: skip
        with pytest.raises(IndexError):
            vec_env.get_attr("length", indices=4)
        if vec_env.has_attr("runner"):
            assert [env.faults for env in vec_env.stats().envs] == [0] * 4
        vec_env.close()
    assert answers[0] == answers[1]


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


def opening(env_fns: Any, backend: Any = "serial", **options: Any) -> Callable[[], Any]:
    return lambda: agym.sb3.AgymVecEnv(env_fns, backend=backend, **options)


ENV = Tally()
REFUSED: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "env_fns is empty": (ValueError, opening([])),
    "factories": (ValueError, opening([3])),
    "env_fns must be a list of functions": (TypeError, opening(Tally)),
    "the same environment": (ValueError, opening([lambda: ENV] * 4)),
    "start_method='no' is unknown": (ValueError, opening([Tally], "process", start_method="no")),
    "start_method='spawn' .* backend='serial' has none: leave it out": (
        ValueError, opening([Tally], start_method="spawn"),
    ),
    "backend": (ValueError, opening([Tally], "gpu")),
    "workers": (ValueError, opening([Tally], workers=0)),
    "[Nn]ested": (NotImplementedError, opening([Nested])),
    "fixed shape": (ValueError, opening([partial(RandomEnv, spaces.Text(3), BOX)])),
    "cannot be found": (ValueError, lambda: agym.sb3.make_vec_env("Nothing-v0")),
    "n_envs=0": (ValueError, lambda: agym.sb3.make_vec_env("CartPole-v1", 0)),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_arguments_that_are_refused(message: str) -> None:
    error, call = REFUSED[message]
    with pytest.raises(error, match=message):
        call()


def test_bad_arguments_of_calls() -> None:
    vec_env = agym.sb3.AgymVecEnv([Tally] * 3, backend="serial")
    vec_env.reset()
    with pytest.raises(ValueError, match="3 actions"):
        vec_env.step([0, 0])
    with pytest.raises(ValueError, match="2 options"):
        vec_env.set_options([{}, {}])
    vec_env.step([0, 0, 0])
    vec_env.close()
