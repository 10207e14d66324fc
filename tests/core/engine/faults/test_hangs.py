"""What does not come back is ended at its deadline, and what it says later is heard by nobody."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.testing import assert_same
from tests.support.backends import with_own
from tests.support.drivers import FORKED, Setup, each_api, played
from tests.support.envs.plain_envs import Tally
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import deadline, patience
from tests.support.scenarios import (
    ASYNCIO,
    COROUTINES,
    PROCESS,
    THREAD,
    disturbed,
    over,
    play,
    rows,
    trapped,
    undisturbed,
    wait_for_threads,
)

WAYS = [
    (PROCESS, "hang", {0, 1}),
    (PROCESS, "hang-in-c", {0, 1}),
    (COROUTINES, "hang", {1}),
    (COROUTINES, "never", {1}),
    (COROUTINES, "stubborn", {1}),
    (THREAD, "hang", {0, 1}),
    (ASYNCIO, "hang", {1}),
    (ASYNCIO, "never", {1}),
    (ASYNCIO, "stubborn", {1}),
]
each_way = pytest.mark.parametrize(
    ("setup", "what", "gone"), WAYS, ids=[f"{setup.name}-{what}" for setup, what, _ in WAYS]
)
CALLS: dict[str, Any] = {
    "reset": lambda envs: envs.reset(),
    "step": lambda envs: envs.step([1, 2, 3, 4]),
    "render": lambda envs: envs.render(),
    "call": lambda envs: envs.call("add", 1),
}


def warned(setup: Setup) -> Any:
    if setup is not THREAD:
        return nullcontext()
    return pytest.warns(RuntimeWarning, match="worker 0, a thread.*environment 1 and was abandoned")


@pytest.mark.once
@pytest.mark.parametrize("where", CALLS)
@pytest.mark.parametrize(("setup", "what", "gone"), [WAYS[k] for k in (0, 1, 3, 5, 8)])
def test_it_is_told_and_replaced(
    setup: Setup, what: str, gone: set[int], where: str, traps: Traps
) -> None:
    with played("sync", trapped(setup, traps), **setup.options, timeout=deadline(0.4)) as envs:
        envs.reset(seed=3)
        traps.set(1, where, what)
        with warned(setup), pytest.raises(agym.StepTimeout, match=where) as caught:
            CALLS[where](envs)
        assert caught.value.operation == where
        assert set(caught.value.env_ids) <= gone
        assert 1 in caught.value.env_ids
        # What follows is not told again.
        if where in ("render", "call"):
            assert len(CALLS[where](envs)) == 4
        with pytest.raises(agym.ResetNeededError, match="replaced after a missed deadline"):
            envs.step([0], env_ids=[1])
        envs.reset(env_ids=sorted(gone), seed=[5] * len(gone))
        before = [row[0][1] for row in rows(envs.step([6, 6, 6, 6]))]
        assert [before[i] for i in gone] == [1] * len(gone)
        traps.release()
        for k in range(1, 4):
            after = rows(envs.step([k] * 4))
            held = [i for i in range(4) if before[i] + k > 5]
            assert [row[0][1] for row in after] == [min(5, now + k) for now in before]
            assert all(after[i][0][2] == k for i in range(4) if i not in held)
    wait_for_threads()


@pytest.mark.full
def test_nothing_is_posted_to_a_worker_that_takes_long_to_die(
    traps: Traps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a crowded machine: it was killed, and is not gone when its caller asks again."""
    monkeypatch.setattr("agym.core.backends.process.process_port.EXIT_CODE_SECONDS", 0.0)
    with played("sync", trapped(PROCESS, traps), **PROCESS.options, timeout=deadline(0.4)) as envs:
        envs.reset(seed=3)
        for _ in range(5):
            traps.set(1, "render", "hang")
            with pytest.raises(agym.StepTimeout, match="render"):
                envs.render()
            assert len(envs.render()) == 4


@pytest.mark.once
@pytest.mark.parametrize("where", ["step", "reset"])
@each_way
def test_it_is_mended(setup: Setup, what: str, gone: set[int], where: str, traps: Traps) -> None:
    """By a replay, which touches nobody else; for a restart see test_restart.py."""
    at = 6 if where == "step" else 9
    options = {
        **setup.options,
        "timeout": deadline(0.4),
        "on_fault": "replay",
        "autoreset": "next_step",
    }
    with warned(setup), played("sync", trapped(setup, traps), **options) as envs:
        story = play(envs, lambda k: traps.set(1, where, what) if k == at else None)
        traps.release()
    wait_for_threads()
    assert disturbed(story, undisturbed("next_step")) == {1: at + 1}
    fault = story[1][at + 1][-1]["fault"]
    assert (fault.kind, fault.culprit, fault.operation) == ("timeout", 1, where)


