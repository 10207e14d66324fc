"""Batched policies: each asker gets the answer to its question, by the weights of its version."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from agym.testing import assert_same
from tests.rollouts.policies import double, each_kind
from tests.support.patience import patience


@each_kind
async def test_each_asker_gets_its_own_answer(kind: Any) -> None:
    async with agym.batched(kind(double), 8) as policy:
        answers = await asyncio.gather(*(policy(k) for k in range(100)))
    assert [int(answer) for answer in answers] == [2 * k for k in range(100)]
    assert max(policy.stats().batch_sizes) == 8


@each_kind
async def test_nothing_is_lost_or_crossed_by_cancellation(kind: Any) -> None:
    asked, cancelled = 0, 0
    rng = random.Random(0)

    async def asker(who: int, policy: agym.BatchedPolicy) -> None:
        nonlocal asked, cancelled
        for k in range(20):
            question = 1000 * who + k
            asked += 1
            asking = asyncio.ensure_future(policy(question))
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if rng.random() < 0.5:
                asking.cancel()
            try:
                assert await asking == 2 * question
            except asyncio.CancelledError:
                cancelled += 1

    async with agym.batched(kind(double), 16, max_wait=0.001, workers=2) as policy:
        await asyncio.wait_for(
            asyncio.gather(*(asker(who, policy) for who in range(50))), patience(30)
        )
        assert policy.stats().waiting == 0
    assert asked == 1000
    assert 100 < cancelled < 900


async def test_an_answer_stays_though_the_function_reuses_its_output() -> None:
    output = np.zeros((1, 3))

    def fill(observations: np.ndarray[Any, Any]) -> Any:
        output[:] = observations[:, None]
        return output

    async with agym.batched(fill, 1) as policy:
        first = await policy(1.0)
        await policy(2.0)
    assert_same(first, np.ones(3))


async def test_a_batch_goes_when_all_who_could_ask_are_waiting() -> None:
    sizes = []

    def count(observations: np.ndarray[Any, Any]) -> Any:
        sizes.append(len(observations))
        return observations

    async def asker(policy: agym.BatchedPolicy, rounds: int) -> None:
        for k in range(rounds):
            await policy(k)

    # It never waits for an hour: four ask, then one ends and three ask, and so on.
    async with agym.batched(count, max_wait=3600.0) as policy:
        await asyncio.wait_for(
            asyncio.gather(*(asker(policy, rounds) for rounds in (1, 2, 3, 4))), patience(10)
        )
        assert sizes == [4, 3, 2, 1]
        assert policy.stats().reasons == {"all_waiting": 4}


async def test_a_batch_goes_when_its_time_is_up() -> None:
    async with agym.batched(double, max_wait=0.01) as policy:
        answered = asyncio.Event()

        async def asks_once_and_stays() -> None:
            await policy(1)
            answered.set()
            await asyncio.Event().wait()

        stays = asyncio.create_task(asks_once_and_stays())
        await answered.wait()
        assert await asyncio.wait_for(asyncio.create_task(policy(2)), patience(10)) == 4
        assert policy.stats().reasons["time"] == 1
        stays.cancel()


async def test_a_full_batch_goes_at_once() -> None:
    async with agym.batched(double, 4, max_wait=3600.0) as policy:
        await asyncio.wait_for(asyncio.gather(*(policy(k) for k in range(8))), patience(10))
        assert policy.stats().reasons == {"full": 2}


def test_a_forked_child_has_threads_of_its_own() -> None:
    policy = agym.batched(double)

    async def ask() -> bool:
        return bool(await asyncio.wait_for(policy(1), patience()) == 2)

    async def ask_and_close() -> None:
        assert await ask()
        await policy.aclose()

    assert asyncio.run(ask())
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: asyncio.run(ask_and_close()))
    child.start()
    child.join()
    assert child.exitcode == 0
    child.close()
    asyncio.run(ask_and_close())


async def test_workers_run_calls_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def meet(observations: Any) -> Any:
        both.wait(patience(10))
        return observations

    async with agym.batched(meet, 1, workers=2) as policy:
        assert await asyncio.gather(policy(1), policy(2)) == [1, 2]


class Weighted:
    """Answers with the weights that it had when the call began, and when it ended."""

    def __init__(self) -> None:
        self.weights = 0
        self.inside = 0

    def __call__(self, observations: list[str]) -> list[tuple[int, int]]:
        self.inside += 1
        before = self.weights
        for _ in range(1000):
            pass
        self.inside -= 1
        return [(before, self.weights)] * len(observations)

    def load_state_dict(self, weights: int) -> None:
        assert self.inside == 0, "between two calls, not within one"
        if weights < 0:
            raise ValueError("no such weights")
        self.weights = weights


async def test_each_answer_carries_the_version_of_its_weights() -> None:
    async with agym.batched(Weighted(), 4, workers=2) as policy:
        over = False

        async def asker(seen: list[int]) -> None:
            while not over:
                value, version, *_ = await policy.ask("text")
                assert value == (version, version)
                seen.append(version)

        seen: list[list[int]] = [[] for _ in range(8)]
        askers = [asyncio.create_task(asker(versions)) for versions in seen]
        for version in range(1, 51):
            assert await policy.update(version) == version
        over = True
        await asyncio.gather(*askers)
        assert all(versions == sorted(versions) for versions in seen)
        assert policy.version == policy.stats().version == 50


class Memory(list[int]):
    """Keeps the weights that it is called with; it is false at first."""

    def __call__(self, weights: int) -> None:
        self.append(weights)


async def test_updates_that_fail_or_are_cancelled_change_nothing() -> None:
    async with agym.batched(Weighted()) as policy:
        assert await policy.update(1) == 1
        with pytest.raises(ValueError, match="no such weights"):
            await policy.update(-1)
        assert (await policy.ask("text")).version == 1
        updating = asyncio.ensure_future(policy.update(7))
        await asyncio.sleep(0)
        updating.cancel()
        assert await policy.update(2) in (2, 3)
        assert (await policy.ask("text")).value == (2, 2)
    update = Memory()
    async with agym.batched(Weighted(), update=update) as policy:
        assert await policy.update(1) == 1
    assert update == [1]


async def test_the_update_of_a_module_is_its_state_dict() -> None:
    torch = pytest.importorskip("torch", reason="a module of PyTorch: the extra `torch`")
    module = torch.nn.Linear(3, 2)
    other = torch.nn.Linear(3, 2)
    observation = torch.ones(3)
    async with agym.batched(torch.inference_mode()(module.forward), update=None) as plain:
        with pytest.raises(agym.UsageError, match="load_state_dict"):
            await plain.update(other.state_dict())
    async with agym.batched(module) as policy:
        answers = await asyncio.gather(*(policy(observation) for _ in range(5)))
        assert all(torch.allclose(answer, module(observation)) for answer in answers)
        await policy.update(other.state_dict())
        assert torch.allclose(await policy(observation), other(observation))


async def test_batches_that_split_once_merge_again() -> None:
    """Who is answered asks together with those who have asked meanwhile."""
    began, go = threading.Event(), threading.Event()

    def held(observations: Any) -> Any:
        began.set()
        go.wait(patience(20))
        return observations

    async with agym.batched(held, 8, max_wait=3600.0) as policy:

        async def asker() -> None:
            for k in range(20):
                assert await policy(k) == k

        async with asyncio.TaskGroup() as group:
            for _ in range(7):
                group.create_task(asker())
            await asyncio.to_thread(began.wait)
            group.create_task(asker())
            await asyncio.sleep(0)
            go.set()
        assert policy.stats().batch_sizes == {1: 1, 7: 1, 8: 19}


@each_kind
async def test_timelines_show_each_call(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with agym.trace([], path):
        async with agym.batched(kind(double), update=lambda weights: None) as policy:
            await asyncio.gather(*(policy(k) for k in range(3)))
            await policy.update(None)
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
    assert f"{policy.name} ×3" in names
    assert f"{policy.name}: update" in names
