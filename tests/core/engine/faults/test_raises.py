"""An environment that raises is made anew by itself, whatever it raises and wherever."""

from __future__ import annotations

from typing import Any

import pytest

import agym
from tests.support.drivers import Setup, each_mode, everywhere, played
from tests.support.envs.faulty_envs import ABRUPT, EXCEPTIONS
from tests.support.envs.trapped_envs import Traps
from tests.support.scenarios import (
    ASYNCIO,
    COROUTINES,
    PROCESS,
    SERIAL,
    THREAD,
    disturbed,
    over,
    play,
    trapped,
    undisturbed,
)

all_places = over(PROCESS, COROUTINES, THREAD, ASYNCIO, SERIAL)


@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize(
    ("setup", "what"),
    [
        *((setup, what) for setup in (PROCESS, ASYNCIO) for what in [*EXCEPTIONS, *ABRUPT]),
        *((setup, "system-exit") for setup in (COROUTINES, THREAD)),
        (SERIAL, "stop-iteration"),
    ],
)
def test_whatever_it_raises(setup: Setup, what: str, where: str, traps: Traps) -> None:
    options = {**setup.options, "on_fault": "restart", "autoreset": "next_step"}
    at = 5 if where == "reset" else 6
    with played("sync", trapped(setup, traps), **options) as envs:
        pids = envs.call("pid")
        told = play(envs, lambda k: traps.set(1, where, what) if k == at else None)
        assert envs.call("pid") == pids
        assert [env.faults for env in envs.stats().envs] == [0, 1, 0, 0]
    assert disturbed(told, undisturbed("next_step")) == {1: at + 1}
    fault = told[1][at + 1][-1]["fault"]
    name = type({**EXCEPTIONS, **ABRUPT}[what]()).__name__
    assert (fault.kind, fault.operation) == ("raised", where)
    assert name in fault.error
    assert name in fault.traceback
    assert "agym/hosts" not in fault.traceback
    assert (fault.pid, fault.exitcode, fault.replay) == (None, None, "")


@all_places
def test_episodes_are_counted_on(setup: Setup, traps: Traps) -> None:
    options = {**setup.options, "on_fault": "restart", "autoreset": "next_step"}
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=1)
        numbers = []
        for _ in range(3):
            traps.set(1, "step", "plain")
            infos = envs.step([0] * 4).infos
            numbers.append(infos[1]["fault"].episode)
            envs.step([0] * 4)  # resets it
    assert numbers == [1, 2, 3]


@everywhere
@each_mode
def test_all_of_them_at_once(setup: Setup, mode: str, traps: Traps) -> None:
    factories = trapped(setup, traps)
    if setup.name in ("asyncio", "process-coroutines"):
        factories = traps.factories(4, coroutines=True)
    options = {**setup.options, "on_fault": "replay", "autoreset": mode}
    with played("sync", factories, **options) as envs:
        envs.reset(seed=1)
        for i in range(4):
            traps.set(i, "step", "plain")
        result = envs.step([1] * 4)
        assert [info["fault"].env_id for info in result.infos] == [0, 1, 2, 3]
        assert result.truncated.all()
        envs.reset()
        assert envs.step([1] * 4).observations[:, 1].tolist() == [1] * 4


@pytest.mark.parametrize("times", [1, 2])
@each_mode
@all_places
def test_the_next_one_cannot_be_made_at_first(
    setup: Setup, mode: str, times: int, traps: Traps
) -> None:
    """It is tried again; the step is not done by the old one."""
    what = "plain"
    options = {**setup.options, "on_fault": "restart", "autoreset": mode}
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        envs.step([1] * 4)
        for k in range(times):
            traps.set(1, "make" if k == 0 else "reset", what)
        traps.set(1, "step", what)
        result = envs.step([2] * 4)
        assert (float(result.rewards[1]), bool(result.truncated[1])) == (0.0, True)
        assert result.infos[1]["fault"].kind == "raised"
        last = result.infos[1]["final_obs"] if mode == "same_step" else result.observations[1]
        assert last[1:].tolist() == [1, 1]
        assert result.observations[[0, 2, 3], 1].tolist() == [2, 2, 2]
        envs.reset()
        assert envs.step([3] * 4).observations[:, 1].tolist() == [1] * 4


@pytest.mark.parametrize("on_fault", ["restart", "replay"])
@all_places
def test_it_can_never_be_made_again(setup: Setup, on_fault: str, traps: Traps) -> None:
    """It is given up, and the others go on; restart() brings it back when it can be made."""
    policy = agym.FaultPolicy(on_fault, max_restarts=4)
    options = {**setup.options, "on_fault": policy, "autoreset": "next_step"}
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        traps.set(1, "make", "plain", always=True)
        traps.set(1, "step", "plain")
        with pytest.raises(agym.CrashLoopError, match="given up after 5 failures") as caught:
            envs.step([1] * 4)
        assert caught.value.env_ids == (1,)
        assert [fault.operation for fault in caught.value.faults] == ["step", *["make"] * 4]
        with pytest.raises(agym.CrashLoopError):
            envs.step([0] * 4)
        result = envs.step([4, 5, 6], env_ids=[0, 2, 3])
        assert result.observations[:, 1].tolist() == [2, 2, 2]
        with pytest.raises(agym.AgymError):
            envs.restart()
        traps.clear(1, "make")
        assert envs.restart() == [1]
        envs.reset(env_ids=[1])
        assert envs.step([0] * 4).observations[:, 1].tolist() == [3, 1, 3, 3]


@pytest.mark.parametrize("what", ["plain", "unpicklable"])
@all_places
def test_the_old_one_cannot_be_closed(setup: Setup, what: str, traps: Traps) -> None:
    replace_one_whose_close_raises(setup, what, traps)


@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
def test_the_old_one_exits_when_it_is_closed(setup: Setup, traps: Traps) -> None:
    """In the caller's own thread that is the program's end."""
    replace_one_whose_close_raises(setup, "system-exit", traps)


def replace_one_whose_close_raises(setup: Setup, what: str, traps: Traps) -> None:
    options = {**setup.options, "on_fault": "restart", "autoreset": "next_step"}
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        traps.set(1, "step", "plain")
        traps.set(1, "close", what)
        result = envs.step([1] * 4)
        assert result.truncated.tolist() == [False, True, False, False]
        assert envs.step([1] * 4).observations[:, 1].tolist() == [2, 0, 2, 2]
    assert not traps.is_set(1, "close")


@all_places
def test_a_crash_loop_of_one_environment(setup: Setup, traps: Traps) -> None:
    policy = agym.FaultPolicy("restart", max_restarts=2)
    options = {**setup.options, "on_fault": policy, "autoreset": "same_step"}
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        traps.set(1, "step", "plain", always=True)
        told: list[Any] = [envs.step([1] * 4).infos[1]["fault"] for _ in range(2)]
        with pytest.raises(agym.CrashLoopError, match=r"environment 1 .*3 failures") as caught:
            envs.step([1] * 4)
        assert [fault.kind for fault in caught.value.faults] == ["raised"] * 3
        assert [fault.kind for fault in told] == ["raised"] * 2
        traps.clear(1, "step")
        assert envs.restart() == [1]
        with pytest.raises(agym.ResetNeededError):
            envs.step([1] * 4)
        envs.reset(env_ids=[1])
        assert envs.step([1] * 4).observations[:, 1].tolist() == [4, 1, 4, 4]