@pytest.mark.once
@pytest.mark.parametrize(
    ("on_fault", "api"), [("raise", "sync"), ("restart", "async"), ("replay", "sync")]
)
def test_a_thread_that_comes_back_changes_nothing(on_fault: str, api: str, traps: Traps) -> None:
    """It writes no row, ends no operation, and closes its environments."""
    options = {
        **THREAD.options,
        "timeout": deadline(0.4),
        "on_fault": on_fault,
        "autoreset": "next_step",
    }
    with played(api, traps.factories(4, length=1000), **options) as envs:
        envs.reset(seed=3)
        threads = {*threading.enumerate()}
        traps.set(1, "step", "hang")
        with pytest.warns(RuntimeWarning, match="abandoned"):
            _step_or_miss(envs, on_fault)
        left = {thread for thread in threads if thread.name == "agym-0"}
        expected = envs.reset(seed=8)[0]
        for k in range(60):
            if k == 20:
                traps.release()
            result = envs.step([k % 9] * 4)
            assert [o.tolist() for o in result.observations] == [
                [expected[i][0], k + 1, k % 9] for i in range(4)
            ]
            assert not any("fault" in info for info in result.infos)
            time.sleep(0.001)
        for thread in left:
            thread.join(patience())
            assert not thread.is_alive()


def _step_or_miss(envs: Any, on_fault: str) -> None:
    missed = pytest.raises(agym.StepTimeout) if on_fault == "raise" else nullcontext()
    with missed:
        envs.step([1, 2, 3, 4])


@pytest.mark.once
@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
@pytest.mark.filterwarnings("ignore:worker 0, a thread")
async def test_a_reset_behind_a_step_that_hangs(setup: Setup, traps: Traps) -> None:
    """It is done on the environment that comes instead; nobody else is ended for it."""
    async with agym.make_async(
        trapped(setup, traps), **setup.options, timeout=deadline(0.4)
    ) as envs:
        await envs.reset(seed=3)
        pids = await envs.call("pid")
        traps.set(1, "step", "hang")
        step = envs.step([1, 2, 3, 4])
        reset = envs.reset(seed=7, env_ids=[0, 1])
        with pytest.raises(agym.StepTimeout) as caught:
            await step
        assert caught.value.operation == "step"
        await reset
        result = await envs.step([5, 6, 7, 8])
        assert [o[1:].tolist() for o in result.observations] == [[1, 5], [1, 6], [2, 7], [2, 8]]
        assert (await envs.call("pid"))[2:] == pids[2:]
        traps.release()
    wait_for_threads()


@pytest.mark.once
@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
@pytest.mark.parametrize("on_fault", ["restart", "replay"])
@pytest.mark.filterwarnings("ignore:worker 0, a thread")
async def test_a_step_behind_a_reset_that_hangs(setup: Setup, on_fault: str, traps: Traps) -> None:
    """Environments whose step has to wait for that are not late."""
    # Longer than a loaded machine takes for the steps that are in time.
    options = {**setup.options, "timeout": deadline(1.2), "on_fault": on_fault}
    async with agym.make_async(trapped(setup, traps), **options) as envs:
        await envs.reset(seed=3)
        traps.set(1, "reset", "hang")
        reset, step = envs.reset(seed=7), envs.step([5, 6, 7, 8])
        begun, result = await reset, await step
        assert ["fault" in info for info in begun.infos][1:] == [True, False, False]
        assert not any("fault" in info for info in result.infos)
        assert [o[1:].tolist() for o in result.observations] == [[1, 5], [1, 6], [1, 7], [1, 8]]
        assert sum(worker.restarts for worker in envs.stats().workers) <= 1
        traps.release()
    wait_for_threads()


@pytest.mark.once
@pytest.mark.parametrize("part", [0.0, 0.05])
async def test_a_deadline_begins_when_a_step_is_sent(part: float, tmp_path: Path) -> None:
    """Not when it is asked for, and has to wait for a reset that is late."""
    limit = deadline(0.4)
    factories = [partial(LateOnce, limit / 8), partial(LateOnce, limit / 8, tmp_path / "late")]
    options = {"timeout": limit, "on_fault": "restart", "workers": 2}
    async with agym.make_async(factories, **FORKED, **options) as envs:
        await envs.reset(seed=3)
        (tmp_path / "late").touch()
        reset = envs.reset(seed=7)
        time.sleep(part * limit)  # noqa: ASYNC251 - nothing is to go on meanwhile
        step = envs.step([1, 2])
        assert ["fault" in info for info in (await reset).infos] == [False, True]
        assert not any("fault" in info for info in (await step).infos)


