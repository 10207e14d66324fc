"""An environment with plain methods may use asyncio in them, wherever it lives."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.backends import Process
from agym.core.backends.options import ProcessWithCaller
from tests.support.backends import FORK
from tests.support.drivers import APIS, played
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.looping_envs import (
    WAYS,
    CurrentLoop,
    KeepsLoop,
    Looping,
    Spawning,
    WantsLoop,
)
from tests.support.envs.plain_envs import Tally
from tests.support.patience import patience
from tests.support.scripts import run

IN_WORKERS: dict[str, dict[str, Any]] = {
    "spawn": {"backend": "process", "workers": 2},
    "forkserver": {"backend": Process(start_method="forkserver"), "workers": 2},
    "fork": {"backend": FORK, "workers": 2},
}
SETUPS: dict[str, dict[str, Any]] = {
    "auto": {},
    "caller": {"backend": ProcessWithCaller(start_method="fork"), "workers": 2},
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    **IN_WORKERS,
}
ENVS: dict[str, Any] = {way: partial(Looping, way) for way in WAYS}
ENVS |= {"keeps a loop": KeepsLoop, "starts a program": Spawning}
# In the main thread of a worker, there is a current loop, on which coroutine environments are made.
WORKER_ENVS: dict[str, Any] = {
    "current loop": CurrentLoop,
    "coroutines": WantsLoop,
    "factory of coroutines": lambda: WantsLoop(),
}
CASES = [(setup, env) for setup in SETUPS for env in ENVS]
CASES += [(setup, env) for setup in IN_WORKERS for env in WORKER_ENVS]

# Steps of a Tally of length 3 in three environments, through the end of an episode.
ACTIONS = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0], [1, 1, 1]]


def play(envs: Any) -> list[Any]:
    results = [envs.reset(seed=7), *(envs.step(actions) for actions in ACTIONS)]
    return [result.observations.tolist() for result in results]


def expected(mode: str) -> list[Any]:
    with played("sync", Tally, 3, backend="serial", autoreset=mode) as envs:
        return play(envs)


@pytest.mark.once
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("setup", "env"), CASES)
def test_results_are_those_without_asyncio(
    setup: str, env: str, api: str, mode: str, fork_server: None, capfd: pytest.CaptureFixture[str]
) -> None:
    factory = {**ENVS, **WORKER_ENVS}[env]
    with played(api, factory, 3, autoreset=mode, **SETUPS[setup]) as envs:
        assert play(envs) == expected(mode)
        if env in WAYS:
            assert envs.call("ask", 5) == [5, 5, 5]
            assert len(envs.render()) == 3
        envs.send([1, 1, 1])
        assert len(envs.recv(min_envs=3).env_ids) == 3
        envs.restart([0, 1, 2])
        assert play(envs) == expected(mode)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("setup", ["serial", "thread"])
async def test_the_sync_api_inside_a_running_loop(setup: str) -> None:
    with played("sync", Looping, 3, autoreset="next_step", **SETUPS[setup]) as envs:
        assert play(envs) == expected("next_step")
    assert asyncio.get_running_loop().is_running()


class Breaks(Looping):
    """Raises within a loop of its own."""

    def __init__(self, where: str) -> None:
        self.breaks = where
        super().__init__()
        self._fail_in("make")

    def _fail_in(self, where: str) -> None:
        async def fail() -> None:
            raise LookupError("broke")

        if where == self.breaks:
            asyncio.run(fail())

    def step(self, action: Any) -> Any:
        self._fail_in("step")
        return super().step(action)


@pytest.mark.once
@pytest.mark.parametrize("where", ["make", "step", "nowhere"])
@pytest.mark.parametrize("setup", ["serial", "spawn"])
async def test_the_callers_loop_is_as_it_was(setup: str, where: str) -> None:
    """Also after an environment raised in a loop of its own."""

    async def play() -> None:
        async with agym.make_async(partial(Breaks, where), 1, **SETUPS[setup]) as envs:
            await envs.reset()
            await envs.step([0])
            raise LookupError("broke")

    with pytest.raises((agym.EnvError, LookupError), match="broke"):
        await play()
    task = asyncio.current_task()
    turn = asyncio.create_task(asyncio.sleep(0, task))
    assert await asyncio.wait_for(turn, patience()) is task


class AtFault(AsyncTally):
    def __init__(self) -> None:
        asyncio.get_running_loop()
        raise LookupError("at fault")


class RunningLoop(Tally):
    def __init__(self, *_: Any) -> None:
        self.seen = [asyncio._get_running_loop()]
        super().__init__()

    def running(self) -> list[Any]:
        return [*self.seen, asyncio._get_running_loop()]


@pytest.mark.full
def test_a_loop_runs_only_while_a_coroutine_environment_is_made(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(agym.EnvError, match="at fault"):
        agym.make(AtFault, 1, backend="process")
    with pytest.raises(agym.EnvError, match="no running event loop"):
        agym.make(lambda: RunningLoop(asyncio.get_running_loop()), 1, backend="process")
    with agym.make(RunningLoop, 2, backend="process") as envs:
        assert envs.call("running") == [[None] * 2] * 2
    assert capfd.readouterr().err == ""


def test_ctrl_c_inside_a_loop_of_an_environment(tmp_path: Path) -> None:
    """It ends the program as ever: the caller's loop is told of it."""
    code, out, err = run(
        tmp_path,
        """
        import asyncio, os, signal
        import agym
        from tests.support.envs.plain_envs import Tally

        class Interrupted(Tally):
            def step(self, action):
                return asyncio.run(self.work(action))

            async def work(self, action):
                os.kill(os.getpid(), signal.SIGINT)
                return super().step(action)

        async def main():
            async with agym.make_async(Interrupted, 1, backend="serial") as envs:
                await envs.reset()
                while True:
                    await envs.step([0])

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """,
    )
    assert (code, out, err) == (0, "interrupted\n", "")
