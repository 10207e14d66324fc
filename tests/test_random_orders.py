"""Sends, receipts, steps, resets and cancellations in random order, against a simple model.

Every observation tells the episode, the step and the action, so a transition that is lost,
doubled, or given to another call shows in the next one that is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agym
from tests.support.backends import FORK
from tests.support.core_selection import examples
from tests.support.envs.coroutine_envs import AsyncTally, Keeper
from tests.support.envs.plain_envs import Tally
from tests.support.patience import patience

N = 3
EPISODE = 10**6

some_ids = st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True)
numbers = st.integers(0, 9)

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), some_ids, numbers),
        st.tuples(st.just("send"), some_ids, numbers),
        st.tuples(st.just("step"), some_ids, numbers),
        st.tuples(st.just("single step"), st.integers(0, N - 1), numbers),
        st.tuples(st.just("reset"), some_ids),
        st.tuples(st.just("render"), some_ids),
        st.tuples(st.just("recv"), st.integers(1, N), st.integers(1, N)),
        st.tuples(st.just("recv"), st.integers(1, N), st.integers(1, N)),
        st.tuples(st.just("cancelled recv"), st.integers(1, N), st.integers(0, 6)),
        st.tuples(st.just("await"), numbers, st.integers(0, 6)),
        st.tuples(st.just("let"), st.integers(0, N - 1)),
        st.tuples(st.just("let"), st.integers(0, N - 1)),
    ),
    min_size=5,
    max_size=40,
)


class Model:
    """What each environment has been asked to do, and what is to come of it.

    Attributes:
        now: By environment, episode and step after all that was dispatched.
        sent: By environment, the row that is to be received.
        pending: Calls that were not awaited yet, each with the rows that it is to give.
        received: How many rows were received.
    """

    def __init__(self, envs: agym.AsyncEnvs) -> None:
        self.envs = envs
        self.now = [(1, 0)] * N
        self.sent: dict[int, list[float]] = {}
        self.pending: deque[tuple[Any, Callable[[Any], Any], Any]] = deque()
        self.received = 0
        self.steps = [0] * N

    def _advance(self, i: int, action: int) -> list[float]:
        episode, step = self.now[i]
        self.now[i] = episode, step + 1
        self.steps[i] += 1
        return [episode, step + 1, action]

    def send(self, ids: list[int], number: int) -> None:
        actions = [(number + i) % 10 for i in ids]
        if self._dispatched(lambda: self.envs.send(actions, ids), ids):
            for i, action in zip(ids, actions, strict=True):
                self.sent[i] = self._advance(i, action)

    def step(self, ids: list[int], number: int) -> None:
        ids = sorted(ids)
        actions = [(number + i) % 10 for i in ids]
        if self._dispatched(lambda: self.envs.step(actions, env_ids=ids), ids):
            rows = [self._advance(i, action) for i, action in zip(ids, actions, strict=True)]
            self.pending.append((self.last, lambda result: result.observations.tolist(), rows))

    def single_step(self, i: int, action: int) -> None:
        if self._dispatched(lambda: self.envs[i].step(action), [i]):
            row = self._advance(i, action)
            self.pending.append((self.last, lambda result: result[0].tolist(), row))

    def _dispatched(self, call: Callable[[], Any], ids: list[int]) -> bool:
        """Whether a step was taken; one that is refused changes nothing, and has a reason."""
        try:
            self.last = call()
        except agym.BusyError:
            assert self.sent or self.pending
            return False
        assert not self.sent.keys() & set(ids), "stepped again before it was received"
        return True

    def reset(self, ids: list[int]) -> None:
        ids = sorted(ids)
        for i in ids:
            self.now[i] = self.now[i][0] + 1, 0
        rows = [[self.now[i][0], 0, -1] for i in ids]
        pending = self.envs.reset(env_ids=ids)
        self.pending.append((pending, lambda r: r.observations[ids].tolist(), rows))

    def render(self, ids: list[int]) -> None:
        ids = sorted(ids)
        frames = [f"{self.now[i][0]}:{self.now[i][1]}" for i in ids]
        self.pending.append((self.envs.render(ids), list, frames))

    async def recv(self, least: int, most: int, timeout: float | None = 0) -> None:
        if not self.sent:
            with pytest.raises(agym.UsageError, match="nothing to receive"):
                await self.envs.recv()
            return
        batch = await self.envs.recv(min(least, most), most, timeout)
        assert len(batch.env_ids) <= most
        self._take(batch)

    def _take(self, batch: agym.Batch) -> None:
        for k, i in enumerate(batch.env_ids.tolist()):
            expected = self.sent.pop(i)  # KeyError: it was received before, or never sent
            assert batch.observations[k].tolist() == expected
            assert batch.rewards[k] == expected[0] + expected[1] / 16
            assert batch.infos[k] == {"now": expected[1], "action": expected[2]}
            self.received += 1

    async def cancelled_recv(self, least: int, turns: int) -> None:
        if not self.sent:
            return
        batch = await _cancelled(self.envs.recv(least), turns)
        if batch is not None:
            self._take(batch)

    async def wait(self, number: int, turns: int) -> None:
        """Await one of the calls, in any order, and give up after some turns."""
        if not self.pending:
            return
        self.pending.rotate(number)
        pending, look, expected = self.pending[0]
        result = await _cancelled(pending, turns)
        if result is not None:
            assert look(result) == expected
            self.pending.popleft()

    async def finish(self) -> None:
        while self.sent:
            await self.recv(N, N, None)
        for pending, look, expected in self.pending:
            assert look(await pending) == expected
        frames = [f"{episode}:{step}" for episode, step in self.now]
        assert await self.envs.render() == frames
        last = await self.envs.step([0] * N)
        assert last.observations[:, :2].tolist() == [[e, step + 1] for e, step in self.now]


async def _cancelled(coroutine: Coroutine[Any, Any, Any], turns: int) -> Any:
    """Run something for so many turns of the loop; ``None`` if it has not ended by then."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    return None


