"""Sends, receipts, steps, resets, cancellations and closing, in any order, against a model.

Every observation names its episode, step and action. So a transition that is lost, doubled, or
given to another call shows in the next observation.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

import agym
from agym.testing import World
from agym.testing.law import await_for, result_of
from tests.support.backends import FORK
from tests.support.core_selection import examples

N = 3
ids_of_some = st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True)
env_ids = st.integers(0, N - 1)
actions = st.integers(0, 9)
turns = st.integers(1, 6)


class Orders(RuleBasedStateMachine):
    """Environments, and a model of what was asked of each.

    Attributes:
        world: Where the environments live.
        now: By environment, the episode and step after all that was dispatched.
        sent: By environment, the row that is to be received.
        pending: Calls that were not awaited yet: the awaitable, how to read its result, and what
            the result must be.
    """

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.open()

    def open(self) -> None:
        self.stack = ExitStack()
        self.envs = self.stack.enter_context(self.world.open(N, length=10**6))
        self.envs.reset()
        self.now = [(1, 0)] * N
        self.sent: dict[int, list[float]] = {}
        self.pending: deque[tuple[Any, Callable[[Any], Any], Any]] = deque()

    # ---------------------------------------------------------------- what is dispatched

    @rule(ids=ids_of_some, action=actions)
    def send(self, ids: list[int], action: int) -> None:
        if self.dispatch(lambda: self.envs.envs.send([action] * len(ids), ids), ids) is not BUSY:
            self.sent.update({i: self.advance(i, action) for i in ids})

    @rule(ids=ids_of_some.map(sorted), action=actions)
    def step(self, ids: list[int], action: int) -> None:
        result = self.dispatch(lambda: self.envs.envs.step([action] * len(ids), env_ids=ids), ids)
        if result is not BUSY:
            expected = [self.advance(i, action) for i in ids]
            self.expect(result, lambda step: step.observations[:, 1:].tolist(), expected)

    @rule(i=env_ids, action=actions)
    def step_one(self, i: int, action: int) -> None:
        result = self.dispatch(lambda: self.envs.envs[i].step(action), [i])
        if result is not BUSY:
            self.expect(result, lambda step: step[0][1:].tolist(), self.advance(i, action))

    @rule(ids=ids_of_some)
    def reset(self, ids: list[int]) -> None:
        result = self.dispatch(lambda: self.envs.envs.reset(env_ids=ids))
        for i in ids:
            self.now[i] = self.now[i][0] + 1, 0
        expected = [[self.now[i][0], 0, -1] for i in ids]
        self.expect(result, lambda reset: reset.observations[ids, 1:].tolist(), expected)

    @rule(ids=ids_of_some.map(sorted))
    def render(self, ids: list[int]) -> None:
        frames = [f"{self.now[i][0]}:{self.now[i][1]}" for i in ids]
        self.expect(self.dispatch(lambda: self.envs.envs.render(ids)), list, frames)

    # ---------------------------------------------------------------- what is awaited

    @rule(least=st.integers(1, N), most=st.integers(1, N))
    def recv(self, least: int, most: int) -> None:
        if not self.sent:
            with pytest.raises(agym.NothingSentError):
                self.envs.recv()
            return
        batch = self.envs.recv(min(least, most), most, timeout=0)
        assert len(batch.env_ids) <= most
        self.take(batch)

    @precondition(lambda self: self.world.api == "async")
    @rule(least=st.integers(1, N), turns=turns)
    def cancel_recv(self, least: int, turns: int) -> None:
        if not self.sent:
            return
        batch = self.envs.run(await_for(self.envs.envs.recv(least), turns))
        if batch is not None:
            self.take(batch)

    @precondition(lambda self: self.world.api == "async")
    @rule(number=st.integers(0, 9), turns=turns)
    def await_one(self, number: int, turns: int) -> None:
        """Await one of the calls, in any order, and stop waiting after some turns of the loop."""
        if not self.pending:
            return
        self.pending.rotate(number)
        pending, look, expected = self.pending[0]
        result = self.envs.run(await_for(pending, turns))
        if result is not None:
            assert look(result) == expected
            self.pending.popleft()

    # ---------------------------------------------------------------- time passes

    @precondition(lambda self: self.world.api == "async" and "concurrent" in self.world.has)
    @rule(i=env_ids, operation=st.sampled_from(["step", "step", "reset"]))
    def hold(self, i: int, operation: str) -> None:
        """Let the environment's next step or reset wait at its gate."""
        self.envs.script.set(i, operation, "wait")

    @precondition(lambda self: self.world.api == "async")
    @rule(i=env_ids, turns=turns)
    def open_gate(self, i: int, turns: int) -> None:
        self.envs.script.try_open(i)
        for _ in range(turns):
            self.envs.run(asyncio.sleep(0))

    @rule(chance=st.integers(0, 9))
    def close(self, chance: int) -> None:
        """Close with all that is under way, once in a while, and start again."""
        if chance == 0:
            with self.gates_open():
                self.stack.close()
            with pytest.raises(agym.ClosedError):
                self.envs.envs.reset()
            self.open()

    def teardown(self) -> None:
        """Each call gives what it was asked for, and no environment took another step."""
        with self.gates_open(), self.stack:
            for pending, look, expected in self.pending:
                assert look(self.envs.run(result_of(pending))) == expected
            while self.sent:
                self.take(self.envs.recv())
            assert self.envs.render() == [f"{episode}:{step}" for episode, step in self.now]

    @contextlib.contextmanager
    def gates_open(self) -> Iterator[None]:
        """Let no environment wait any more, so that everything comes to its end."""
        is_over = threading.Event()

        def open_gates() -> None:
            while not is_over.wait(0.001):
                with contextlib.suppress(FileNotFoundError):  # the folder is gone once all closed
                    self.envs.script.open_all()

        for i in range(N):
            self.envs.script.clear(i, "step")
            self.envs.script.clear(i, "reset")
        thread = threading.Thread(target=open_gates)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    # ---------------------------------------------------------------- the model

    def dispatch(self, call: Callable[[], Any], stepping: list[int] | None = None) -> Any:
        """Dispatch a call; a step may be refused for a reason, and then changes nothing."""

        async def run() -> Any:
            return call()

        try:
            result = call() if self.world.api == "sync" else self.envs.run(run())
        except agym.BusyError:
            assert stepping is not None
            assert self.sent or self.pending
            return BUSY
        assert not self.sent.keys() & {*(stepping or [])}, "stepped again before it was received"
        return result

    def expect(self, result: Any, look: Callable[[Any], Any], expected: Any) -> None:
        if self.world.api == "sync":
            assert look(result) == expected
        else:
            self.pending.append((result, look, expected))

    def advance(self, i: int, action: int) -> list[float]:
        episode, step = self.now[i]
        self.now[i] = episode, step + 1
        return [episode, step + 1, action]

    def take(self, batch: agym.Batch) -> None:
        for k, i in enumerate(batch.env_ids.tolist()):
            expected = self.sent.pop(i)  # KeyError: it was received before, or never sent
            assert batch.observations[k, 1:].tolist() == expected
            assert batch.rewards[k] == batch.observations[k, 0] + expected[1] / 16
            assert batch.infos[k] == {"now": expected[1], "action": expected[2]}


BUSY = object()


WORLDS = [
    World("serial"),
    World("serial", "async"),
    World("thread", "async", workers=2),
    pytest.param(World(FORK, workers=2), marks=pytest.mark.full),
    World(FORK, "async", workers=2),
    World("asyncio", "async", kind="coroutine"),
    pytest.param(World(FORK, "async", kind="coroutine", workers=2), marks=pytest.mark.full),
]


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_any_order_of_calls(world: World) -> None:
    """Each call returns the result of its own operation."""
    machine = type("Machine", (Orders,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            examples(50), stateful_step_count=40, suppress_health_check=list(HealthCheck)
        ),
    )


test_any_order_of_calls.draws_examples = True  # type: ignore[attr-defined]
