"""An operation that misses its deadline raises, and its environment is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

import agym
from agym.backends import Asyncio, Process
from agym.core.backends.process.worker_loop import WorkerLoop
from agym.testing import AsyncScriptedEnv, World, assert_same
from agym.testing.law import play
from agym.testing.laws.failures import ARGUMENTS
from tests.support.patience import deadline, patience
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over, steps_of

pytestmark = pytest.mark.filterwarnings("ignore:worker .*abandoned:RuntimeWarning")

# What environment 1 does, and the environments that are lost with it.
WAYS = [
    (PROCESS, "wait", [0, 1]),
    (PROCESS, "spin in C", [0, 1]),
    (COROUTINES, "wait", [1]),
    (COROUTINES, "wait stubbornly", [1]),
    (COROUTINES, "spin", [0, 1]),
    (COROUTINES, "spin in C", [0, 1]),
    (THREAD, "wait", [0, 1]),
    (ASYNCIO, "wait", [1]),
    (ASYNCIO, "wait stubbornly", [1]),
]
each_way = pytest.mark.parametrize(
    ("world", "act", "lost"), WAYS, ids=[f"{world}-{act}" for world, act, _ in WAYS]
)


@pytest.fixture
def quick_recreation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for new environments for as long as for a step."""
    monkeypatch.setattr("agym.core.engine.calls.ticket.RECREATE_SECONDS", 0.3)
    monkeypatch.setattr("agym.core.engine.calls.ticket.RECREATE_DEADLINES", 1)


@pytest.mark.once
@pytest.mark.parametrize("operation", ARGUMENTS)
@each_way
def test_a_missed_deadline_is_raised(
    world: World, act: str, lost: list[int], operation: str
) -> None:
    """The environments that are lost need a reset, and the others go on."""
    with world.open(4, length=9, timeout=deadline(0.4)) as envs:
        envs.reset(seed=3)
        envs.script.set(1, operation, act)
        with pytest.raises(agym.StepTimeout, match=operation) as caught:
            getattr(envs, operation)(*ARGUMENTS[operation])
        assert caught.value.operation == operation
        assert {1} <= {*caught.value.env_ids} <= {*lost}
        with pytest.raises(agym.ResetNeededError, match="replaced after a missed deadline"):
            envs.step([0], env_ids=[1])
        envs.reset(env_ids=lost)
        envs.script.open_all()
        for k in range(1, 4):
            now = [k if i in lost or operation != "step" else k + 1 for i in range(4)]
            assert steps_of(envs.step([k] * 4)) == [[step, k] for step in now]


@pytest.mark.once
@pytest.mark.parametrize("operation", ["step", "reset"])
@each_way
def test_a_replay_after_a_hang_changes_no_other(
    world: World, act: str, lost: list[int], operation: str
) -> None:
    """Also if two environments hang in the same step."""
    options = {"timeout": deadline(0.6), "on_fault": "replay"}
    late = {1, 2} if act == "wait" else {1}
    with (
        replace(world, autoreset="next_step").open(4, length=7, **options) as ours,
        replace(SERIAL, autoreset="next_step").open(4, length=7) as theirs,
    ):
        for i in late:
            ours.script.set(i, operation, act, after=4 if operation == "step" else 1)
        found, expected = play(ours), play(theirs)
        ours.script.open_all()
    for one, other in zip(found, expected, strict=True):
        for i in {*range(4)} - late:  # but for the number of the episode
            assert_same(one.observations[i, [0, 2, 3]], other.observations[i, [0, 2, 3]])
    faults = [info["fault"] for result in found for info in result.infos if "fault" in info]
    assert {fault.env_id for fault in faults} == late
    assert {(fault.kind, fault.culprit) for fault in faults} == {("timeout", i) for i in late}


@pytest.mark.once
@pytest.mark.parametrize(
    ("world", "on_fault"),
    [
        (THREAD, "raise"),
        (replace(THREAD, api="async"), "restart"),
        (THREAD, "replay"),
        *((world, mode) for world in (ASYNCIO, COROUTINES) for mode in ("raise", "restart")),
    ],
    ids=str,
)
def test_a_step_that_returns_late_changes_nothing(world: World, on_fault: Any) -> None:
    """It writes no row and ends no operation; a thread closes its environments."""
    missed = pytest.raises(agym.StepTimeout) if on_fault == "raise" else nullcontext()
    warns: Any = nullcontext()
    if world.backend == "thread":
        match = "worker 0, a thread.*environment 1 and was abandon"
        warns = pytest.warns(RuntimeWarning, match=match)
    options = {"timeout": deadline(0.6), "on_fault": on_fault}
    with world.open(4, length=1000, **options) as envs:
        envs.reset(seed=3)
        threads = [thread for thread in threading.enumerate() if thread.name == "agym-0"]
        envs.script.set(1, "step", "wait stubbornly")
        with warns, missed:
            envs.step([1, 2, 3, 4])
        draws = envs.reset(seed=8).observations[:, 0].tolist()
        for k in range(60):
            if k == 20:
                envs.script.open(1)
            result = envs.step([k % 9] * 4)
            assert result.observations[:, 0].tolist() == draws
            assert steps_of(result) == [[k + 1, k % 9]] * 4
            assert not any("fault" in info for info in result.infos)
        if world.backend == "thread":
            for thread in threads:
                thread.join(patience())
                assert not thread.is_alive()
            assert {0, 1} <= {*envs.script.closed()}


