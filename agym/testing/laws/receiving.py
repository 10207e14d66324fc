"""``send``, ``recv`` and ``as_completed``: each step is received once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pytest

from agym.errors import (
    AgymErrorGroup,
    BusyError,
    ClosedError,
    CrashLoopError,
    EnvError,
    NothingSentError,
    ResetNeededError,
    WorkerDied,
)
from agym.testing.law import assert_same, await_for, law, rows, steps_of
from agym.testing.laws.groups import split
from agym.testing.worlds import World


@law("single")
def sent_steps_are_received_once(world: World) -> None:
    """In batches of any environments, each row equals that of a plain step, and never changes."""
    with world.open(5) as ours, world.open(5) as theirs:
        ours.reset(seed=3)
        theirs.reset(seed=3)
        seen = []
        for k in range(12):
            actions = [(k + i) % 10 for i in range(5)]
            expected = theirs.step(actions)
            ours.send(actions)
            batches = list(ours.as_completed(min_envs=2, max_envs=2))
            assert [len(batch.env_ids) for batch in batches] == [2, 2, 1]
            assert sorted(i for batch in batches for i in batch.env_ids) == [0, 1, 2, 3, 4]
            seen += [(batch, expected) for batch in batches]
        for batch, expected in seen:
            assert batch.env_ids.dtype == np.int64
            for row, i in enumerate(batch.env_ids):
                assert_same(
                    [column[row] for column in batch[1:]], [column[i] for column in expected]
                )


@law("single")
def a_receipt_without_a_sent_step_is_refused(world: World) -> None:
    """``recv`` raises, and ``as_completed`` returns at once."""
    with world.open(2) as envs:
        envs.reset()
        assert list(envs.as_completed()) == []
        with pytest.raises(NothingSentError):
            envs.recv()
        envs.send([0], [1])
        assert envs.recv().env_ids.tolist() == [1]
        with pytest.raises(NothingSentError):
            envs.recv()


@law("single")
def a_sent_step_excludes_others_until_it_is_received(world: World) -> None:
    """A second step raises even if the first has finished; resets, renders and calls run."""
    with world.open(3, length=9) as envs:
        envs.reset()
        for is_finished in (False, True):
            envs.send([4, 4], [2, 0])
            if is_finished:
                envs.render()
            for dispatch in (
                partial(envs.step, [0, 0, 0]),
                partial(envs.step, [0], env_ids=[2]),
                partial(envs[0].step, 0),
                partial(envs.send, [0, 0], [0, 1]),
                partial(envs.send, [0, 0, 0]),
            ):
                with pytest.raises(BusyError, match=r"environment [02].*recv"):
                    dispatch()
            envs.reset(env_ids=[0])
            envs.step([0], env_ids=[1])
            batch = envs.recv(min_envs=2)
            assert sorted(batch.env_ids.tolist()) == [0, 2]
            assert {action for *_, action in rows(batch)} == {4}
        assert envs.step([0, 0, 0]).observations[:, 2].tolist() == [1, 3, 3]
        one, other = split(envs, 2)
        one.send([0] * one.num_envs)
        with pytest.raises(BusyError):
            one.step([0] * one.num_envs)
        other.step([0] * other.num_envs)
        one.recv(min_envs=one.num_envs)


@law("concurrent")
def who_waits_keeps_nobody_from_being_received(world: World) -> None:
    """``recv`` returns finished environments; later calls return the others."""
    with world.with_options(workers=3).open(3) as envs:
        envs.reset()
        envs.script.set(1, "step", "wait")
        envs.send([5, 6, 7])
        received: list[list[float]] = []
        while len(received) < 2:
            received += rows(envs.recv())
        assert sorted(received) == [[0, 1, 5], [2, 1, 7]]
        assert len(envs.recv(timeout=0).env_ids) == 0
        envs.send([8], [0])
        assert rows(envs.recv()) == [[0, 2, 8]]
        envs.open_gate(1)
        assert rows(envs.recv()) == [[1, 1, 6]]


@law("single")
def failures_are_received_once(world: World) -> None:
    """Each failure is raised once, and then its environment needs a reset; others are received."""
    with world.open(5) as envs:
        envs.reset()
        for i in (4, 0, 2):
            envs.script.set(i, "step", "raise")
        envs.send([4, 5, 6, 7, 8])
        received, failed = receive_all(envs)
        assert sorted(received) == [[1, 1, 5], [3, 1, 7]]
        assert sorted(failed) == [0, 2, 4]
        with pytest.raises(ResetNeededError, match="environment 2"):
            envs.send([0, 0], [2, 3])
        envs.reset(env_ids=failed)
        envs.send([0] * 5)
        assert sorted(rows(envs.recv(min_envs=5))) == [[i, 1 + i % 2, 0] for i in range(5)]


@law("single")
def a_failed_step_excludes_others_until_its_error_is_received(world: World) -> None:
    """A reset in between does not make the error disappear."""
    with world.open(2, length=9) as envs:
        envs.reset()
        envs.script.set(1, "step", "raise")
        envs.send([9], [1])
        for _ in range(2):
            with pytest.raises(BusyError, match="environment 1"):
                envs.step([0, 0])
            envs.render([1])
            envs.reset(env_ids=[1])
        with pytest.raises(EnvError, match="environment 1"):
            envs.recv()
        assert [env.faults for env in envs.stats().envs] == [0, 1]
        envs.send([2], [0])
        assert envs.recv().env_ids.tolist() == [0]


@law("same_step", "single")
def a_failed_reset_leaves_no_info_behind(world: World) -> None:
    """The info of the step before a failed automatic reset is never returned later."""
    with world.open(1, length=1) as envs:
        envs.reset()
        envs.script.set(0, "reset", "raise")
        envs.send([0])
        with pytest.raises(EnvError) as caught:
            envs.recv()
        assert caught.value.operation == "reset"
        envs.reset()
        envs.script.set(0, "step", "no info")
        envs.send([0])
        assert envs.recv().infos[0]["final_info"] == {}


@law("processes")
def a_worker_death_is_received_once(world: World) -> None:
    """The error names all environments of the worker; those of other workers are received."""
    with world.with_options(workers=2).open(4) as envs:
        envs.reset()
        envs.script.set(0, "step", "exit")
        envs.send([9, 5, 6, 7])
        received, failed = receive_all(envs)
        assert failed == [0, 1]
        assert sorted(received) == [[2, 1, 6], [3, 1, 7]]
        with pytest.raises(WorkerDied):
            envs.send([0], [1])
        envs.send([4, 4], [2, 3])
        assert sorted(rows(envs.recv(min_envs=2))) == [[2, 2, 4], [3, 2, 4]]


@law("async", "processes")
def a_worker_death_is_raised_by_steps_and_receipts(world: World) -> None:
    """The error of a plain step does not replace the error of a sent step."""
    with world.with_options(workers=1).open(2) as envs:
        envs.reset()
        envs.script.set(0, "step", "kill")

        async def run(envs: Any) -> None:
            step = envs.step([1], env_ids=[0])
            envs.send([1], [1])
            with pytest.raises(WorkerDied):
                await step
            with pytest.raises(WorkerDied):
                await envs.recv()

        envs.run(run(envs.envs))


def receive_all(envs: Any) -> tuple[list[list[float]], list[int]]:
    """Receive until nothing is left; return the rows, and the environments that failed."""
    received: list[list[float]] = []
    failed: list[int] = []
    while True:
        try:
            received += rows(envs.recv())
        except NothingSentError:
            return received, failed
        except (EnvError, WorkerDied, CrashLoopError, AgymErrorGroup) as error:
            failed += error.env_ids


@law("single")
def ids_of_a_batch_are_ids_for_the_next_send(world: World) -> None:
    """The ids may be in any order; the actions are in the order of the ids."""
    with world.open(4, length=99) as envs:
        envs.reset()
        for ids in ([3, 1], [2, 0]):
            envs.send(ids, ids)
        for k in range(1, 6):
            batch = envs.recv(min_envs=4)
            assert batch.observations[:, 2:].tolist() == [[k, i] for i in batch.env_ids]
            envs.send(batch.env_ids, batch.env_ids)


@law("single")
def received_lists_hold_the_values_of_arrays(world: World) -> None:
    """With ``output="list"``, all columns are lists, and ids are ints."""
    with world.with_options(output="list").open(3) as envs:
        envs.reset()
        envs.send([5, 6, 7])
        batch = envs.recv(min_envs=3)
        assert all(isinstance(column, list) for column in batch)
        assert type(batch.env_ids[0]) is int
        for i, observation, reward in zip(*batch[:3], strict=True):
            assert observation[1:].tolist() == [1, 1, 5 + i]
            assert reward == observation[0] + 1 / 16


@law("concurrent")
def results_are_received_in_the_order_in_which_they_finished(world: World) -> None:
    """``recv`` returns the oldest results first, and never more than ``max_envs``."""
    with world.with_options(workers=3).open(3) as envs:
        envs.reset()
        for i in range(3):
            envs.script.set(i, "step", "wait")
        envs.send([1, 1, 1])
        for i in (2, 0, 1):
            envs.open_gate(i)
            envs.render([i])  # runs after the step
        for i in (2, 0, 1):
            assert rows(envs.recv(max_envs=1)) == [[i, 1, 1]]


@law("single")
def each_environment_has_its_turn(world: World) -> None:
    """Received environments that are sent again at once do not displace others."""
    with world.open(4, length=10**6) as envs:
        envs.reset()
        envs.send([0] * 4)
        taken = [0] * 4
        while min(taken) < 10:  # never ends if an environment is not received
            (i,) = envs.recv(max_envs=1).env_ids.tolist()
            taken[i] += 1
            envs.send([0], [i])
        envs.recv(min_envs=4)
        assert steps_of(envs) == [count + 1 for count in taken]


@law("single")
def resets_overwrite_no_sent_step(world: World) -> None:
    """A step's row is kept until it is received, however many resets follow the step."""
    with world.open(4, length=99) as envs:
        envs.reset()
        for k in range(3):
            envs.send([k] * 4)
            for _ in range(5):
                latest, _ = envs.reset(env_ids=[1, 3])
                assert latest[[1, 3], 2].tolist() == [0, 0]
            assert sorted(rows(envs.recv(min_envs=4))) == [[i, k + 1, k] for i in range(4)]
            step = envs.step([5, 6], env_ids=[0, 1])
            assert step.observations[:, 2:].tolist() == [[k + 2, 5], [1, 6]]
            envs.reset(env_ids=[1])
            latest, _ = envs.reset(env_ids=[2])
            assert latest[[0, 2], 2:].tolist() == [[k + 2, 5], [0, -1]]
            envs.reset()
            for _ in range(k + 1):
                envs.step([0] * 4)


