"""Coroutine environments that never await: they hold their worker's whole loop up."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from functools import partial
from typing import Any

import pytest

import agym
from agym.core.backends.process.worker_loop import WorkerLoop
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline

FORKED = {"backend": FORK, "workers": 2, "autoreset": "next_step"}


class Blocks(AsyncTally):
    """Action 9 blocks the loop: in Python, or in C with the GIL held."""

    def __init__(self, how: str) -> None:
        super().__init__(length=1000)
        self.how = how

    async def step(self, action: Any) -> Any:
        if action == 9:
            if self.how == "python":
                time.sleep(60)  # noqa: ASYNC251
            ctypes.PyDLL(None).sleep(60)
        return await super().step(action)


class Sticks(Tally):
    """Dies when its action is 9, and whoever comes next in its process hangs while it is made."""

    def __init__(self, path: str) -> None:
        super().__init__(length=1000)
        self.path = path
        if os.path.exists(path):  # noqa: PTH110
            time.sleep(60)

    def step(self, action: Any) -> Any:
        if action == 9:
            with open(self.path, "w"):  # noqa: PTH123
                os._exit(1)
        return super().step(action)


@pytest.mark.once
@pytest.mark.parametrize("how", ["python", "c"])
def test_a_stuck_loop_is_replaced(how: str) -> None:
    options = {**FORKED, "timeout": deadline(0.3), "on_fault": "restart", "output": "array"}
    with agym.make(partial(Blocks, how), 4, **options) as envs:
        envs.reset(seed=0)
        envs.step([1] * 4)
        result = envs.step([1, 9, 1, 1])
        assert result.truncated[[2, 3]].tolist() == [False, False]
        assert result.truncated[1]
        fault = result.infos[1]["fault"]
        assert (fault.kind, fault.culprit) == ("timeout", 1)
        assert fault.worker == 0
        envs.step([1] * 4)
        assert not envs.step([1] * 4).truncated.any()


def test_a_stuck_loop_is_told() -> None:
    with agym.make(partial(Blocks, "python"), 4, **FORKED, timeout=deadline(0.3)) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.StepTimeout) as caught:
            envs.step([9, 1, 1, 1])
        assert 0 in caught.value.env_ids
        envs.reset()
        envs.step([1] * 4)


@pytest.mark.once
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_constructor_that_hangs_in_the_new_worker(
    on_fault: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agym.core.engine.calls.ticket.RECREATE_SECONDS", 0.5)
    monkeypatch.setattr("agym.core.engine.calls.ticket.RECREATE_DEADLINES", 1)
    path = str(tmp_path / "died")
    policy = agym.FaultPolicy(on_fault, max_restarts=2)
    options = {**FORKED, "timeout": deadline(0.3), "on_fault": policy}
    with agym.make(partial(Sticks, path), 4, **options) as envs:
        envs.reset(seed=0)
        error = agym.WorkerDied if on_fault == "raise" else agym.CrashLoopError
        with pytest.raises(error):
            envs.step([1, 9, 1, 1])
        with pytest.raises(agym.AgymError, match="did not start within"):
            envs.restart()
        os.unlink(path)  # noqa: PTH108
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        envs.step([1] * 4)


class BlocksLater(Blocks):
    """Blocks only after all others in its worker have ended their step."""

    async def step(self, action: Any) -> Any:
        if action == 9:
            await asyncio.sleep(0.1)
        return await super().step(action)


def test_who_had_ended_before_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completions wait for one another only where nobody asks who is late."""
    monkeypatch.setattr(WorkerLoop, "patience", 60.0)  # of workers that are forks
    options = {**FORKED, "workers": 1, "timeout": deadline(0.5)}
    with agym.make(partial(BlocksLater, "python"), 4, **options) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.StepTimeout) as caught:
            envs.step([1, 1, 9, 1])
        assert caught.value.env_ids == (2,)