@pytest.mark.once
@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
def test_a_reset_behind_a_step_that_hangs_is_run_by_the_replacement(world: World) -> None:
    async def step_and_reset(envs: Any) -> Any:
        step = envs.step([1, 2, 3, 4])
        reset = envs.reset(seed=7, env_ids=[0, 1])
        with pytest.raises(agym.StepTimeout) as caught:
            await step
        assert caught.value.operation == "step"
        await reset
        return await envs.step([5, 6, 7, 8])

    with replace(world, api="async").open(4, length=9, timeout=deadline(0.4)) as envs:
        envs.reset(seed=3)
        pids = envs.call("pid")
        envs.script.set(1, "step", "wait")
        result = envs.run(step_and_reset(envs.envs))
        assert steps_of(result) == [[1, 5], [1, 6], [2, 7], [2, 8]]
        assert envs.call("pid")[2:] == pids[2:]
        envs.script.open_all()


@pytest.mark.once
@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
@pytest.mark.parametrize("on_fault", ["restart", "replay"])
def test_a_step_behind_a_reset_that_hangs_is_not_late(world: World, on_fault: str) -> None:
    """The deadline of a step begins when the step is sent to its environment."""

    async def reset_and_step(envs: Any) -> Any:
        reset, step = envs.reset(seed=7), envs.step([5, 6, 7, 8])
        return await reset, await step

    # Longer than a loaded machine takes for the steps that are in time.
    options = {"timeout": deadline(1.2), "on_fault": on_fault}
    with replace(world, api="async").open(4, length=9, **options) as envs:
        envs.reset(seed=3)
        envs.script.set(1, "reset", "wait")
        reset, result = envs.run(reset_and_step(envs.envs))
        assert ["fault" in info for info in reset.infos][1:] == [True, False, False]
        assert not any("fault" in info for info in result.infos)
        assert steps_of(result) == [[1, 5], [1, 6], [1, 7], [1, 8]]
        assert sum(worker.restarts for worker in envs.stats().workers) <= 1
        envs.script.open_all()


one_at_a_time = pytest.mark.parametrize(
    "world",
    [
        replace(ASYNCIO, backend=Asyncio(max_concurrency=1)),
        replace(COROUTINES, backend=Process(start_method="fork", max_concurrency=1)),
    ],
    ids=str,
)


@pytest.mark.once
@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
def test_a_step_behind_a_first_reset_that_hangs_is_refused(world: World) -> None:
    """There is no observation that a row of it could have."""

    async def reset_and_step(envs: Any) -> None:
        reset, step = envs.reset(seed=7), envs.step([5, 6, 7, 8])
        with pytest.raises(agym.StepTimeout):
            await reset
        with pytest.raises(agym.AgymError, match="the environment was replaced: reset it first"):
            await step

    with replace(world, api="async").open(4, length=9, timeout=deadline(0.4)) as envs:
        envs.script.set(1, "reset", "wait")
        envs.run(reset_and_step(envs.envs))
        envs.reset(seed=7)
        assert steps_of(envs.step([5, 6, 7, 8])) == [[1, 5], [1, 6], [1, 7], [1, 8]]
        envs.script.open_all()


@pytest.mark.once
@pytest.mark.parametrize("slow", [0, 1])
def test_a_replaced_environment_is_idle(slow: int) -> None:
    """If its worker dies later, the error does not say that it was in the step in which it hung."""
    with COROUTINES.open(2, length=9, workers=1, timeout=deadline(0.4)) as envs:
        envs.reset(seed=3)
        envs.script.set(slow, "step", "wait")
        with pytest.raises(agym.StepTimeout):
            envs.step([1, 2])
        envs.reset()
        pid = envs.stats().workers[0].pid
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(agym.WorkerDied) as caught:
            envs.step([1], env_ids=[1 - slow])
        assert caught.value.operations[slow] == "idle after reset"


@pytest.mark.once
@one_at_a_time
def test_environments_that_hang_one_after_another_are_all_reported(world: World) -> None:
    """The row of the first waits for a place while the second hangs."""
    with world.open(3, workers=1, length=9, timeout=deadline(0.4), on_fault="restart") as envs:
        envs.reset(seed=3)
        envs.script.set(0, "step", "wait")
        envs.script.set(1, "step", "wait")
        result = envs.step([1, 2, 3])
        assert ["fault" in info for info in result.infos] == [True, True, False]
        assert result.truncated.tolist() == [True, True, False]
        assert steps_of(result)[2] == [1, 3]


