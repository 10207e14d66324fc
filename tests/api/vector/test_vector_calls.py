"""The Gymnasium API's calls in two halves: what may follow what, and what comes of a timeout."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError

import agym
from agym.testing import Script
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline, patience
from tests.support.worlds import ctrl_c

ACTIONS = np.array([1, 0, 1])


@pytest.fixture(params=["serial", "thread", "process"])
def envs(request: pytest.FixtureRequest) -> Iterator[agym.AgymVectorEnv]:
    made = agym.AgymVectorEnv([Tally] * 3, backend=request.param)
    yield made
    made.close()


BEGIN: dict[str, Any] = {
    "reset": lambda envs: envs.reset_async(seed=0),
    "step": lambda envs: envs.step_async(ACTIONS),
    "call": lambda envs: envs.call_async("gravity"),
}
CALLS: dict[str, Any] = {
    **BEGIN,
    "set_attr": lambda envs: envs.set_attr("gravity", 1.0),
    "whole reset": lambda envs: envs.reset(),
    "whole step": lambda envs: envs.step(ACTIONS),
    "render": lambda envs: envs.render(),
}


@pytest.mark.parametrize("begun", BEGIN)
def test_one_call_at_a_time(envs: agym.AgymVectorEnv, begun: str) -> None:
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert envs.unwrapped is envs
    envs.reset()
    BEGIN[begun](envs)
    for call in CALLS.values():
        with pytest.raises(AlreadyPendingCallError) as caught:
            call(envs)
        assert f"waiting for a pending call to `{begun}`" in str(caught.value)
    for other in BEGIN:
        if other != begun:
            with pytest.raises(NoAsyncCallError, match=f"`{other}_async`"):
                getattr(envs, f"{other}_wait")()
    getattr(envs, f"{begun}_wait")()
    with pytest.raises(NoAsyncCallError):
        getattr(envs, f"{begun}_wait")()
    envs.step(ACTIONS)


def test_after_close_everything_is_refused(envs: agym.AgymVectorEnv) -> None:
    envs.close()
    envs.close()
    waits = [lambda envs, half=half: getattr(envs, f"{half}_wait")() for half in BEGIN]
    for call in [*CALLS.values(), *waits]:
        with pytest.raises(ClosedEnvironmentError):
            call(envs)


@pytest.mark.filterwarnings("ignore:.*ERROR")
def test_attributes_and_calls(envs: agym.AgymVectorEnv) -> None:
    assert envs.get_attr("gravity") == (9.8, 9.8, 9.8)
    envs.set_attr("gravity", [1.0, 2.0, 3.0])
    assert envs.call("gravity") == (1.0, 2.0, 3.0)
    envs.set_attr("gravity", 4.0)
    assert envs.get_attr("gravity") == (4.0, 4.0, 4.0)
    with pytest.raises(ValueError, match="2 values for 3"):
        envs.set_attr("gravity", [1.0, 2.0])
    for name in ("reset", "step", "close"):
        with pytest.raises(ValueError, match=f"use {name}"):
            envs.call(name)
    with pytest.raises(AttributeError):
        envs.call("no_such_thing")
    envs.step(ACTIONS)


def test_bad_arguments_are_refused_before_anything_is_sent(envs: agym.AgymVectorEnv) -> None:
    envs.reset(seed=0)
    for actions in (np.zeros(2, int), [0, 1], "ab"):
        with pytest.raises(ValueError, match=r"action"):
            envs.step_async(actions)
        with pytest.raises(NoAsyncCallError):
            envs.step_wait()
    with pytest.raises(TypeError):
        envs.step(0)
    masks: list[tuple[Any, type[Exception]]] = [
        ([True, False, True], TypeError),
        (np.array([1, 0, 1]), TypeError),
        (np.array([True]), ValueError),
        (np.zeros(3, bool), ValueError),
    ]
    for mask, error in masks:
        with pytest.raises(error, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match="2 entries"):
        envs.reset(seed=[1, 2])
    assert envs.step(ACTIONS)[0][:, 1].tolist() == [1, 1, 1]


# ---------------------------------------------------------------- timeouts


@contextmanager
def held(script: Script, **options: Any) -> Iterator[agym.AgymVectorEnv]:
    """Environments in a step, in which they wait at their gates."""
    factories = script.factories(3, coroutines=options.get("backend") == "asyncio", length=99)
    envs = agym.AgymVectorEnv(factories, **options)
    try:
        envs.reset()
        for i in range(3):
            script.set(i, "step", "wait")
        envs.step_async(np.ones(3, int))
        yield envs
    finally:
        envs.close(terminate=True)


@pytest.mark.parametrize("backend", ["thread", "process", "asyncio"])
def test_after_a_timeout_the_next_results_are_right(script: Script, backend: str) -> None:
    with held(script, backend=backend) as envs:
        script.open(0)
        with pytest.raises(multiprocessing.TimeoutError, match=r"`step_wait` .* 0\.01 second"):
            envs.step_wait(timeout=0.01)
        with pytest.raises(NoAsyncCallError):
            envs.step_wait()  # given up, as in Gymnasium
        for i in (1, 2):
            script.open(i)
        envs.call_async("value")
        assert envs.call_wait(timeout=patience(3)) == (1.0,) * 3
        for count in (2, 3, 4):  # the first step was the late one
            envs.step_async([0, 0, 0])
            observations, rewards, *_ = envs.step_wait(timeout=patience(6))
            assert observations[:, 2].tolist() == [count] * 3
            assert rewards.tolist() == (observations[:, 0] + count / 16).tolist()


@pytest.mark.parametrize("begun", BEGIN)
@pytest.mark.parametrize("backend", ["serial", "auto"])
def test_a_timeout_is_refused_where_nothing_can_stop_waiting(backend: Any, begun: str) -> None:
    with closing(agym.AgymVectorEnv([Tally] * 3, backend=backend)) as envs:
        assert envs.backend == "serial"
        envs.reset(seed=0)
        BEGIN[begun](envs)
        wait = getattr(envs, f"{begun}_wait")
        for timeout in (0, 5.0):
            with pytest.raises(agym.UsageError, match=rf"{begun}_wait\(.*backend='thread'"):
                wait(timeout=timeout)
        assert len(wait(timeout=None)) in (2, 3, 5)  # what was begun is not lost
        envs.step(ACTIONS)


def test_closing_with_a_call_pending_warns(script: Script) -> None:
    with held(script, context="fork") as envs:
        with pytest.warns(UserWarning, match="waiting for a pending call to `step`"):
            envs.close(terminate=True)
        assert envs.closed
    waiting = agym.AgymVectorEnv([partial(Tally, 5)] * 2, backend="thread")
    waiting.reset()
    waiting.step_async([0, 0])
    with pytest.warns(UserWarning, match="pending call"):
        waiting.close()  # it waits for the step


@pytest.mark.full
def test_a_deadline_is_the_runners(script: Script) -> None:
    with held(script, workers=3, timeout=deadline(2.0), context="fork") as envs:
        for i in (0, 2):
            script.open(i)
        with pytest.raises(agym.StepTimeout) as caught:
            envs.step_wait()
        assert caught.value.env_ids == (1,)
        envs.reset()


@pytest.mark.once
@pytest.mark.parametrize("method", ["step", "call", "call_wait"])
def test_after_ctrl_c_the_environments_can_be_used(script: Script, method: str) -> None:
    envs = agym.AgymVectorEnv(script.factories(1), context="fork")
    calls: dict[str, Any] = {
        "step": lambda: envs.step([1]),
        "call": lambda: envs.call("add", 1),
        "call_wait": lambda: (envs.call_async("add", 1), envs.call_wait()),
    }
    with closing(envs):
        envs.reset()
        script.set(0, "step" if method == "step" else "call", "wait")
        with ctrl_c(script.gate(0)):
            calls[method]()
        if method == "call_wait":  # begun by itself, so it may be waited for again
            envs.call_wait()
        else:
            assert envs.call("value") == (1.0,)
        envs.step([0])


def test_closed_whatever_close_raises() -> None:
    envs = agym.AgymVectorEnv([partial(Raises, "close")], backend="thread")
    with pytest.raises((agym.EnvError, ValueError)):
        envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.step([0])