class LateOnce(Tally):
    """Takes some time for each step; its reset hangs where a file is, which is gone then."""

    def __init__(self, seconds: float, file: Path | None = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.file = file

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.file is not None and self.file.exists():
            self.file.unlink()
            time.sleep(1000)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().step(action)


@pytest.mark.once
@each_api
@over(COROUTINES, ASYNCIO)
def test_one_that_will_not_be_cancelled_holds_no_place(
    api: str, setup: Setup, traps: Traps
) -> None:
    options = {"timeout": deadline(0.4), "on_fault": "restart"}
    options |= with_own(setup.options, max_concurrency=1)
    with played(api, trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        traps.set(1, "step", "stubborn")
        result = envs.step([1, 2, 3, 4])
        assert ["fault" in info for info in result.infos] == [False, True, False, False]
        assert envs.step([1, 2, 3, 4]) is not None
        traps.release()


@pytest.mark.once
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
@over(PROCESS, COROUTINES, THREAD)
@pytest.mark.filterwarnings("ignore:worker 0, a thread")
def test_one_that_hangs_when_it_is_made_again(
    setup: Setup, on_fault: str, traps: Traps, monkeypatch: Any
) -> None:
    """Not over asyncio, where it holds up the very loop that would have to notice."""
    replace_what_hangs(setup, "make", on_fault, traps, monkeypatch)


@pytest.mark.once
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
@pytest.mark.filterwarnings("ignore:worker 0, a thread")
def test_one_that_hangs_when_the_old_one_is_closed(
    setup: Setup, on_fault: str, traps: Traps, monkeypatch: Any
) -> None:
    replace_what_hangs(setup, "close", on_fault, traps, monkeypatch)


def replace_what_hangs(
    setup: Setup, where: str, on_fault: str, traps: Traps, monkeypatch: Any
) -> None:
    monkeypatch.setattr("agym.core.engine.calls.ticket.RECREATE_SECONDS", 0.3)
    monkeypatch.setattr("agym.core.engine.calls.ticket.RECREATE_DEADLINES", 1)
    options = {
        **setup.options,
        "timeout": deadline(0.4),
        "on_fault": on_fault,
        "autoreset": "next_step",
    }
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        traps.set(1, where, "hang")
        if on_fault == "raise":
            try:
                envs.restart([1])
            except (agym.StepTimeout, agym.WorkerDied):
                envs.restart()
            envs.reset()
        else:
            traps.set(1, "step", "plain")
            result = envs.step([1, 2, 3, 4])
            assert result.truncated[1]
            assert "fault" in result.infos[1]
            envs.step([1, 2, 3, 4])
        assert [row[0][1] for row in rows(envs.step([0] * 4, env_ids=None))][2] >= 1
        traps.release()
    wait_for_threads()


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:worker .*abandoned")
@pytest.mark.parametrize("setup", [{"backend": "thread"}, FORKED], ids=["thread", "process"])
def test_two_that_are_late_at_once_spoil_no_third(setup: dict[str, Any], traps: Traps) -> None:
    options = {"autoreset": "next_step", "output": "array"}
    restarts = {"workers": 4, "timeout": deadline(0.3), "on_fault": "restart", **setup, **options}
    with (
        agym.make(traps.factories(4, length=3), **restarts) as envs,
        agym.make(traps.factories(4, length=3), backend="serial", **options) as same,
    ):
        envs.reset(seed=0)
        same.reset(seed=0)
        assert_same(envs.step([0] * 4), same.step([0] * 4))
        right = same.step([0, 0, 1, 2])
        traps.set(0, "step", "hang")
        traps.set(1, "step", "hang")
        late = envs.step([0, 0, 1, 2])
        assert late.truncated.tolist() == [True, True, False, False]
        assert ["fault" in info for info in late.infos] == [True, True, False, False]
        assert_same(late.observations[2:], right.observations[2:])
        for k in range(5):
            told, right = envs.step([k] * 4), same.step([k] * 4)
            assert_same(told.observations[2:], right.observations[2:])
            assert told.rewards[2:].tolist() == right.rewards[2:].tolist()
            # Those that were replaced begin anew, by a step that resets them.
            assert told.observations[:2, 1].tolist() == [k % 4] * 2
        traps.release()
    wait_for_threads()
