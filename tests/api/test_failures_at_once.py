"""Several failures of one call are one exception group, which ``except*`` takes apart."""

from __future__ import annotations

import copy
import pickle
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import agym
from agym.testing import Script
from tests.support.backends import FORK
from tests.support.envs.faulty_envs import Exits, Raises
from tests.support.envs.plain_envs import Tally
from tests.support.scripts import run

PROCESS = {"backend": FORK, "workers": 2}
SETUPS = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": "thread", "workers": 2}, id="thread"),
    pytest.param(PROCESS, id="process"),
]


def check_group(error: BaseException, ids: tuple[int, ...]) -> None:
    """The exception is the group of the failures of these environments."""
    assert type(error) is agym.AgymErrorGroup
    first, *others = error.exceptions
    assert [each.env_id for each in error.exceptions if isinstance(each, agym.EnvError)] == [*ids]
    assert str(error) == f"{first} (and {len(others)} more failure{'s' * (len(others) > 1)})"
    assert error.env_ids == ids
    shown = "".join(traceback.format_exception(error))
    assert all(str(each) in shown for each in error.exceptions)


@pytest.mark.parametrize("setup", SETUPS)
def test_several_environments_that_raise_are_one_group(setup: dict[str, Any]) -> None:
    with agym.make(partial(Raises, "step"), 4, **setup) as envs:
        envs.reset(seed=5)
        with pytest.raises(agym.AgymErrorGroup, match="boom") as caught:
            envs.step([9, 0, 9, 9])
        check_group(caught.value, (0, 2, 3))
        envs.reset(env_ids=caught.value.env_ids)
        envs.step([0, 0, 0, 0])


@pytest.mark.parametrize("setup", [*SETUPS, pytest.param({"backend": "asyncio"}, id="asyncio")])
async def test_async_calls_raise_a_group_as_well(setup: dict[str, Any], tmp_path: Path) -> None:
    script = Script(str(tmp_path))
    factories = script.factories(3, coroutines=setup["backend"] == "asyncio")
    async with agym.make_async(factories, **setup) as envs:
        await envs.reset()
        for i in (0, 2):
            script.set(i, "step", "raise")
        with pytest.raises(agym.AgymErrorGroup) as caught:
            await envs.step([0] * 3)
        check_group(caught.value, (0, 2))


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium's own words about each
@pytest.mark.parametrize("setup", SETUPS)
def test_gymnasium_has_what_the_last_environment_raised(setup: dict[str, Any]) -> None:
    factories = [partial(Raises, "step", kind) for kind in ("plain", "eof", "stop-iteration")]
    envs = agym.AgymVectorEnv(factories, **setup)
    try:
        assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        envs.reset()
        with pytest.raises(EOFError, match="boom") as caught:
            envs.step(np.array([9, 9, 0]))
        assert caught.value.__cause__ is not None
        check_group(caught.value.__cause__, (0, 1))
        envs.reset()
    finally:
        envs.close()


@pytest.mark.parametrize("setup", SETUPS)
def test_stable_baselines3_raises_the_group(setup: dict[str, Any]) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    envs = agym.sb3.AgymVecEnv([partial(Raises, "step")] * 3, **setup)
    try:
        envs.reset()
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step(np.array([9, 0, 9]))
        check_group(caught.value, (0, 2))
    finally:
        envs.close()


def test_several_workers_died() -> None:
    with agym.make(partial(Exits, 3), 4, **PROCESS) as envs:
        envs.reset()
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step([0, 9, 9, 0])
        error = caught.value
        assert [type(each) for each in error.exceptions] == [agym.WorkerDied] * 2
        assert sorted(error.env_ids) == [0, 1, 2, 3]
        envs.restart(error.env_ids)
        envs.reset()
        envs.step([0] * 4)


def mixed() -> ExceptionGroup[Any]:
    """A worker died in the same step in which environments of another raised."""
    factories = [partial(Raises, "step"), partial(Raises, "step"), partial(Exits, 3), Tally]
    with agym.make(factories, **PROCESS) as envs:
        envs.reset()
        with pytest.raises(agym.AgymError) as caught:
            envs.step([9, 9, 9, 0])
        error = caught.value
        assert isinstance(error, ExceptionGroup)
        return error


