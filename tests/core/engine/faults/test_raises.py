"""An environment that raises is made anew by itself, whatever it raises and wherever."""

from __future__ import annotations

import pytest

from tests.support.drivers import Setup, played
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


@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
def test_an_environment_whose_close_exits_is_replaced(setup: Setup, traps: Traps) -> None:
    """In the caller's own thread, the exit is the program's end."""
    options = {**setup.options, "on_fault": "restart", "autoreset": "next_step"}
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        traps.set(1, "step", "plain")
        traps.set(1, "close", "system-exit")
        result = envs.step([1] * 4)
        assert result.truncated.tolist() == [False, True, False, False]
        assert envs.step([1] * 4).observations[:, 1].tolist() == [2, 0, 2, 2]
    assert not traps.is_set(1, "close")
