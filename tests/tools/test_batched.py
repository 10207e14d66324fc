"""Batched policies: who asks gets the answer to what was asked, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import random
import threading
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.testing import assert_same
from agym.tools.rollouts.stacking import kind_of, split, stack
from tests.support.patience import patience


def double(observations: Any) -> Any:
    return observations * 2


async def double_later(observations: Any) -> Any:
    await asyncio.sleep(0)
    return observations * 2


def kinds_of_function() -> Any:
    return pytest.mark.parametrize("function", [double, double_later], ids=["plain", "coroutine"])


@kinds_of_function()
async def test_each_asker_gets_its_own_answer(function: Any) -> None:
    async with agym.batched(function, 8) as policy:
        answers = await asyncio.gather(*(policy(k) for k in range(100)))
    assert [int(answer) for answer in answers] == [2 * k for k in range(100)]
    assert max(policy.stats().batch_sizes) == 8


@kinds_of_function()
async def test_nothing_is_lost_or_crossed_by_cancellation(function: Any) -> None:
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

    async with agym.batched(function, 16, max_wait=0.001, workers=2) as policy:
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


async def test_workers_run_calls_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def meet(observations: Any) -> Any:
        both.wait(patience(10))
        return observations

    async with agym.batched(meet, 1, workers=2) as policy:
        assert await asyncio.gather(policy(1), policy(2)) == [1, 2]


class PolicyBroke(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@pytest.mark.parametrize("later", [False, True])
async def test_an_error_reaches_each_asker_with_its_own_traceback(later: bool) -> None:
    def raise_for_odd(observations: Any) -> Any:
        if (observations % 2).any():
            raise PolicyBroke(7)
        return observations

    async def raise_later(observations: Any) -> Any:
        return raise_for_odd(observations)

    async def first_asker(policy: agym.BatchedPolicy) -> Any:
        return await policy(1)

    async def second_asker(policy: agym.BatchedPolicy) -> Any:
        return await policy(3)

    async with agym.batched(raise_later if later else raise_for_odd) as policy:
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


class Uncopied(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} {other}")


@kinds_of_function()
@pytest.mark.parametrize(
    ("error", "text"), [(Worded("x"), "tool x failed"), (Uncopied(1, 2), "1 2")]
)
async def test_errors_say_what_they_said(function: Any, error: Exception, text: str) -> None:
    def raises(observations: Any) -> Any:
        raise error

    async def raises_later(observations: Any) -> Any:
        raise error

    async with agym.batched(raises if function is double else raises_later) as policy:
        for raised in await asyncio.gather(policy(1), policy(2), return_exceptions=True):
            assert type(raised) is type(error)
            assert str(raised) == text


async def test_a_plain_function_that_returns_a_coroutine_is_told() -> None:
    async with agym.batched(lambda observations: double_later(observations)) as policy:
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
        with pytest.raises(agym.UsageError, match="policy asks is asked by its own function"):
            await asyncio.wait_for(policy(0.5), patience())


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


async def test_masks_are_stacked_with_their_arrays() -> None:
    async with agym.batched(lambda arrays: arrays * 2, max_batch=2) as policy:
        masked = np.ma.masked_array([1, 2], mask=[True, False])
        plain = np.array([1, 2])
        a, b, c = await asyncio.gather(policy(masked), policy(masked), policy(plain))
    assert [a.mask.tolist(), b.mask.tolist()] == [[True, False]] * 2
    assert not isinstance(c, np.ma.MaskedArray)


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


async def test_an_update_that_fails_changes_no_version() -> None:
    async with agym.batched(Weighted()) as policy:
        assert await policy.update(1) == 1
        with pytest.raises(ValueError, match="no such weights"):
            await policy.update(-1)
        assert (await policy.ask("text")).version == 1


async def test_an_update_that_is_cancelled_before_its_turn_is_not_made() -> None:
    async with agym.batched(Weighted()) as policy:
        updating = asyncio.ensure_future(policy.update(1))
        await asyncio.sleep(0)
        updating.cancel()
        assert await policy.update(2) in (1, 2)
        assert (await policy.ask("text")).value == (2, 2)


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
        assert all(torch.equal(answer, module(observation)) for answer in answers)
        await policy.update(other.state_dict())
        assert torch.equal(await policy(observation), other(observation))


async def test_what_cannot_be_stacked_goes_by_itself() -> None:
    sizes = []

    def count(observations: Any) -> Any:
        sizes.append(len(observations["a"] if isinstance(observations, dict) else observations))
        return observations

    asked: list[Any] = [
        np.zeros(3), np.zeros(4), "text", np.str_("other"), {"a": 1.0, "b": 2}, {"b": 3, "a": 4.0},
        7, np.int64(8), np.array(9), np.ones(3, np.float32),
    ]  # fmt: skip
    async with agym.batched(count, max_wait=3600.0) as policy:
        answers = await asyncio.wait_for(
            asyncio.gather(*(policy(each) for each in asked)), patience(10)
        )
    assert sorted(sizes) == [1, 2, 2, 2, 3]
    for question, answer in zip(asked, answers, strict=True):
        assert np.all(question == answer) if not isinstance(question, dict) else question == answer


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


class Pair(NamedTuple):
    left: Any
    right: Any


leaves = st.one_of(
    st.integers(-9, 9).map(np.int64),
    st.text(max_size=3),
    st.integers(0, 3).map(lambda n: np.arange(n, dtype=np.float32)),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=5,
)


@given(tree=trees, n=st.integers(1, 5))
def test_what_is_stacked_and_split_is_what_it_was(tree: Any, n: int) -> None:
    rows = [*split(stack([tree] * n), n)]
    assert len(rows) == n
    for row in rows:
        assert kind_of(row) == kind_of(tree)
        assert_same(row, tree)


async def test_rollouts_of_a_batched_policy_play_each_environment_by_itself() -> None:
    def lean(observations: np.ndarray[Any, Any]) -> Any:
        return (observations[:, 2] > 0).astype(np.int64)

    async def two(policy: Any, groups: int) -> list[agym.Rollout]:
        async with agym.make_async("CartPole-v1", 5, backend="thread") as envs:
            found = []
            async for rollout in agym.rollout(envs, policy, 60, groups=groups, seed=3):
                found.append(rollout)
                if len(found) == 2:
                    break
            return found

    async with agym.batched(lean) as policy:
        ours = await two(policy, 2)
        assert max(policy.stats().batch_sizes) > 1
    for rollout, wanted in zip(ours, await two(lean, 1), strict=True):
        for name in agym.Rollout._fields:
            if name.startswith("episode"):  # these end in another order within a step
                assert sorted(getattr(rollout, name)) == sorted(getattr(wanted, name))
            else:
                assert_same(getattr(rollout, name), getattr(wanted, name))


class Mixed(gymnasium.Env[Any, Any]):
    """Observes and takes what has parts."""

    observation_space = spaces.Dict(
        {"text": spaces.Text(9), "pair": spaces.Tuple([spaces.Discrete(9), spaces.Box(0, 9, (2,))])}
    )
    action_space = spaces.Dict(
        {"n": spaces.Discrete(9), "v": spaces.Tuple([spaces.Box(0, 9, (2,))])}
    )

    def _observe(self) -> Any:
        return {"text": "abc"[: self.steps], "pair": (self.steps, np.ones(2, np.float32))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert action["n"] == self.steps
        assert_same(action["v"], (np.full(2, self.steps, np.float32),))
        self.steps += 1
        return self._observe(), 1.0, False, False, {}


async def test_rollouts_of_spaces_with_parts() -> None:
    def act(observations: Any) -> Any:
        steps = observations["pair"][0]
        assert observations["text"] == ["abc"[:n] for n in steps.tolist()]
        return {"n": steps, "v": (np.stack([steps, steps], 1).astype(np.float32),)}

    async with agym.make_async(Mixed, 3) as envs, agym.batched(act) as policy:
        async for rollout in agym.rollout(envs, policy, 4):
            assert rollout.valid.all()
            assert rollout.actions["n"].tolist() == [[t] * 3 for t in range(4)]
            break


@pytest.mark.parametrize("groups", [1, 2])
async def test_a_rollout_raises_that_its_policy_was_cancelled(groups: int) -> None:
    async def cancelled(observations: Any) -> Any:
        raise asyncio.CancelledError

    async with agym.make_async("CartPole-v1", 2) as envs:
        rollouts = agym.rollout(envs, cancelled, 4, groups=groups)
        with pytest.raises(asyncio.CancelledError):
            await anext(rollouts)


async def test_a_rollout_raises_what_the_policy_raises() -> None:
    def raises(observations: Any) -> Any:
        raise PolicyBroke(1)

    async with agym.make_async("CartPole-v1", 3) as envs, agym.batched(raises) as policy:
        with pytest.raises(PolicyBroke):
            async for _ in agym.rollout(envs, policy, 4):
                pass
        await envs.reset()  # nothing is left in flight that would hinder it


@kinds_of_function()
async def test_timelines_show_each_call(function: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with agym.trace(path):
        async with agym.batched(function, update=lambda weights: None) as policy:
            await asyncio.gather(*(policy(k) for k in range(3)))
            await policy.update(None)
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
    assert f"{policy.name} ×3" in names
    assert f"{policy.name}: update" in names
