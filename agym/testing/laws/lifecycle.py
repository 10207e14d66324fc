"""Making and closing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from agym import FaultPolicy
from agym.errors import (
    AgymErrorGroup,
    BusyError,
    ClosedError,
    CrashLoopError,
    EnvError,
    WorkerDied,
)
from agym.testing.law import calls_of, law, rows
from agym.testing.scripted import DEATHS, Script
from agym.testing.worlds import World

# Exceptions that travel in different ways.
ACTS = ("raise", "raise unpicklable", "raise mute")


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
        calls = [envs.reset, envs.render, lambda: envs.step([0, 0])]
        if "single" in world.has:
            envs.send([0, 0])
            calls = calls_of(envs)
            calls += [partial(call, env_ids=[]) for call in (envs.reset, envs.render, envs.restart)]
        envs.close()
        for call in calls:
            with pytest.raises(ClosedError):
                call()


@law("single")
def an_environment_that_raises_in_close_is_reported(world: World) -> None:
    """The other environments are closed."""
    for act in ACTS:
        with world.open(3) as envs:
            envs.script.set(1, "close", act)
            with pytest.raises(EnvError) as caught:
                envs.close()
            assert (caught.value.env_id, caught.value.operation) == (1, "close")
            assert envs.script.closed() == [0, 2]


@contextmanager
def made(world: World, env_ids: Sequence[int], act: str, *, always: bool = False) -> Iterator[Any]:
    """Open four environments, some of which perform an act in their constructors."""
    with tempfile.TemporaryDirectory() as folder:
        script = Script(folder)
        for i in env_ids:
            script.set(i, "make", act, always=always)
        factories = script.factories(4, coroutines=world.kind == "coroutine")
        with world.open_envs(factories) as envs:
            yield envs


@law("single")
def a_constructor_that_raises_is_reported(world: World) -> None:
    """The error names the environments; no worker stays alive."""
    for act in ACTS:
        with pytest.raises((EnvError, AgymErrorGroup)) as caught, made(world, [1, 2], act):
            pass
        errors = getattr(caught.value, "exceptions", [caught.value])
        assert [(error.env_id, error.operation) for error in errors] in (
            [(1, "make")],
            [(1, "make"), (2, "make")],
        )


@law("processes")
def a_worker_that_dies_in_a_constructor_is_reported(world: World) -> None:
    """The error names the worker's environments and how the worker ended."""
    for act in ("kill", "exit"):
        with pytest.raises(WorkerDied) as caught, made(world.with_options(workers=2), [2], act):
            pass
        assert (caught.value.env_ids, caught.value.exitcode) == ((2, 3), DEATHS[act])
        assert set(caught.value.operations.values()) == {"make"}


@law("processes")
def a_worker_that_dies_in_a_constructor_is_replaced(world: World) -> None:
    """With ``on_fault``, it is started again, up to ``max_restarts`` times."""
    policy = FaultPolicy("restart", max_restarts=2)
    restarting = world.with_options(workers=2, on_fault=policy)
    with made(restarting, [2], "exit") as envs:
        envs.reset()
        assert envs.step([0] * 4).observations[:, 2].tolist() == [1] * 4
        assert [worker.restarts for worker in envs.stats().workers] == [0, 1]
    with pytest.raises(CrashLoopError) as caught, made(restarting, [2], "exit", always=True):
        pass
    assert [fault.operation for fault in caught.value.faults] == ["make"] * 3


@law("single")
def restart_replaces_environments_that_work(world: World) -> None:
    """The workers stay; only these environments are made again and need a reset."""
    with world.with_options(workers=2).open(4, length=9) as envs:
        envs.set_attr("value", 5.0)
        assert envs.restart([0]) == [0]  # it was never reset
        assert envs.get_attr("value") == [1.0, 5.0, 5.0, 5.0]
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


@law("single")
def one_environment_can_be_closed(world: World) -> None:
    """It finishes what was sent before; later uses of it raise, and the others go on."""
    with world.open(3, length=9) as envs:
        envs.reset()
        envs.send([1, 2, 3])
        assert envs[1].close() is envs[1].close() is None
        assert sorted(rows(envs.recv(min_envs=3))) == [[i, 1, 1 + i] for i in range(3)]
        for use in (
            envs[1].reset,
            envs[1].render,
            partial(envs[1].step, 0),
            envs.reset,
            envs.render,
            partial(envs.step, [0, 0, 0]),
            partial(envs.send, [0], [1]),
        ):
            with pytest.raises(ClosedError, match="environment 1"):
                use()
        assert envs.step([4, 5], env_ids=[0, 2]).observations[:, 2].tolist() == [2, 2]
        assert envs.reset(env_ids=[0]).observations[0, 1] == 2
        envs.send([6], [2])
        assert rows(envs.recv()) == [[2, 3, 6]]
        assert envs.script.closed() == [1]


@law("single")
def a_handle_that_raises_in_close_is_reported_once(world: World) -> None:
    """Closing all environments afterwards does not raise again."""
    with world.open(3) as envs:
        envs.script.set(1, "close", "raise")
        with pytest.raises(EnvError, match="environment 1") as caught:
            envs[1].close()
        assert (caught.value.env_id, caught.value.operation) == (1, "close")
