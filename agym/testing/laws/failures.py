"""A failure raises one error, which names the environment; other environments stay usable."""

from __future__ import annotations

import itertools
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from agym.errors import (
    AgymErrorGroup,
    EnvError,
    NothingSentError,
    ResetNeededError,
    StepTimeout,
    WorkerDied,
)
from agym.testing.law import law, steps_of
from agym.testing.scripted import DEATHS, EXCEPTIONS, INTERRUPTIONS
from agym.testing.worlds import World

# The arguments of operations on four environments.
ARGUMENTS: dict[str, list[Any]] = {
    "reset": [],
    "step": [[0] * 4],
    "render": [],
    "call": ["add", 1.0],
}


@law("single")
def an_environment_that_raises_spoils_no_other(world: World) -> None:
    """The error names the environment and the operation; after its reset, all can be used."""
    acts = [*EXCEPTIONS, *(INTERRUPTIONS if "processes" in world.has else ())]
    with world.open(4, length=100) as envs:
        for operation, act in itertools.product(ARGUMENTS, acts):
            envs.reset(seed=7)
            envs.script.set(1, operation, act)
            with pytest.raises(EnvError) as caught:
                getattr(envs, operation)(*ARGUMENTS[operation])
            error = caught.value
            assert (error.env_id, error.operation) == (1, operation)
            assert error.__cause__ is not None
            assert operation != "step" or error.action == 0
            if operation in ("reset", "step"):
                with pytest.raises(ResetNeededError, match="environment 1"):
                    envs.step([0] * 4)
                envs.reset(env_ids=[1])
            envs.step([0] * 4)
            steps = 2 if operation == "step" else 1
            assert steps_of(envs) == [steps, 1, steps, steps]


@law("single")
def an_error_tells_the_episode_and_the_step(world: World) -> None:
    """They are those of ``serial``, also in an automatic reset."""

    def fail(envs: Any) -> None:
        for _ in range(3):
            envs.step([0, 0])
        envs.reset(seed=8)

    def errors(world: World) -> list[dict[str, Any]]:
        found = []
        with world.open(2, length=2) as envs:
            for operation in ("step", "reset"):
                envs.reset(seed=3)
                envs.script.set(1, operation, "raise")
                with pytest.raises(EnvError) as caught:
                    fail(envs)
                found.append(caught.value)
        names = ("env_id", "operation", "seed", "episode", "step")
        return [{name: getattr(error, name) for name in names} for error in found]

    assert errors(world) == errors(world.serial)


@law("single")
def failures_of_one_call_are_one_group(world: World) -> None:
    """The errors of the group name their environments, in order."""
    with world.open(4) as envs:
        for operation in ("reset", "step", "render", "call", "close"):
            envs.reset()
            for i in (3, 0, 1):
                envs.script.set(i, operation, "raise")
            with pytest.raises(AgymErrorGroup) as caught:
                getattr(envs, operation)(*ARGUMENTS.get(operation, []))
            assert caught.value.env_ids == (0, 1, 3)
            if operation == "step":
                envs.reset(env_ids=caught.value.env_ids)
                assert envs.step([0] * 4).observations[:, 2].tolist() == [1, 1, 2, 1]


@law("single")
def an_unusable_result_is_the_failure_of_its_environment(world: World) -> None:
    """An observation of another shape raises, and the other environments' results are kept."""
    with world.open(3) as envs:
        envs.reset()
        envs.script.set(1, "step", "misfit")
        with pytest.raises(EnvError, match=r"environment 1.*shape"):
            envs.step([0] * 3)
        envs.reset(env_ids=[1])
        assert envs.step([0] * 3).observations[:, 2].tolist() == [2, 1, 2]


@law("processes")
def a_dead_worker_is_reported_with_its_environments(world: World) -> None:
    """Other workers go on; ``restart`` starts a new worker, whose environments need a reset."""
    with world.with_options(workers=2).open(4, length=10**6) as envs:
        refused: list[Callable[[], Any]] = [
            lambda: envs.step([0] * 4),
            lambda: envs.step([0], env_ids=[1]),
            lambda: envs.reset(env_ids=[0]),
            lambda: envs.render([1]),
            lambda: envs.send([0], [0]),
        ]
        for operation, act in zip(ARGUMENTS, DEATHS, strict=True):
            envs.reset()
            pid = envs.call("pid")[0]
            envs.script.set(1, operation, act)
            with pytest.raises(WorkerDied) as caught:
                getattr(envs, operation)(*ARGUMENTS[operation])
            error = caught.value
            assert (error.worker, error.pid, error.exitcode) == (0, pid, DEATHS[act])
            assert error.signal == (None if act == "exit" else signal.Signals(-DEATHS[act]).name)
            assert (error.env_ids, set(error.operations)) == ((0, 1), {0, 1})
            assert error.operations[1] == operation
            for part in (f"pid {pid}", error.signal or "exit code 3", "0 to 1"):
                assert part in str(error)
            now = envs.step([0, 0], env_ids=[2, 3]).observations[:, 2].tolist()
            for call in refused:
                with pytest.raises(WorkerDied, match="worker 0"):
                    call()
            assert (envs.restart([]), envs.restart(), envs.restart()) == ([], [0, 1], [])
            with pytest.raises(ResetNeededError, match=r"environment 0 was restarted.*\[0, 1\]"):
                envs.step([0] * 4)
            envs.reset(env_ids=[0, 1])
            after = envs.step([5, 6, 7, 8]).observations[:, 2:].tolist()
            assert after == [[1, 5], [1, 6], [now[0] + 1, 7], [now[1] + 1, 8]]


