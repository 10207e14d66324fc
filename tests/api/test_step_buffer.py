"""Arrays of the caller's own that take a batch, and step buffers."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces

import agym
from agym.testing import Script
from tests.api.test_leases import IMAGE, OPTIONS, Large, all_are
from tests.support.backends import SERIAL_OR_FORK
from tests.support.drivers import Setup, each_api, each_mode, everywhere, played
from tests.support.envs.plain_envs import Echo, Tally
from tests.support.equality import same
from tests.support.insides import engine_of


@everywhere
@each_api
@each_mode
def test_a_buffer_takes_what_would_have_come(setup: Setup, api: str, mode: Any) -> None:
    options = {**OPTIONS, **setup.options, "autoreset": mode}
    with played(api, setup.adapt(partial(Large, 3)), 4, **options) as plain:
        wanted = [plain.reset(seed=0), *(plain.step([k] * 4) for k in (0, 1, 2, 3, 4))]
    with played(api, setup.adapt(partial(Large, 3)), 4, **options) as envs:
        buffer = envs.envs.step_buffer(6)
        for _ in range(2):  # and again
            results = [envs.reset(seed=0, out=buffer[0])]
            assert not buffer.rewards[0].any()
            assert not buffer.terminated[0].any()
            buffer.rewards[0] = buffer.terminated[0] = 1
            results += [envs.step([t - 1] * 4, out=buffer[t]) for t in range(1, 6)]
            for t, (got, want) in enumerate(zip(results, wanted, strict=True)):
                assert same(got, want)
                assert np.shares_memory(got.observations["image"], buffer.observations["image"][t])
                if t:
                    columns = buffer.observations["deep"][0], buffer.rewards, buffer.terminated
                    stored = [column[t] for column in (*columns, buffer.truncated)]
                    assert same(stored, [want.observations["deep"][0], *want[1:4]])
        assert buffer.observations["image"].shape == (6, 4, *IMAGE)
    assert all_are(buffer.observations["image"][0], 0)  # it outlives the environments


@everywhere
def test_hosts_write_into_a_buffer(setup: Setup) -> None:
    """They overwrite what the caller wrote there."""
    with agym.make(setup.adapt(Large), 4, **OPTIONS, **setup.options) as envs:
        buffer = envs.step_buffer(1)
        envs.reset()
        pending = envs._begin(engine_of(envs).step, [0] * 4, None, buffer[0])
        assert pending.plane == buffer[0].plane is not None
        envs._wait(pending)
        assert all_are(buffer.observations["image"][0], 1)
        for count in (2, 3, 4):
            buffer.terminated[:] = buffer.truncated[:] = True
            buffer.rewards[:] = -7
            envs.step([0] * 4, out=buffer[0])
            assert not buffer.terminated.any()
            assert not buffer.truncated.any()
            assert buffer.rewards.tolist() == [[count] * 4]


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_a_buffer_that_is_gone_is_given_back(backend: Any) -> None:
    with agym.make(Large, 4, backend=backend, **OPTIONS) as envs:
        table = engine_of(envs).life.table
        descriptors = []
        for _ in range(6):
            buffer = envs.step_buffer(4)
            envs.reset(out=buffer[0])
            image = envs.step([0] * 4, out=buffer[-1]).observations["image"]
            del buffer
            gc.collect()
            assert len(table.extensions) <= 3
            assert all_are(image, 1)
            descriptors.append(psutil.Process().num_fds())
        # A buffer has two, and a caller that sleeps for the first time opens two.
        assert descriptors[-1] <= descriptors[1] + 2
        # The latest rows are in one that is gone, and are still what a partial reset gives.
        image = envs.reset(env_ids=[0]).observations["image"]
        assert all_are(image[1:], 1)


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
@each_api
def test_own_arrays_get_the_observations(backend: Any, api: str) -> None:
    options = {**OPTIONS, "backend": backend}
    with played(api, Tally, 3, **options) as envs, played(api, Tally, 3, **options) as plain:
        storage = np.zeros((4, 3, *envs.single_observation_space.shape), np.float64)
        assert envs.reset(out=storage[0]).observations.base is storage
        wanted = [plain.reset()]
        for t in range(1, 4):
            result = envs.step([1, 2, 3], out=storage[t])
            wanted.append(plain.step([1, 2, 3]))
            assert np.shares_memory(result.observations, storage[t])
            assert same(result.rewards, wanted[t].rewards)
        some = np.zeros_like(storage[0, :2])
        envs.step([1, 1], env_ids=[0, 2], out=some)
        assert (some == plain.step([1, 1], env_ids=[0, 2]).observations).all()
        assert same(storage, np.array([result.observations for result in wanted]))


BAD: dict[str, tuple[Any, str]] = {
    "shape": (np.zeros((2, 3)), r"must have the shape \(3, 4\), not \(2, 3\)"),
    "list": ([[0.0]], "NumPy array, not list"),
    "integers": (np.zeros((3, 4), np.int8), "int8 cannot store float32"),
    "read-only": (np.broadcast_to(np.float32(0), (3, 4)), "read-only"),
}


@pytest.mark.parametrize(("out", "match"), BAD.values(), ids=BAD)
def test_arrays_that_cannot_store_a_batch_are_refused(out: Any, match: str) -> None:
    with agym.make("CartPole-v1", 3, **OPTIONS) as envs:
        envs.reset(seed=0)
        for call in (envs.reset, partial(envs.step, [0, 0, 0])):
            with pytest.raises(agym.UsageError, match=match):
                call(out=out)
        assert envs.step([0, 0, 0]).observations.shape == (3, 4)


def test_buffers_that_cannot_store_a_batch_are_refused() -> None:
    with (
        agym.make(Large, 4, **OPTIONS) as envs,
        agym.make(Large, 4, **OPTIONS) as alike,
        agym.make(Large, 3, **OPTIONS) as others,
    ):
        envs.reset()
        mine = envs.step_buffer(2)
        theirs = alike.step_buffer(2)
        assert mine.planes == theirs.planes
        for out, match in (
            (others.step_buffer(2)[0], "of other environments"),
            (theirs[0], "of other environments"),
            (mine, r"use one step of it, out=buffer\[t\]"),
            (np.zeros(4), r"pass arrays for out\['image'\], out\['deep'\]"),
        ):
            with pytest.raises(agym.UsageError, match=match):
                envs.step([0] * 4, out=out)
        with pytest.raises(agym.UsageError, match="omit env_ids"):
            envs.step([0], env_ids=[1], out=mine[0])
        with pytest.raises(agym.UsageError, match="one step at a time"):
            mine["first"]  # type: ignore[index]
        with pytest.raises(IndexError, match="step 2 of a step buffer of 2"):
            mine[2]
        with pytest.raises(agym.UsageError, match="positive"):
            envs.step_buffer(0)
    with pytest.raises(agym.ClosedError):
        envs.step_buffer(2)
    text = partial(Echo, spaces.Text(5), ["a"], spaces.Discrete(2))
    with (
        agym.make(text, 2, **OPTIONS) as envs,
        pytest.raises(agym.UsageError, match="no fixed size"),
    ):
        envs.step_buffer(2)


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_an_array_that_becomes_read_only_jams_nothing(backend: Any) -> None:
    with agym.make("CartPole-v1", 3, backend=backend, **OPTIONS) as envs:
        envs.reset(seed=0)
        storage = np.zeros((3, 4), np.float32)
        ticket = envs._begin(engine_of(envs).step, [0, 0, 0], None, storage)
        if not ticket.done:
            storage.flags.writeable = False
            envs._wait(ticket)
            with pytest.raises(ValueError, match="read-only"):
                ticket.result()
        envs.step([0, 0, 0])
        envs.reset()


async def test_a_step_of_a_buffer_takes_one_batch_at_a_time(script: Script) -> None:
    script.set(0, "reset", "wait")
    async with agym.make_async(script.factories(3), backend="process", workers=1) as envs:
        buffer = envs.step_buffer(2)
        reset = envs.reset(seed=0, out=buffer[0])
        with pytest.raises(agym.BusyError, match="still being written"):
            envs.step([0, 0, 0], out=buffer[0])
        await asyncio.to_thread(script.open, 0)
        await reset
        await envs.step([0, 0, 0], out=buffer[0])


@pytest.mark.parametrize("backend", SERIAL_OR_FORK)
def test_flags_of_views_are_the_callers(backend: Any) -> None:
    with agym.make(Large, 4, backend=backend, **{**OPTIONS, "copy": False}) as envs:
        envs.reset()
        for _ in range(5):
            result = envs.step([0] * 4)
            assert not result.terminated.any()
            result.terminated[:] = result.truncated[:] = True
