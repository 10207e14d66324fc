"""Environments on threads: one thread for life, given up when it hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

import agym
from agym.core.backends.outbox import Outbox
from agym.core.engine import life
from agym.core.protocol.messages.operations import CLOSE
from tests.support.envs.coroutine_envs import AsyncRaises
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.gated_envs import Gated, Gates
from tests.support.envs.plain_envs import Tally
from tests.support.insides import workers_of
from tests.support.patience import deadline, patience


class Threaded(Tally):
    """Notes in which thread it was made, reset, stepped, rendered, called and closed."""

    def __init__(self, notes: list[tuple[str, int]]) -> None:
        super().__init__(1000)
        self.notes = notes
        self._note("made")

    def _note(self, what: str) -> None:
        self.notes.append((what, threading.get_ident()))

    def reset(self, **arguments: Any) -> Any:
        self._note("reset")
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self._note("step")
        return super().step(action)

    def render(self) -> Any:
        self._note("render")
        return super().render()

    def close(self) -> None:
        self._note("close")


@pytest.mark.parametrize("workers", [None, 2])
def test_one_thread_for_life(workers: int | None) -> None:
    notes: list[list[tuple[str, int]]] = [[] for _ in range(4)]
    factories = [partial(Threaded, some) for some in notes]
    with agym.make(factories, backend="thread", workers=workers) as envs:
        envs.reset()
        envs.step([0] * 4)
        envs.send([0] * 4)
        envs.recv(min_envs=4)
        envs.render()
    for some in notes:
        assert [what for what, _ in some] == ["made", "reset", "step", "step", "render", "close"]
        assert len({thread for _, thread in some}) == 1
    threads = {some[0][1] for some in notes}
    assert len(threads) == (workers or 4)
    assert threading.get_ident() not in threads


class Hangs(Tally):
    """Hangs in a step with action 1, and logs that it was closed."""

    def __init__(self, let_go: threading.Event, closed: list[int], number: int) -> None:
        super().__init__(1000)
        self.let_go, self.closed, self.number = let_go, closed, number

    def step(self, action: Any) -> Any:
        if action == 1:
            self.let_go.wait()
        return super().step(action)

    def close(self) -> None:
        self.closed.append(self.number)


@pytest.mark.once
@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_thread_that_hangs_is_given_up(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "GRACE_SECONDS", (deadline(0.2),) * 3)
    let_go = threading.Event()
    closed: list[int] = []
    factories = [partial(Hangs, let_go, closed, i) for i in range(3)]

    async def main() -> None:
        async with agym.make_async(factories, backend="thread") as envs:
            await envs.reset()
            envs.step([0, 1, 0])

    def go() -> None:
        with agym.make(factories, backend="thread") as envs:
            envs.reset()
            envs.send([0, 1, 0])

    go() if api == "sync" else asyncio.run(main())
    assert sorted(closed) == [0, 2]
    let_go.set()
    for thread in [t for t in threading.enumerate() if t.name == "agym-1"]:
        thread.join(patience())
    assert sorted(closed) == [0, 1, 2]  # by its own thread, late


class Flickers(list[int]):
    """The marker of a thread that comes back just as its marker is read."""

    def __getitem__(self, index: Any) -> Any:
        mark, self[0] = super().__getitem__(index), 0
        return mark


def test_the_environment_that_hung_is_named_though_it_comes_back(gates: Gates) -> None:
    factories = [partial(Gated, path) for path in gates.paths]
    limit: Any = {"timeout": deadline(0.5), "on_fault": "restart"}
    with agym.make(factories, backend="thread", workers=1, **limit) as envs:
        envs.reset()
        (worker,) = workers_of(envs)
        worker.marker = Flickers([3])  # environment 2
        with pytest.warns(RuntimeWarning, match="in environment 2 and was abandoned"):
            _, _, _, truncated, infos = envs.step([0, 0, 1])
        assert truncated == [True] * 3
        assert {info["fault"].culprit for info in infos} == {2}
        gates.open(2)
        worker.thread.join(patience())


def test_what_a_thread_raises_in_close_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the thread is interrupted just before it tells."""
    put = Outbox.put

    def slow_put(self: Outbox, port: Any, item: Any) -> None:
        if item.number == CLOSE:
            time.sleep(0.05)
        put(self, port, item)

    monkeypatch.setattr(Outbox, "put", slow_put)
    for backend, env in (("thread", Raises), ("asyncio", AsyncRaises)):
        envs = agym.make(partial(env, "close"), 1, backend=backend)
        with pytest.raises(agym.EnvError, match="raised in close"):
            envs.close()


def test_threads_wait_side_by_side(gates: Gates) -> None:
    """All of them stand at their gates at the same time."""
    with agym.make([partial(Gated, path) for path in gates.paths], backend="thread") as envs:
        envs.reset()
        envs.send([1, 1, 1])
        for i in (2, 1, 0):
            gates.open(i)
        assert sorted(envs.recv(min_envs=3).env_ids) == [0, 1, 2]