@law("processes")
def a_worker_that_dies_while_idle_is_reported(world: World) -> None:
    """A later call raises, and other workers go on; with ``restart``, each environment tells it."""
    with world.with_options(workers=2).open(4, length=10**6) as envs:
        envs.reset()
        pid = envs.stats().workers[1].pid
        os.kill(pid, signal.SIGKILL)

        def step_until_noticed() -> None:
            while True:
                envs.step([0, 0], env_ids=[2, 3])

        with pytest.raises(WorkerDied) as caught:
            step_until_noticed()
        error = caught.value
        assert (error.worker, error.pid, error.signal) == (1, pid, "SIGKILL")
        assert error.env_ids == (2, 3)
        envs.step([0, 0], env_ids=[0, 1])
        assert envs.restart([2]) == [2, 3]  # all environments of the worker
        envs.reset(env_ids=[2, 3])
        assert envs.step([0, 0], env_ids=[2, 3]).observations[:, 2].tolist() == [1, 1]
    with world.with_options(workers=2, on_fault="restart").open(4, length=10**6) as envs:
        envs.reset()
        os.kill(envs.stats().workers[1].pid, signal.SIGKILL)
        faults: list[Any] = []
        while len(faults) < 2:
            faults += [info["fault"] for info in envs.step([0] * 4).infos if "fault" in info]
        assert [(fault.env_id, fault.exitcode) for fault in faults] == [(2, -9), (3, -9)]
        assert not any("fault" in info for info in envs.step([0] * 4).infos)


@law("processes")
def deaths_of_all_workers_are_one_group(world: World) -> None:
    """The errors name the environments of each worker, and ``restart`` replaces all workers."""
    with world.with_options(workers=2).open(4) as envs:
        envs.reset()
        for i in (1, 2):
            envs.script.set(i, "step", "exit")
        with pytest.raises(AgymErrorGroup) as caught:
            envs.step([0] * 4)
        errors: Any = caught.value.exceptions
        assert sorted(error.env_ids for error in errors) == [(0, 1), (2, 3)]
        assert envs.restart() == [0, 1, 2, 3]
        envs.reset()
        assert envs.step([0] * 4).observations[:, 2].tolist() == [1] * 4


@law("processes")
def a_failed_restart_may_be_repeated(world: World) -> None:
    """Until a restart succeeds, the environments raise, and other workers go on."""
    with world.with_options(workers=2).open(4, length=9) as envs:
        envs.reset()
        envs.script.set(1, "step", "exit")
        with pytest.raises(WorkerDied):
            envs.step([0] * 4)
        for act in ("kill", "raise", "system exit"):
            envs.script.set(1, "make", act)
            with pytest.raises((WorkerDied, EnvError)) as caught:
                envs.restart()
            assert act != "raise" or "boom" in str(caught.value)
            with pytest.raises((WorkerDied, EnvError)):
                envs.step([0], env_ids=[0])
            envs.step([5, 6], env_ids=[2, 3])
        assert envs.restart() == [0, 1]
        envs.reset()
        assert envs.step([5, 6, 7, 8]).observations[:, 2].tolist() == [1] * 4


@law("deadlines")
def a_missed_deadline_names_its_environment(world: World) -> None:
    """The others' results are received; the late one can be used after a reset."""
    by_step = world.autoreset == "next_step"  # in other modes, the step is sent and received
    with world.with_options(workers=2, timeout=2.0).open(2, length=9) as envs:
        envs.reset()
        envs.script.set(1, "step", "wait")
        with warnings.catch_warnings():
            # A thread that cannot be stopped is abandoned, with a warning.
            warnings.simplefilter("ignore", RuntimeWarning)
            if by_step:
                with pytest.raises(StepTimeout) as caught:
                    envs.step([0, 0])
            else:
                envs.send([0, 0])
                assert envs.recv().env_ids.tolist() == [0]
                with pytest.raises(StepTimeout) as caught:
                    envs.recv()
                with pytest.raises(NothingSentError):
                    envs.recv()
        assert (caught.value.env_ids, caught.value.operation) == ((1,), "step")
        envs.script.open_all()
        envs.reset(env_ids=[1])
        assert envs.step([5, 6]).observations[:, 2:].tolist() == [[2, 5], [1, 6]]
