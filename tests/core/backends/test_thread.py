"""Environments on threads: each stays on one thread, which is abandoned when it hangs."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest
from gymnasium import spaces

import agym
from agym.api import waiting
from agym.core.backends.outbox import Outbox
from agym.core.engine import life
from agym.core.protocol.messages.operations import CLOSE
from agym.testing import RandomEnv, Script, World
from agym.testing.worlds import Api
from tests.support.drivers import APIS
from tests.support.insides import workers_of
from tests.support.patience import deadline, patience
from tests.support.worlds import ASYNCIO, THREAD


@pytest.mark.parametrize("workers", [None, 2])
def test_there_is_a_thread_per_worker(workers: int | None) -> None:
    """A law says that each environment stays on its thread."""
    env = partial(RandomEnv, spaces.Discrete(2), spaces.Discrete(2))
    with agym.make(env, 4, backend="thread", workers=workers) as envs:
        threads = envs.get_attr("thread")
    assert len({*threads}) == (workers or 4)
    assert threading.get_ident() not in threads


@pytest.mark.once
@pytest.mark.parametrize("api", APIS)
def test_closing_abandons_a_thread_that_hangs(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread closes its environment when it comes back."""
    monkeypatch.setattr(life, "GRACE_SECONDS", (deadline(0.5),) * 3)
    with World("thread", api).open(3) as envs:
        envs.reset()
        envs.script.set(1, "step", "wait")
        envs.send([0, 1, 0])
        envs.close()
        assert envs.script.closed() == [0, 2]
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "agym-1"]
        envs.script.open(1)
        thread.join(patience())
        assert envs.script.closed() == [0, 1, 2]


@pytest.mark.parametrize("api", APIS)
def test_closing_ends_when_the_last_thread_has_closed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits neither for the next check of the workers nor for the time to close by force."""
    monkeypatch.setattr(waiting, "RECHECK_SECONDS", 3600.0)
    monkeypatch.setattr(life, "GRACE_SECONDS", (3600.0,) * 3)
    with World("thread", api).open(2) as envs:
        envs.reset()
        envs.script.set(1, "close", "wait")
        # The first thread has closed by then, and the caller sleeps.
        opener = threading.Timer(0.1, envs.script.open, [1])
        opener.start()
        envs.close()
        opener.join()
        assert envs.script.closed() == [0, 1]


class Flickers(list[int]):
    """The marker of a thread that returns while its marker is read."""

    def __getitem__(self, index: Any) -> Any:
        mark, self[0] = super().__getitem__(index), 0
        return mark


def test_an_environment_that_hung_is_named_although_it_returns(script: Script) -> None:
    limit: Any = {"timeout": deadline(0.5), "on_fault": "restart"}
    with agym.make(script.factories(3), backend="thread", workers=1, **limit) as envs:
        envs.reset()
        (worker,) = workers_of(envs)
        worker.marker = Flickers([3])  # environment 2
        script.set(2, "step", "wait")
        with pytest.warns(RuntimeWarning, match="in environment 2 and was abandoned"):
            _, _, _, truncated, infos = envs.step([0, 0, 1])
        assert truncated == [True] * 3
        assert {info["fault"].culprit for info in infos} == {2}
        script.open(2)
        worker.thread.join(patience())


def test_an_error_of_close_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is interrupted just before it reports the error."""
    put = Outbox.put

    def slow_put(self: Outbox, port: Any, item: Any) -> None:
        if item.number == CLOSE:
            time.sleep(0.05)
        put(self, port, item)

    monkeypatch.setattr(Outbox, "put", slow_put)
    for world in (THREAD, ASYNCIO):
        with pytest.raises(agym.EnvError, match="raised in close"), world.open(1) as envs:
            envs.script.set(0, "close", "raise")