@law("concurrent")
def a_receipt_that_times_out_returns_what_there_is(world: World) -> None:
    """That is an empty batch of the usual form, or fewer environments than ``min_envs``."""
    with world.with_options(workers=3).open(3) as envs:
        envs.reset()
        for i in range(3):
            envs.script.set(i, "step", "wait")
        envs.send([1, 1, 1])
        for timeout in (0, 0.001):
            batch = envs.recv(timeout=timeout)
            shapes = [column.shape for column in batch[:5]]
            assert (shapes, batch.infos) == ([(0,), (0, 4), (0,), (0,), (0,)], [])
        envs.open_gate(1)
        envs.render([1])  # runs after the step
        assert rows(envs.recv(min_envs=2, timeout=0.001)) == [[1, 1, 1]]
        for i in (0, 2):
            envs.open_gate(i)
        assert sorted(rows(envs.recv(min_envs=2, timeout=600))) == [[0, 1, 1], [2, 1, 1]]


@law("async", "single")
def receipts_of_several_tasks_share_the_results(world: World) -> None:
    """Each result goes to one task; an iteration ends when nothing is left."""
    with world.open(4, length=10**6) as envs:

        async def iterate(envs: Any, received: list[list[float]]) -> None:
            async for batch in envs.as_completed(max_envs=1):
                received += rows(batch)

        async def send_again(envs: Any, steps: list[int]) -> None:
            for _ in range(10):
                ((i, step, action),) = rows(await envs.recv(max_envs=1))
                assert (step, action) == (steps[int(i)], step % 10)
                steps[int(i)] += 1
                envs.send([steps[int(i)] % 10], [int(i)])

        async def run(envs: Any) -> None:
            await envs.reset()
            envs.send([2, 3, 4, 5])
            batches = await asyncio.gather(*(envs.recv(min_envs=2, max_envs=2) for _ in range(2)))
            received = [row for batch in batches for row in rows(batch)]
            assert sorted(received) == [[i, 1, 2 + i] for i in range(4)]
            envs.send([2, 3, 4, 5])
            received = []
            await asyncio.gather(*(iterate(envs, received) for _ in range(3)))
            assert sorted(received) == [[i, 2, 2 + i] for i in range(4)]
            steps = [3] * 4
            envs.send([3] * 4)
            await asyncio.gather(*(send_again(envs, steps) for _ in range(3)))
            assert sorted(rows(await envs.recv(min_envs=4))) == [
                [i, steps[i], steps[i] % 10] for i in range(4)
            ]

        envs.run(run(envs.envs))