def test_failures_of_several_kinds_are_taken_apart_by_except_star() -> None:
    error = mixed()
    assert sorted(error.env_ids) == [0, 1, 2, 3]  # type: ignore[attr-defined]
    caught: dict[str, Any] = {}
    try:
        raise error
    except* agym.EnvError as group:
        caught["raised"] = group
    except* agym.WorkerDied as group:
        caught["died"] = group
    check_group(caught["raised"], (0, 1))
    (died,) = caught["died"].exceptions
    assert died.env_ids == caught["died"].env_ids == (2, 3)
    assert str(caught["died"]) == str(died)


def test_a_part_of_a_group_is_a_group() -> None:
    error = mixed()
    raised, others = error.split(agym.EnvError)
    check_group(raised, (0, 1))
    assert others.env_ids == (2, 3)
    assert raised.__traceback__ is error.__traceback__
    assert error.subgroup(agym.AgymError) is error
    assert error.subgroup(KeyError) is None
    foreign = error.derive([*error.exceptions, KeyError("foreign")])
    assert type(foreign) is ExceptionGroup


def test_a_group_of_tasks_holds_groups() -> None:
    outer = ExceptionGroup("unhandled errors in a TaskGroup", [mixed(), KeyError("other")])
    ours, others = outer.split(agym.AgymError)
    assert ours is not None
    assert others is not None
    assert [type(each) for each in others.exceptions] == [KeyError]
    died = outer.subgroup(agym.WorkerDied)
    assert died is not None
    assert [type(each) for each in died.exceptions[0].exceptions] == [agym.WorkerDied]


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_they_survive_a_pickle(again: Any) -> None:
    error = mixed()
    error.add_note("a note")
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.env_ids == error.env_ids  # type: ignore[attr-defined]
    assert other.__notes__ == ["a note"]
    assert [type(each) for each in other.exceptions] == [type(each) for each in error.exceptions]
    check_group(again(error.subgroup(agym.EnvError)), (0, 1))


def test_given_up_at_once() -> None:
    policy = agym.FaultPolicy("restart", max_restarts=0)
    with agym.make(partial(Raises, "step"), 3, on_fault=policy) as envs:
        envs.reset()
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step([9, 0, 9])
        assert [type(each) for each in caught.value.exceptions] == [agym.CrashLoopError] * 2
        assert caught.value.env_ids == (0, 2)


@pytest.mark.parametrize("setup", SETUPS)
def test_closing_and_calls(setup: dict[str, Any]) -> None:
    envs = agym.make(partial(Raises, "close"), 2, **setup)
    with pytest.raises(agym.AgymErrorGroup, match="close") as caught:
        envs.close()
    check_group(caught.value, (0, 1))
    with agym.make(Tally, 2, **setup) as envs:
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.add("text")
        check_group(caught.value, (0, 1))


@pytest.mark.full
def test_an_uncaught_one_tells_all(tmp_path: Path) -> None:
    code = """
        import gymnasium
        import agym

        class Falls(gymnasium.Env):
            observation_space = gymnasium.spaces.Discrete(2)
            action_space = gymnasium.spaces.Discrete(2)

            def reset(self, *, seed=None, options=None):
                return 0, {}

            def step(self, action):
                raise RuntimeError("fell")

        with agym.make(Falls, 2, backend="process", workers=2) as envs:
            envs.reset()
            try:
                envs.step([0, 0])
            except agym.AgymError as error:
                print(error, flush=True)
                raise
    """
    code_, out, err = run(tmp_path, code)
    assert code_ == 1
    assert out.startswith("environment 0 raised in step: RuntimeError: fell")
    assert "1 more" in out
    assert "environment 1 raised in step: RuntimeError: fell" in err


@pytest.mark.full
def test_the_command_line_names_each(tmp_path: Path) -> None:
    code = """
        import sys

        import gymnasium

        class Falls(gymnasium.Env):
            metadata = {"render_modes": ["rgb_array"]}
            observation_space = gymnasium.spaces.Discrete(2)
            action_space = gymnasium.spaces.Discrete(2)
            render_mode = "rgb_array"

            def __init__(self, render_mode=None):
                pass

            def reset(self, *, seed=None, options=None):
                raise RuntimeError("fell")

        gymnasium.register("Falls-v0", Falls)
        from agym.cli.app import app
        app("record Falls-v0 -n 3 -o falls.gif".split())
    """
    code_, _, err = run(tmp_path, code)
    assert code_ == 1
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if "raised in reset" in line] == [
        f"environment {i} raised in reset: RuntimeError: fell (seed {i}, episode 1, step 0)"
        for i in range(3)
    ]
