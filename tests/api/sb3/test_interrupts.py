"""Ctrl-C in the middle of a step, and arguments that have another name here."""

from __future__ import annotations

from pathlib import Path

import pytest

import agym
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Tally

pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("in_one_go", [False, True])
def test_after_ctrl_c_steps_go_on(tmp_path: Path, in_one_go: bool) -> None:
    gates = Gates(tmp_path, 1)
    envs = agym.sb3.AgymVecEnv(gates.factories, backend="process")
    try:
        envs.reset()
        with gates.ctrl_c(0):
            if in_one_go:
                envs.step([1])
            envs.step_async([1])
            envs.step_wait()
        if not in_one_go:
            assert envs.step_wait()[0][0, 1] == 1
        observations, *_ = envs.step([0])
        assert observations[0, 1] == 2
    finally:
        envs.close()


@pytest.mark.parametrize("name", ["autoreset", "num_envs", "output", "vec_env_cls", "render_mode"])
def test_names_that_mean_nothing_here(name: str) -> None:
    with pytest.raises(TypeError, match=f"`{name}` isn't an AgymVecEnv option"):
        agym.sb3.make_vec_env("CartPole-v1", 2, **{name: "x"})
    with pytest.raises(TypeError, match=r"env_fns must be a list"):
        agym.sb3.AgymVecEnv(Tally)
    with pytest.raises(ValueError, match="n_envs=0"):
        agym.sb3.make_vec_env("CartPole-v1", 0)


def test_what_made_a_reset_raise_is_not_given_again() -> None:
    envs = agym.sb3.AgymVecEnv([Boom], backend="serial")
    try:
        envs.set_options({"boom": True})
        with pytest.raises(agym.EnvError):
            envs.reset()
        envs.reset()
    finally:
        envs.close()


class Boom(Tally):
    def reset(self, *, seed: int | None = None, options: object = None) -> object:
        if options:
            raise ValueError("boom")
        return super().reset(seed=seed)
