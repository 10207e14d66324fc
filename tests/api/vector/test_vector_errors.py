"""Faults through the Gymnasium API: errors are the environment's own, and the others go on."""

from __future__ import annotations

import os
import re
import signal
import warnings
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from tests.support.backends import SERIAL_OR_FORK
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Probe, Tally


class Special(Exception):
    """An exception that a script defines."""


class RaisesSpecial(Tally):
    def step(self, action: Any) -> Any:
        if action == 9:
            raise Special("mine")
        return super().step(action)


@pytest.mark.parametrize("backend", ["thread", *SERIAL_OR_FORK])
def test_the_environments_own_error_is_raised(backend: Any) -> None:
    with closing(agym.AgymVectorEnv([RaisesSpecial] * 3, backend=backend)) as envs:
        envs.reset(seed=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(Special, match="mine") as raised:
                envs.step([0, 9, 0])
        assert isinstance(raised.value.__cause__, agym.EnvError)
        assert raised.value.__cause__.env_id == 1
        first, trace, last = (str(warning.message) for warning in caught)
        assert "Received the following error from Worker-1" in first
        assert 'raise Special("mine")' in trace
        assert "Raising the last exception" in last
        with pytest.raises(gymnasium.error.ResetNeeded):
            envs.step([0, 0, 0])
        envs.reset(options={"reset_mask": np.array([False, True, False])})
        observations = envs.step([0, 0, 0])[0]
        assert observations[:, 1].tolist() == [2, 1, 2]  # the others took their step


@pytest.mark.once
@pytest.mark.parametrize("half", ["reset", "step", "call"])
@pytest.mark.filterwarnings("ignore:.*ERROR")
def test_errors_in_the_second_half(half: str) -> None:
    arguments: dict[str, list[Any]] = {"step": [[0, 9]], "call": ["add", "no number"]}
    factories = [Tally, partial(Raises, half)]
    with closing(agym.AgymVectorEnv(factories, context="fork")) as envs:
        if half != "reset":
            envs.reset()
        getattr(envs, f"{half}_async")(*arguments.get(half, []))
        with pytest.raises((ValueError, TypeError)):
            getattr(envs, f"{half}_wait")()
        envs.call("gravity")  # nothing is pending


@pytest.mark.once
@pytest.mark.parametrize("kind", ["unpicklable", "many-arguments", "mute"])
@pytest.mark.filterwarnings("ignore:.*ERROR")
def test_an_error_that_cannot_be_pickled(kind: str) -> None:
    factories = [Tally, partial(Raises, "step", kind)]
    with closing(agym.AgymVectorEnv(factories, workers=2, context="fork")) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="environment 1 raised in step"):
            envs.step([0, 9])


@pytest.mark.filterwarnings("ignore:.*ERROR")
def test_a_constructor_that_raises() -> None:
    with pytest.raises(ValueError, match="boom"):
        agym.AgymVectorEnv([Tally, partial(Raises, "make")], workers=2, context="fork")


@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_killed_worker(on_fault: str) -> None:
    """It is an error, or with ``restart`` a fault in the infos of its environments."""
    options: Any = {"workers": 2, "on_fault": on_fault, "context": "fork"}
    with closing(agym.AgymVectorEnv([Probe] * 4, **options)) as envs:
        envs.reset()
        os.kill(envs.call("pid")[3], signal.SIGKILL)
        if on_fault == "raise":
            with pytest.raises(agym.WorkerDied, match="SIGKILL"):
                envs.step([0] * 4)
            assert envs.runner.restart() == [2, 3]
            envs.reset()
            envs.step([0] * 4)
            return
        seen = np.zeros(4, bool)
        for _ in range(3):
            _, rewards, _, truncated, infos = envs.step([0] * 4)
            if "fault" in infos:
                mask = infos["_fault"]
                seen |= mask
                assert truncated[mask].all()
                assert not rewards[mask].any()
                assert {infos["fault"][i].kind for i in np.flatnonzero(mask)} == {"died"}
        assert seen.tolist() == [False, False, True, True]