@pytest.mark.once
@one_at_a_time
def test_a_task_that_ignores_its_cancellation_holds_no_place(world: World) -> None:
    with world.open(4, length=9, timeout=deadline(0.4), on_fault="restart") as envs:
        envs.reset(seed=3)
        envs.script.set(1, "step", "wait stubbornly")
        infos = envs.step([1, 2, 3, 4]).infos
        assert ["fault" in info for info in infos] == [False, True, False, False]
        envs.reset(env_ids=[1])
        assert steps_of(envs.step([5] * 4)) == [[2, 5], [1, 5], [2, 5], [2, 5]]
        envs.script.open_all()


@pytest.mark.once
@pytest.mark.usefixtures("quick_recreation")
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
@pytest.mark.parametrize(
    ("world", "operation"),
    [
        *((world, "close") for world in (PROCESS, COROUTINES, THREAD, ASYNCIO)),
        # Over asyncio, a constructor that hangs holds the loop that would have to notice.
        *((world, "make") for world in (PROCESS, COROUTINES, THREAD)),
    ],
)
def test_a_replacement_that_hangs_is_replaced(world: World, operation: str, on_fault: Any) -> None:
    """In its constructor, or in the ``close`` of its predecessor."""
    with world.open(4, length=9, timeout=deadline(0.6), on_fault=on_fault) as envs:
        envs.reset(seed=3)
        envs.script.set(1, operation, "wait")
        if on_fault == "raise":
            try:
                envs.restart([1])
            except (agym.StepTimeout, agym.WorkerDied):
                envs.restart()
        else:
            envs.script.set(1, "step", "raise")
            result = envs.step([1, 2, 3, 4])
            assert "fault" in result.infos[1]
            assert result.truncated[1]
        envs.reset()
        assert steps_of(envs.step([5] * 4)) == [[1, 5]] * 4
        envs.script.open_all()


@pytest.mark.once
@pytest.mark.usefixtures("quick_recreation")
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_worker_whose_constructors_hang_does_not_start(on_fault: Any) -> None:
    policy = agym.FaultPolicy(on_fault, max_restarts=2)
    with PROCESS.open(4, timeout=deadline(0.8), on_fault=policy) as envs:
        envs.reset(seed=0)
        envs.script.set(1, "make", "wait", always=True)
        envs.script.set(1, "step", "exit")
        with pytest.raises(agym.WorkerDied if on_fault == "raise" else agym.CrashLoopError):
            envs.step([1] * 4)
        with pytest.raises(agym.AgymError, match="did not start within"):
            envs.restart()
        envs.script.clear(1, "make")
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        envs.step([1] * 4)


def test_a_thread_that_hangs_again_and_again_is_given_up() -> None:
    policy = agym.FaultPolicy("restart", max_restarts=1)
    with THREAD.open(4, timeout=deadline(0.5), on_fault=policy) as envs:
        envs.script.set(1, "step", "wait", always=True)
        envs.reset(seed=3)
        assert "fault" in envs.step([1] * 4).infos[1]
        envs.reset()
        with pytest.raises(agym.CrashLoopError) as caught:
            envs.step([1] * 4)
        assert [fault.kind for fault in caught.value.faults] == ["timeout"] * 2
        envs.script.clear(1, "step")
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        assert steps_of(envs.step([2] * 4))[:2] == [[1, 2]] * 2
        envs.script.open_all()


class SpinsLater(AsyncScriptedEnv):
    """Holds the event loop in steps with action 9, after the steps of others have ended."""

    async def step(self, action: Any) -> Any:
        if action == 9:
            await asyncio.sleep(0.4)
            while True:
                pass
        return await super().step(action)


def test_an_environment_whose_step_has_ended_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completions are only held back until the caller asks who is late."""
    monkeypatch.setattr(WorkerLoop, "patience", 60.0)  # of workers that are forks
    options = {"workers": 1, "timeout": deadline(0.5)}
    with COROUTINES.open_envs(SpinsLater, 4, **options) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.StepTimeout) as caught:
            envs.step([1, 1, 9, 1])
        assert caught.value.env_ids == (2,)


def test_an_environment_that_was_given_up_is_not_used_again() -> None:
    with ASYNCIO.open(2, timeout=deadline(0.3)) as envs:
        envs.set_attr("value", 5.0)
        envs.script.set(0, "render", "wait stubbornly")
        with pytest.raises(agym.StepTimeout):
            envs.render()
        assert envs.render() == ["0:0", "0:0"]
        assert envs.get_attr("value") == [1.0, 5.0]
        envs.script.open_all()


@pytest.mark.full
def test_nothing_is_sent_to_a_worker_that_takes_long_to_die(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker was killed, and still exists when its caller asks again."""
    monkeypatch.setattr("agym.core.backends.process.process_port.EXIT_CODE_SECONDS", 0.0)
    with PROCESS.open(4, timeout=deadline(0.4)) as envs:
        envs.reset(seed=3)
        for _ in range(5):
            envs.script.set(1, "render", "wait")
            with pytest.raises(agym.StepTimeout, match="render"):
                envs.render()
            assert len(envs.render()) == 4
