"""Making and closing."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

import pytest

from agym.errors import AgymErrorGroup, BusyError, ClosedError, EnvError, WorkerDied
from agym.testing.laws.law import law
from agym.testing.scripted import DEATHS, Script
from agym.testing.worlds import World


@law("single")
def closing_closes_each_environment(world: World) -> None:
    """Each is closed once, also after an error or with steps in flight; closing is idempotent."""
    with world.open(3) as envs:
        envs.reset()
        envs.send([0, 0, 0])
        envs.close()
        envs.close()
        assert envs.script.closed() == [0, 1, 2]


@law()
def calls_after_closing_are_refused(world: World) -> None:
    """Each call raises the same error, which says that the environments are closed."""
    with world.open(2) as envs:
        envs.reset()
        envs.close()
        for call in (envs.reset, envs.render, lambda: envs.step([0, 0])):
            with pytest.raises(ClosedError):
                call()


@law("single")
def an_environment_that_raises_in_close_is_reported(world: World) -> None:
    """The other environments are closed."""
    with world.open(3) as envs:
        envs.script.set(1, "close", "raise")
        with pytest.raises(EnvError) as caught:
            envs.close()
        assert (caught.value.env_id, caught.value.operation) == (1, "close")
        assert envs.script.closed() == [0, 2]


@law("single")
def a_constructor_that_raises_is_reported(world: World) -> None:
    """The error names the environments; no worker stays alive."""
    with tempfile.TemporaryDirectory() as folder:
        script = Script(folder)
        for i in (1, 2):
            script.set(i, "make", "raise")
        factories = script.factories(4, coroutines=world.kind == "coroutine")
        with pytest.raises((EnvError, AgymErrorGroup)) as caught, world.open_envs(factories):
            pass
        assert getattr(caught.value, "env_ids", ()) in ((1,), (1, 2))


@law("processes")
def a_worker_that_dies_in_a_constructor_is_reported(world: World) -> None:
    """The error names the worker's environments and how the worker ended."""
    for act in ("kill", "exit"):
        with tempfile.TemporaryDirectory() as folder:
            script = Script(folder)
            script.set(2, "make", act)
            factories = script.factories(4, coroutines=world.kind == "coroutine")
            with (
                pytest.raises(WorkerDied) as caught,
                world.with_options(workers=2).open_envs(factories),
            ):
                pass
        assert (caught.value.env_ids, caught.value.exitcode) == ((2, 3), DEATHS[act])
        assert set(caught.value.operations.values()) == {"make"}


@law("single")
def restart_replaces_environments_that_work(world: World) -> None:
    """The workers stay; only these environments are made again and need a reset."""
    with world.with_options(workers=2).open(4, length=9) as envs:
        envs.reset()
        pids = envs.call("pid")
        envs.step([0] * 4)
        assert envs.restart([1, 2]) == [1, 2]
        assert envs.call("pid") == pids
        envs.reset(env_ids=[1, 2])
        assert envs.step([0] * 4).observations[:, 1:3].tolist() == [[1, 2], [1, 1], [1, 1], [1, 2]]


@law("async", "concurrent")
def restart_refuses_environments_with_a_step_in_flight(world: World) -> None:
    """After the step, they can be restarted."""
    with world.with_options(workers=2).open(4) as envs:
        envs.reset()
        envs.script.set(1, "step", "wait")

        async def run(player: Any) -> None:
            step = player.envs.step([0, 0], env_ids=[0, 1])
            with pytest.raises(BusyError, match="environment 1 is busy with step"):
                player.envs.restart([1, 2])
            await asyncio.to_thread(player.script.open, 1)
            await step
            assert await player.envs.restart([1, 2]) == [1, 2]

        envs.run(run(envs))
