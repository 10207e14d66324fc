"""Batched policies: errors, wrong outputs and arguments, and the end of a policy."""

from __future__ import annotations

import asyncio
import gc
import threading
import traceback
from typing import Any

import numpy as np
import pytest

import agym
from agym.testing.scripted import ManyArguments
from tests.rollouts.policies import PolicyBroke, double, each_kind, later
from tests.support.patience import patience


@each_kind
async def test_an_error_reaches_each_asker_with_its_own_traceback(kind: Any) -> None:
    def raise_for_odd(observations: Any) -> Any:
        if (observations % 2).any():
            raise PolicyBroke(7)
        return observations

    async def first_asker(policy: agym.BatchedPolicy) -> Any:
        return await policy(1)

    async def second_asker(policy: agym.BatchedPolicy) -> Any:
        return await policy(3)

    async with agym.batched(kind(raise_for_odd)) as policy:
        one, other = await asyncio.gather(
            first_asker(policy), second_asker(policy), return_exceptions=True
        )
        assert type(one) is type(other) is PolicyBroke
        assert one is not other
        assert one.code == other.code == 7
        texts = ["".join(traceback.format_exception(error)) for error in (one, other)]
        assert all("raise_for_odd" in text for text in texts)
        assert "first_asker" in texts[0]
        assert "second_asker" not in texts[0]
        assert "first_asker" not in texts[1]
        assert await policy(4) == 4  # the next call is as if nothing had happened
        stats = policy.stats()
        assert (stats.answered, stats.failed, stats.waiting) == (1, 2, 0)


class Worded(Exception):
    """Its constructor makes a message of its argument; and it is false."""

    def __init__(self, tool: str) -> None:
        super().__init__(f"tool {tool} failed")

    def __len__(self) -> int:
        return 0


@each_kind
@pytest.mark.parametrize(
    ("error", "text"), [(Worded("x"), "tool x failed"), (ManyArguments(1, "a"), "1 a")]
)
async def test_errors_say_what_they_said(kind: Any, error: Exception, text: str) -> None:
    def raises(observations: Any) -> Any:
        raise error

    async with agym.batched(kind(raises)) as policy:
        for raised in await asyncio.gather(policy(1), policy(2), return_exceptions=True):
            assert type(raised) is type(error)
            assert str(raised) == text


async def test_a_plain_function_that_returns_a_coroutine_is_told() -> None:
    async with agym.batched(lambda observations: later(double)(observations)) as policy:
        with pytest.raises(agym.UsageError, match="make it an `async def`"):
            await policy(1)


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError()])
async def test_errors_that_mean_something_to_asyncio_are_errors(error: BaseException) -> None:
    def raises(observations: Any) -> Any:
        raise error

    async with agym.batched(raises) as policy:
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await policy(1)


async def test_closing_tells_who_waits_also_where_the_function_hangs() -> None:
    hangs, go = threading.Event(), threading.Event()

    def hang(observations: Any) -> Any:
        hangs.set()
        go.wait(patience(60))
        return observations

    policy = agym.batched(hang, 1, update=lambda weights: None)
    asking = [asyncio.ensure_future(policy(k)) for k in range(3)]
    await asyncio.to_thread(hangs.wait)
    asking.append(asyncio.ensure_future(policy.update(1)))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(policy.aclose())
    results = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), patience(10))
    assert all(isinstance(result, agym.ClosedError) for result in results), results
    go.set()
    await closing
    await policy.aclose()
    with pytest.raises(agym.ClosedError, match="policy hang is closed"):
        await policy(1)


async def test_a_coroutine_function_may_close_its_own_policy() -> None:
    async def close(observations: Any) -> Any:
        await policy.aclose()
        return observations

    policy = agym.batched(close)
    with pytest.raises(agym.ClosedError):
        await policy(1)
    await policy.aclose()


async def test_a_function_that_asks_its_own_policy_is_told() -> None:
    """It would wait for itself."""

    async def asks(observations: Any) -> Any:
        return [await policy(each) for each in observations]

    async with agym.batched(asks) as policy:
        with pytest.raises(agym.UsageError, match="policy asks is called by its own function"):
            await asyncio.wait_for(policy(0.5), patience())


async def test_closing_cancels_a_coroutine_function() -> None:
    ended, hangs = [], asyncio.Event()

    async def hang(observations: Any) -> Any:
        hangs.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    policy = agym.batched(hang)
    asking = asyncio.ensure_future(policy(1))
    await hangs.wait()
    await policy.aclose()
    assert ended
    with pytest.raises(agym.ClosedError, match="policy hang was closed"):
        await asking


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ([1, 2, 3], "returned 3 answers to 1 observations"),
        (np.zeros(2), "returned 2 answers to 1 observations"),
        (None, "returned NoneType for 1 observations"),
        ("text", "returned str for 1 observations"),
        (np.float64(3.0), "returned float64"),
        ({"a": [1], "b": [1, 2]}, "returned 2 answers"),
        ({}, "returned dict"),
        ((), "returned tuple"),
        (b"text", "returned bytes"),
    ],
)
async def test_outputs_that_are_no_answers(returned: Any, says: str) -> None:
    def wrong(observations: Any) -> Any:
        return returned

    async with agym.batched(wrong) as policy:
        with pytest.raises(agym.UsageError, match=says) as error:
            await policy(1)
        assert "policy wrong" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"function": 3}, "function=3"),
        ({"max_batch": 0}, "max_batch=0"),
        ({"max_batch": 1.5}, "max_batch=1.5"),
        ({"max_wait": -1}, "max_wait=-1"),
        ({"max_wait": float("nan")}, "max_wait=nan"),
        ({"max_wait": "1"}, "max_wait='1'"),
        ({"workers": 0}, "workers=0"),
        ({"update": 3}, "update=3"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(agym.UsageError, match=says):
        agym.batched(**{"function": double, **arguments})


def test_one_policy_serves_one_loop_after_another_and_no_two_at_once() -> None:
    policy = agym.batched(double)
    assert asyncio.run(policy(1)) == 2  # type: ignore[arg-type]
    assert asyncio.run(policy(2)) == 4  # type: ignore[arg-type]

    async def from_another_thread() -> None:
        await policy(1)
        with pytest.raises(agym.UsageError, match="belongs to the event loop"):
            await asyncio.to_thread(lambda: asyncio.run(policy(1)))  # type: ignore[arg-type]
        await policy.aclose()

    asyncio.run(from_another_thread())


async def test_a_policy_that_is_forgotten_ends_its_threads() -> None:
    policy = agym.batched(double, name="forgotten")
    await policy(1)  # the asker lives on
    (thread,) = (each for each in threading.enumerate() if each.name == "agym-forgotten-0")
    del policy
    await asyncio.sleep(0.01)  # the loop forgets what it called only in its next turn
    gc.collect()
    await asyncio.to_thread(thread.join, patience(5))
    assert not thread.is_alive()