@law("async", "single")
def an_iteration_includes_steps_that_are_sent_during_it(world: World) -> None:
    """``as_completed`` ends only when all of them have been received."""
    with world.open(4, length=99) as envs:

        async def run(envs: Any) -> int:
            await envs.reset()
            envs.send([0] * 4)
            taken = 0
            async for batch in envs.as_completed(min_envs=2):
                taken += len(batch.env_ids)
                if taken < 40:
                    envs.send([1] * len(batch.env_ids), batch.env_ids)
            return taken

        taken = envs.run(run(envs.envs))
        assert sum(steps_of(envs)) == taken >= 40


@law("async", "concurrent")
def closing_ends_all_that_waits(world: World) -> None:
    """Receipts and operations raise the error that says that the environments are closed."""
    with world.open(3) as envs:
        envs.reset()
        for i in range(3):
            envs.script.set(i, "step", "wait")

        async def run(player: Any) -> None:
            envs = player.envs
            envs.send([0, 0], [0, 1])
            pending = [envs.step([0], env_ids=[2]), envs.reset(), envs.render()]
            pending.append(envs.get_attr("value"))
            await await_for(pending[0], 1)  # cancelled
            waiting: list[Any] = [asyncio.ensure_future(envs.recv()) for _ in range(2)]
            waiting.append(asyncio.ensure_future(anext(envs.as_completed())))
            await asyncio.sleep(0)
            closing = asyncio.gather(*(envs.aclose() for _ in range(3)))
            await asyncio.sleep(0)
            while not closing.done():
                player.script.open_all()
                await asyncio.sleep(0)
            for task in waiting + pending:
                with pytest.raises(ClosedError):
                    await task

        envs.run(run(envs))
