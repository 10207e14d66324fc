"""A step that was sent excludes other steps until it is received, whether or not it has ended.

The conformance kit says so of the async API on every backend; here are the sync API, the vector
backend, groups, and steps that fail.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import agym
from tests.support.backends import SERIAL_OR_FORK
from tests.support.drivers import Setup, each_api, everywhere, played

VECTOR = {"backend": "vector"}


@everywhere
@each_api
@pytest.mark.parametrize("ended", [False, True], ids=["at-once", "ended"])
def test_no_other_step_before_it_is_received(api: str, setup: Setup, ended: bool) -> None:
    with played(api, setup.of(3, length=99), **setup.options) as envs:
        envs.reset()
        envs.send([1, 2], [0, 2])
        if ended:
            assert envs.render() == ["1:1", "1:0", "1:1"]
        handle = envs.envs[2]
        for dispatch in (
            partial(envs.step, [0, 0, 0]),
            partial(envs.step, [0], env_ids=[2]),
            partial(handle.step, 0),
            partial(envs.send, [0], [2]),
            partial(envs.send, [0, 0, 0]),
        ):
            with pytest.raises(agym.BusyError, match=r"sent to environment [02] .* recv\(\)"):
                dispatch()
        # All else runs behind it, and its result is received all the same.
        assert envs.get_attr("now") == [1, 0, 1]
        assert envs.call("add", 1) == [10.8] * 3
        assert envs.reset(env_ids=[0]).observations[0].tolist() == [2, 0, -1]
        with pytest.raises(agym.BusyError, match="environment 0"):
            envs.step([0], env_ids=[0])
        batch = envs.recv(min_envs=2)
        assert dict(zip(batch.env_ids.tolist(), batch.observations.tolist(), strict=True)) == {
            0: [1, 1, 1],
            2: [1, 1, 2],
        }
        assert envs.step([5, 5, 5]).observations[:, 1].tolist() == [1, 1, 2]


@each_api
def test_native(api: str) -> None:
    with played(api, "CartPole-v1", 4, **VECTOR, workers=2) as envs:
        envs.reset(seed=0)
        for ended in (False, True):
            envs.send([1] * 4)
            if ended:
                envs.get_attr("metadata")
            for dispatch in (
                partial(envs.step, [0] * 4),
                partial(envs.step, [0, 0], env_ids=[0, 1]),
                partial(envs.send, [0, 0], [2, 3]),
            ):
                with pytest.raises(agym.BusyError, match="recv"):
                    dispatch()
            assert len(envs.recv(min_envs=4).env_ids) == 4
            envs.step([0] * 4)


@everywhere
@each_api
def test_one_that_failed_is_busy_until_its_error_is_received(api: str, setup: Setup) -> None:
    """Then it wants a reset, as after any step that failed."""
    factories = [setup.of(1, length=99)[0], partial(setup.raises, "step")]
    with played(api, factories, **setup.options) as envs:
        envs.reset()
        envs.send([9], [1])
        envs.render([0])
        for _ in range(2):
            with pytest.raises(agym.BusyError, match="environment 1"):
                envs.step([0, 0])
            envs.render([1])
            envs.reset(env_ids=[1])
        with pytest.raises(agym.EnvError, match="environment 1"):
            envs.recv()
        envs.send([2], [0])
        assert envs.recv().env_ids.tolist() == [0]
        with pytest.raises(agym.EnvError, match="environment 1"):
            envs.step([9], env_ids=[1])


@everywhere
def test_groups_exclude_their_own_steps_alone(setup: Setup) -> None:
    with played("sync", setup.of(4, length=99), **setup.options) as envs:
        envs.reset()
        one, other = envs.split(2)
        one.send([1, 1])
        with pytest.raises(agym.BusyError):
            one.step([1, 1])
        with pytest.raises(agym.BusyError):
            envs.step([1] * 4)
        other.step([1, 1])
        one.recv(min_envs=2)
        envs.step([1] * 4)


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_through_the_runner_of_a_vector_environment(backend: Any) -> None:
    envs = agym.make_vec("CartPole-v1", 2, backend=backend)
    try:
        envs.reset(seed=0)
        envs.runner.send([0, 0])
        for dispatch in (envs.step, envs.step_async):
            with pytest.raises(agym.BusyError, match="recv"):
                dispatch([0, 0])
        envs.runner.recv(min_envs=2)
        envs.step([0, 0])
    finally:
        envs.close()