async def run(model: Model, operations: list[Any], let: Callable[[int], None] | None) -> None:
    for name, *arguments in operations:
        if name == "let":
            if let is not None:
                let(*arguments)
            for _ in range(5):
                await asyncio.sleep(0)
        elif name in {"recv", "cancelled recv", "await"}:
            method = {"recv": model.recv, "cancelled recv": model.cancelled_recv}
            await method.get(name, model.wait)(*arguments)
        else:
            getattr(model, name.replace(" ", "_"))(*arguments)


@pytest.mark.full
@examples(300)
@given(OPERATIONS)
def test_on_a_loop(operations: list[Any]) -> None:
    """The operations say when each environment goes on."""

    async def main() -> None:
        keeper = Keeper()
        where = ("step", "reset")

        def let(i: int) -> None:
            future = keeper.waiting.get(i)
            if future is not None and not future.done():
                future.set_result(None)

        async with agym.make_async(
            keeper.factories(N, where=where, length=EPISODE),
            backend="asyncio",
            autoreset="disabled",
        ) as envs:
            opening = asyncio.create_task(keeper.let_all())
            await envs.reset()
            await opening
            model = Model(envs)
            await run(model, operations, let)
            opening = asyncio.create_task(_let_for_ever(keeper))
            await model.finish()
            opening.cancel()
            assert [keeper.envs[i].total for i in range(N)] == [k + 1 for k in model.steps]

    asyncio.run(asyncio.wait_for(main(), patience(2)))


async def _let_for_ever(keeper: Keeper) -> None:
    while True:
        await keeper.let_all()
        await asyncio.sleep(0)


SETUPS = [
    pytest.param(Tally, {"backend": "serial"}, id="serial"),
    pytest.param(Tally, {"backend": "thread"}, id="thread"),
    pytest.param(Tally, {"backend": FORK, "workers": 2}, id="process"),
    pytest.param(
        partial(AsyncTally, Tally),
        {"backend": FORK, "workers": 2},
        id="process-coroutines",
    ),
]


@pytest.mark.once
@pytest.mark.parametrize(("tally", "setup"), SETUPS)
def test_elsewhere(tally: Any, setup: dict[str, Any]) -> None:
    """The environments go on as fast as they can."""
    with asyncio.Runner() as runner:
        envs = agym.make_async(partial(tally, EPISODE), N, **setup, autoreset="disabled")

        async def opened() -> None:
            await envs

        async def play(operations: list[Any]) -> None:
            model = Model(envs)
            first = await envs.reset()
            model.now = [(int(episode), 0) for episode in first.observations[:, 0]]
            await run(model, operations, None)
            await model.finish()

        runner.run(opened())
        try:

            @examples(150)
            @given(OPERATIONS)
            def check(operations: list[Any]) -> None:
                runner.run(asyncio.wait_for(play(operations), patience(2)))

            check()
        finally:
            runner.run(envs.aclose())
