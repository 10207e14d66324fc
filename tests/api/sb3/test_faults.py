"""What goes wrong in an environment, as SB3's users meet it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

import agym
from agym.testing import Script
from tests.support.backends import OF_ENVS
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline
from tests.support.training import each_place
from tests.support.worlds import ctrl_c

FORKED = OF_ENVS["process"]


def limited(act: str) -> dict[str, Any]:
    return {"timeout": deadline(0.3)} if act == "wait" else {}


@pytest.mark.parametrize(
    ("act", "error"),
    [("raise", agym.EnvError), ("exit", agym.WorkerDied), ("wait", agym.StepTimeout)],
)
def test_all_go_on_after_a_fault(act: str, error: type[Exception], script: Script) -> None:
    vec_env = agym.sb3.AgymVecEnv(script.factories(4, length=9), **FORKED, **limited(act))
    vec_env.reset()
    vec_env.step([0] * 4)
    script.set(3, "step", act)
    with pytest.raises(error):
        vec_env.step([0] * 4)
    if act == "exit":
        with pytest.raises(agym.WorkerDied):
            vec_env.reset()
        assert vec_env.runner.restart() == [2, 3]
    with pytest.raises(agym.ResetNeededError):
        vec_env.step([0] * 4)
    vec_env.reset()
    observations, *_ = vec_env.step([1, 2, 3, 4])
    assert observations[:, 2:].tolist() == [[1, 1], [1, 2], [1, 3], [1, 4]]
    vec_env.close()


@each_place
def test_methods_and_constructors_that_raise(options: dict[str, Any], script: Script) -> None:
    script.set(0, "make", "raise")
    with pytest.raises(agym.EnvError, match="raised in make"):
        agym.sb3.AgymVecEnv(script.factories(1), **options)
    vec_env = agym.sb3.AgymVecEnv(script.factories(1), **options)
    script.set(0, "call", "raise")
    with pytest.raises(agym.EnvError, match="boom"):
        vec_env.env_method("add", 1)
    assert vec_env.env_method("add", 1) == [2.0]
    vec_env.close()


@pytest.mark.parametrize(
    ("options", "act", "kind"),
    [
        *((options, "raise", "raised") for options in OF_ENVS.values()),
        *((FORKED, act, "died") for act in ("exit", "kill")),
        (FORKED, "wait", "timeout"),
    ],
)
def test_an_episode_that_a_fault_ended_is_truncated(
    options: dict[str, Any], act: str, kind: str, script: Script
) -> None:
    options = {**options, **limited(act), "on_fault": "restart"}
    vec_env = agym.sb3.AgymVecEnv(script.factories(4, length=9), **options)
    vec_env.reset()
    before, *_ = vec_env.step([0] * 4)
    script.set(3, "step", act)
    observations, rewards, dones, infos = vec_env.step([4] * 4)
    ended = [3] if act == "raise" else [2, 3]
    assert np.flatnonzero(dones).tolist() == ended
    for i in range(4):
        assert observations[i, 1:].tolist() == [1, 0, -1] if i in ended else [1, 2, 4]
        assert infos[i]["TimeLimit.truncated"] is (i in ended)
        assert ("fault" in infos[i]) is (i in ended)
    for i in ended:
        assert rewards[i] == 0
        assert infos[i]["fault"].kind == kind
        assert np.array_equal(infos[i]["terminal_observation"], before[i])  # the last known one
        assert vec_env.reset_infos[i].keys() == {"seed", "options", "draw"}
    *_, infos = vec_env.step([0] * 4)
    assert [info["now"] for info in infos] == [1 if i in ended else 3 for i in range(4)]
    vec_env.close()


@pytest.mark.parametrize("in_one_go", [False, True])
def test_after_ctrl_c_steps_go_on(in_one_go: bool, script: Script) -> None:
    vec_env = agym.sb3.AgymVecEnv(script.factories(1), backend="process")
    vec_env.reset()
    script.set(0, "step", "wait")
    with ctrl_c(script.gate(0)):
        if in_one_go:
            vec_env.step([1])
        vec_env.step_async([1])
        vec_env.step_wait()
    if not in_one_go:
        assert vec_env.step_wait()[0][0, 2] == 1
    assert vec_env.step([0])[0][0, 2] == 2
    vec_env.close()


def test_options_are_for_one_reset_also_if_it_fails(script: Script) -> None:
    """What takes the place of an environment gets the options of its own reset."""
    vec_env = agym.sb3.AgymVecEnv(script.factories(2), backend="serial", on_fault="restart")
    vec_env.set_options([{"length": 5}, {}])
    vec_env.reset()
    script.set(0, "step", "raise")
    dones = np.array([vec_env.step([0, 0])[2] for _ in range(4)])
    assert dones[:, 0].tolist() == [True, False, False, True]
    vec_env.close()
    vec_env = agym.sb3.AgymVecEnv(script.factories(1), backend="serial")
    vec_env.set_options({"length": 1})
    script.set(0, "reset", "raise")
    with pytest.raises(agym.EnvError):
        vec_env.reset()
    vec_env.reset()
    assert vec_env.reset_infos[0]["options"] is None
    vec_env.close()


class Strict(Tally):
    """Has an attribute with a rule."""

    @property
    def mass(self) -> float:
        return 1.0

    @mass.setter
    def mass(self, value: float) -> None:
        raise ValueError("mass must be positive")


def test_an_assignment_that_raises_names_its_environment() -> None:
    match = r"environment 1 .*mass must be positive"
    with (
        closing(agym.sb3.AgymVecEnv([Strict] * 2, backend="serial")) as vec_env,
        pytest.raises(agym.EnvError, match=match),
    ):
        vec_env.set_attr("mass", -1.0, indices=1)