# ---------------------------------------------------------------- what cannot work


class Bounded(Tally):
    def __init__(self, high: float, dtype: Any = np.float64) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1, high, (3,), dtype)


@pytest.mark.full
def test_spaces_that_differ() -> None:
    factories = [partial(Bounded, high) for high in (1000, 2000, 3000)]
    for workers in (1, 2):
        with pytest.raises(RuntimeError, match=r"are not equivalent\..*observation_mode='diff"):
            agym.AgymVectorEnv(factories, workers=workers, context="fork")
    options: Any = {"observation_mode": "different", "context": "fork"}
    with closing(agym.AgymVectorEnv(factories, workers=2, **options)) as envs:
        assert envs.single_observation_space == spaces.Box(-1, 1000, (3,), np.float64)
        assert isinstance(envs.observation_space, spaces.Box)
        assert envs.observation_space.high[:, 0].tolist() == [1000, 2000, 3000]
        assert envs.reset()[0].shape == (3, 3)
    with pytest.raises(RuntimeError, match="observation_space"):
        agym.AgymVectorEnv([factories[0], partial(Bounded, 1000, np.float32)], **options)


def test_spaces_that_are_given() -> None:
    single = spaces.Box(-5, 5, (3,), np.float64)
    batch = spaces.Box(-5, 5, (2, 3), np.float64)
    envs = agym.AgymVectorEnv([Tally] * 2, observation_mode=(batch, single), backend="serial")
    assert envs.observation_space is batch
    assert envs.single_observation_space is single
    envs.close()
    with pytest.raises(RuntimeError, match="do not share a common shape"):
        agym.AgymVectorEnv([Tally] * 2, observation_mode=(batch, batch), backend="serial")


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "mode": ({"observation_mode": "odd"}, ValueError, "Invalid `observation_mode`"),
    "spaces": ({"observation_mode": (1, 2)}, TypeError, "two spaces"),
    "autoreset": ({"autoreset_mode": "odd"}, ValueError, "odd"),
    "concurrency": ({"max_concurrency": 2.0}, ValueError, "integer or None"),
    "none at once": ({"max_concurrency": 0}, ValueError, "positive or None"),
    "worker": ({"worker": lambda a, b: None}, ValueError, "8 arguments"),
    "worker of eight": (
        {"worker": lambda a, b, c, d, e, f, g, h: None}, ValueError, "in its own process",
    ),
    "backend": ({"backend": "odd"}, ValueError, "use one of"),
    "context": ({"context": "odd"}, ValueError, "context"),
    "context without processes": (
        {"context": "fork", "backend": "thread"}, ValueError,
        "context='fork' is for worker processes, and backend='thread' has none: leave it out",
    ),
    "option": ({"worker_count": 2}, TypeError, "`worker_count` isn't an AgymVectorEnv option"),
    "another name": ({"autoreset": "same_step"}, TypeError, "use `autoreset_mode`"),
    "another form": ({"output": "list"}, TypeError, "observations are arrays"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name: str) -> None:
    arguments, error, words = BAD[name]
    with pytest.raises(error, match=re.escape(words)):
        agym.AgymVectorEnv([Tally] * 2, **arguments)


def test_what_is_no_list_of_functions() -> None:
    for wrong in ("CartPole-v1", Tally):
        with pytest.raises(TypeError, match=r"env_fns must be a list .* agym\.make_vec"):
            agym.AgymVectorEnv(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="env_fns is empty"):
        agym.AgymVectorEnv([])


def test_max_concurrency_is_the_number_of_workers() -> None:
    options: Any = {"max_concurrency": 2, "workers": 3, "context": "fork"}
    with closing(agym.AgymVectorEnv([Probe] * 4, **options)) as envs:
        assert len(set(envs.call("pid"))) == 2
