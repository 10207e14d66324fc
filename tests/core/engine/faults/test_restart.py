"""``on_fault="restart"``: what was replaced is cut off, and no other row is touched."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import agym
from agym.backends import Process
from tests.support.drivers import Setup, each_mode, played
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import deadline
from tests.support.scenarios import (
    ASYNCIO,
    COROUTINES,
    PROCESS,
    RESET_AT,
    SERIAL,
    THREAD,
    Row,
    disturbed,
    over,
    play,
    trapped,
    undisturbed,
    wait_for_threads,
)

# Where it happens, what, and whose rows are cut off: an environment that raises goes alone.
CASES = [
    *((PROCESS, what, {0, 1}) for what in ("kill", "exit", "hang")),
    *((COROUTINES, what, {0, 1}) for what in ("kill", "exit")),
    (THREAD, "hang", {0, 1}),
    *((setup, "hang", {1}) for setup in (COROUTINES, ASYNCIO)),
    *((setup, "plain", {1}) for setup in (PROCESS, COROUTINES, THREAD, ASYNCIO, SERIAL)),
]
each_case = pytest.mark.parametrize(
    ("setup", "what", "cut"), CASES, ids=[f"{setup.name}-{what}" for setup, what, _ in CASES]
)
KINDS = {"hang": "timeout", "plain": "raised"}


def told(setup: Setup, what: str, traps: Traps, where: str, at: int, **options: Any) -> Any:
    """The story with a trap for environment 1 in one of its steps."""
    if what == "hang":
        options["timeout"] = deadline(0.4)
    warned = what == "hang" and setup is THREAD
    expected = pytest.warns(RuntimeWarning, match="abandoned") if warned else nullcontext()
    factories = trapped(setup, traps)
    api = options.pop("api", "sync")
    with expected, played(api, factories, **{**setup.options, **options}) as envs:
        result = play(envs, lambda k: traps.set(1, where, what) if k == at else None)
        traps.release()
    assert not traps.is_set(1, where)
    wait_for_threads()
    return result


def fault_of(row: Row) -> agym.Fault:
    fault = row[-1]["fault"]
    assert isinstance(fault, agym.Fault)
    return fault


@each_mode
@each_case
def test_a_step(setup: Setup, what: str, cut: set[int], mode: str, traps: Traps) -> None:
    at = 2
    story = told(setup, what, traps, "step", at, on_fault="restart", autoreset=mode)
    expected = undisturbed(mode)
    assert disturbed(story, expected) == dict.fromkeys(cut, at + 1)
    for i in cut:
        last = expected[i][at][0]
        observation, reward, terminated, truncated, info = story[i][at + 1]
        assert (reward, terminated, truncated) == (0.0, False, True)
        _check_fault(info["fault"], i, what, "step", setup)
        after = story[i][at + 2]
        if mode == "same_step":
            assert info["final_obs"].tolist() == last
            assert info["final_info"] == {}
            assert observation[1:] == [0, -1]
            assert observation[0] == 100 * info["draw"]
            assert after[0][:2] == [observation[0], 1]
        elif mode == "next_step":
            assert observation == last
            assert after[:1] + after[1:4] == ([100 * after[4]["draw"], 0, -1], 0.0, False, False)
        else:
            assert observation == last
            held: Row = (last, 0.0, False, True, {})
            assert all(row == held for row in story[i][at + 2 : RESET_AT + 1])
        assert all("fault" not in row[-1] for row in story[i][at + 2 :])
        # It begins episodes of its own, from a function of its seed.
        assert story[i][RESET_AT + 1][0] != expected[i][RESET_AT + 1][0]
        assert story[i][RESET_AT + 3][0][:2] == [story[i][RESET_AT + 1][0][0], 2]


def _check_fault(fault: agym.Fault, i: int, what: str, operation: str, setup: Setup) -> None:
    assert (fault.env_id, fault.kind) == (i, KINDS.get(what, "died"))
    assert fault.operation == operation
    assert fault.seed == 3 + i
    alone = setup in (ASYNCIO, COROUTINES, SERIAL)
    if what == "plain":
        assert "boom" in fault.error
        assert "_look" in fault.traceback
        assert (fault.step, fault.action) == (3, 3)
    elif not alone:
        assert fault.culprit == 1
        assert fault.worker == 0
    assert "\n" not in fault.error
    assert fault.replay == fault.capsule == ""


@pytest.mark.once
@pytest.mark.parametrize("mode", ["same_step"])
@each_case
def test_an_explicit_reset(setup: Setup, what: str, cut: set[int], mode: str, traps: Traps) -> None:
    """It is done again on the new one, and its info tells; then all is as after any reset."""
    story = told(setup, what, traps, "reset", RESET_AT, on_fault="restart", autoreset=mode)
    expected = undisturbed(mode)
    at = RESET_AT + 1
    assert disturbed(story, expected) == dict.fromkeys(cut, at)
    for i in cut:
        observation, info = story[i][at]
        assert observation == [100 * info["draw"], 0, -1]
        _check_reset_fault(info["fault"], i, what)
        assert [row[0][:2] for row in story[i][at + 1 : at + 4]] == [
            [observation[0], k] for k in (1, 2, 3)
        ]
        assert all("fault" not in row[-1] for row in story[i][at + 1 :])


def _check_reset_fault(fault: agym.Fault, i: int, what: str) -> None:
    assert (fault.env_id, fault.kind) == (i, KINDS.get(what, "died"))
    assert fault.operation == "reset"


@pytest.mark.once
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@each_case
def test_an_automatic_reset(
    setup: Setup, what: str, cut: set[int], mode: str, traps: Traps
) -> None:
    """Of the episode that ended within the same step nothing is known: it is cut off before."""
    at = 4 if mode == "same_step" else 5
    story = told(setup, what, traps, "reset", at, on_fault="restart", autoreset=mode)
    expected = undisturbed(mode)
    assert disturbed(story, expected) == dict.fromkeys(cut, at + 1)
    for i in cut:
        _, reward, terminated, truncated, info = story[i][at + 1]
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert "fault" in info
        if mode == "same_step":
            assert info["final_obs"].tolist() == expected[i][at][0]


@pytest.mark.full
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_start_methods(start_method: str, traps: Traps) -> None:
    backend = Process(start_method=start_method)
    options = {"on_fault": "restart", "backend": backend, "autoreset": "next_step"}
    story = told(PROCESS, "segv", traps, "step", 6, **options)
    assert disturbed(story, undisturbed("next_step")) == {0: 7, 1: 7}
    assert fault_of(story[1][7]).exitcode == -11


@each_mode
def test_what_is_the_same_however_often_it_is_run(mode: str, traps: Traps) -> None:
    """Another environment's seed is a function of the old one's and of the number of faults."""
    twice = [
        told(PROCESS, "exit", traps, "step", 2, on_fault="restart", autoreset=mode)
        for _ in range(2)
    ]
    for one, other in zip(*twice, strict=True):
        bare = [
            [{**row[-1], "fault": None, **_plain(row)} for row in story] for story in (one, other)
        ]
        assert bare[0] == bare[1]


def _plain(row: Row) -> dict[str, Any]:
    final = row[-1].get("final_obs")
    return {"row": row[:-1], "final_obs": None if final is None else np.asarray(final).tolist()}


@over(PROCESS, COROUTINES)
@pytest.mark.parametrize("on_fault", ["restart", "replay"])
@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_first_construction(setup: Setup, how: str, on_fault: str, traps: Traps) -> None:
    """It is tried again."""
    traps.set(2, "make", how)
    options = {**setup.options, "on_fault": on_fault, "autoreset": "next_step"}
    with played("sync", trapped(setup, traps), **options) as envs:
        story = play(envs)
        assert [worker.restarts for worker in envs.stats().workers] == [0, 1]
    assert {i: k for i, k in disturbed(story, undisturbed("next_step")).items() if i < 2} == {}
    assert all(
        row[:-1] == other[:-1]
        for row, other in zip(story[2], undisturbed("next_step")[2], strict=True)
    )
