"""An environment with plain methods may use asyncio in them, wherever it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.backends import Process
from tests.support.backends import FORK
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

SETUPS: dict[str, dict[str, Any]] = {
    "auto": {},
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    "spawn": {"backend": "process", "workers": 2},
    "forkserver": {"backend": Process(start_method="forkserver"), "workers": 2},
    "fork": {"backend": FORK, "workers": 2},
}
each_place = pytest.mark.parametrize("setup", SETUPS)
each_way = pytest.mark.parametrize("way", WAYS)

# Steps of a Tally of length 3 in three environments, through the end of an episode.
ACTIONS = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0], [1, 1, 1]]


def expected(mode: str = "next_step") -> list[Any]:
    with agym.make(Tally, 3, backend="serial", autoreset=mode) as envs:
        return play(envs)


def play(envs: agym.Envs) -> list[Any]:
    results = [envs.reset(seed=7), *(envs.step(actions) for actions in ACTIONS)]
    return [[list(row) for row in result.observations] for result in results]


async def play_async(envs: agym.AsyncEnvs) -> list[Any]:
    results: list[Any] = [await envs.reset(seed=7)]
    results += [await envs.step(actions) for actions in ACTIONS]
    return [[list(row) for row in result.observations] for result in results]


@pytest.mark.once
@each_way
@each_place
def test_a_script(setup: str, way: str, fork_server: None) -> None:
    with agym.make(partial(Looping, way), 3, autoreset="next_step", **SETUPS[setup]) as envs:
        assert play(envs) == expected()
        assert envs.call("ask", 5) == [5, 5, 5]
        assert len(envs.render()) == 3
        assert envs.step([0], env_ids=[1]).rewards  # some, which takes another way
        envs.send([1, 1, 1])
        assert len(envs.recv(min_envs=3).env_ids) == 3


@pytest.mark.once
@each_place
@pytest.mark.parametrize("way", ["run", "own"])
async def test_a_coroutine(setup: str, way: str, fork_server: None) -> None:
    async with agym.make_async(partial(Looping, way), 3, output="list", **SETUPS[setup]) as envs:
        assert await play_async(envs) == expected()
        assert await envs.call("ask", 5) == [5, 5, 5]
        assert len(await envs.render()) == 3
        assert (await envs[1].step(0))[1]
        # The caller's own loop is as it was.
        task = asyncio.current_task()
        assert task is not None
        turn = asyncio.create_task(asyncio.sleep(0, task))
        assert await asyncio.wait_for(turn, patience()) is task


@pytest.mark.once
@each_place
async def test_the_sync_api_inside_a_running_loop(setup: str, fork_server: None) -> None:
    with agym.make(Looping, 3, autoreset="next_step", **SETUPS[setup]) as envs:
        assert play(envs) == expected()
    assert asyncio.get_running_loop().is_running()


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
@pytest.mark.parametrize("setup", ["serial", "spawn"])
async def test_autoreset(setup: str, mode: str) -> None:
    async with agym.make_async(Looping, 3, output="list", autoreset=mode, **SETUPS[setup]) as envs:
        assert await play_async(envs) == expected(mode)


@pytest.mark.once
@each_place
@pytest.mark.parametrize("env", [KeepsLoop, Spawning])
def test_other_ways(setup: str, env: type[Tally], fork_server: None) -> None:
    with agym.make(env, 3, autoreset="next_step", **SETUPS[setup]) as envs:
        assert play(envs) == expected()


@pytest.mark.once
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_the_current_loop_of_a_worker(method: str, fork_server: None) -> None:
    with agym.make(
        CurrentLoop,
        3,
        autoreset="next_step",
        backend=Process(start_method=method),
        workers=2,
    ) as envs:
        assert play(envs) == expected()


@pytest.mark.parametrize("setup", ["serial", "thread", "spawn"])
def test_gymnasiums_api(setup: str) -> None:
    envs = agym.make_vec(Looping, 3, **SETUPS[setup])
    try:
        observations, _ = envs.reset(seed=7)
        seen: list[Any] = [observations.tolist()]
        seen += [envs.step(actions)[0].tolist() for actions in ACTIONS]
        assert seen == [[list(row) for row in batch] for batch in expected()]
    finally:
        envs.close()


@pytest.mark.once
@pytest.mark.parametrize("setup", ["thread", "spawn", "forkserver", "fork"])
def test_what_is_made_again(setup: str, fork_server: None) -> None:
    with agym.make(Looping, 3, on_fault="restart", **SETUPS[setup]) as envs:
        envs.reset(seed=0)
        envs.restart([0, 1, 2])
        envs.reset(seed=1)
        assert len(envs.step([1, 2, 3]).rewards) == 3


@pytest.mark.once
@pytest.mark.parametrize("where", ["make", "reset", "step"])
@pytest.mark.parametrize("setup", ["serial", "spawn"])
async def test_what_is_raised_inside(setup: str, where: str) -> None:
    """The caller's loop is there again, whatever an environment raised."""

    async def play() -> None:
        async with agym.make_async(partial(Breaks, where), 2, **SETUPS[setup]) as envs:
            await envs.reset()
            await envs.step([0, 0])

    with pytest.raises((agym.EnvError, ExceptionGroup)) as caught:
        await play()
    assert "broke" in repr(caught.value)
    assert await asyncio.create_task(asyncio.sleep(0, "fine")) == "fine"


class Breaks(Looping):
    """Raises within a loop of its own."""

    def __init__(self, where: str) -> None:
        self.where = "make"
        self.breaks = where
        super().__init__()

    def _fail_in(self, where: str) -> None:
        async def fail() -> None:
            raise LookupError("broke")

        if where == self.breaks:
            asyncio.run(fail())

    def reset(self, **keywords: Any) -> Any:
        self._fail_in("make")
        self._fail_in("reset")
        return super().reset(**keywords)

    def step(self, action: Any) -> Any:
        self._fail_in("step")
        return super().step(action)


@pytest.mark.once
@pytest.mark.parametrize("kind", ["class", "factory"])
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_constructors_of_coroutine_environments(
    kind: str, method: str, fork_server: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """They still find the loop that the environment is to live on, and nothing is said about it."""
    env: Callable[[], Any] = WantsLoop if kind == "class" else lambda: WantsLoop()
    with agym.make(
        env,
        3,
        autoreset="next_step",
        backend=Process(start_method=method),
        workers=2,
    ) as envs:
        assert play(envs) == expected()
    assert capfd.readouterr().err == ""


def test_a_constructor_that_is_at_fault(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(agym.EnvError, match="at fault"):
        agym.make(AtFault, 1, backend="process")
    with pytest.raises(agym.EnvError, match="no running event loop"):
        agym.make(lambda: Plain(asyncio.get_running_loop()), 1, backend="process")
    assert capfd.readouterr().err == ""


class AtFault(AsyncTally):
    def __init__(self) -> None:
        asyncio.get_running_loop()
        raise LookupError("at fault")


class Plain(Tally):
    def __init__(self, loop: Any) -> None:
        super().__init__()


def test_no_loop_runs_in_a_worker() -> None:
    with agym.make(RunningLoop, 2, backend="process") as envs:
        assert envs.call("running") == [[None] * 2] * 2


class RunningLoop(Tally):
    def __init__(self) -> None:
        self.seen = [asyncio._get_running_loop()]
        super().__init__()

    def running(self) -> list[Any]:
        return [*self.seen, asyncio._get_running_loop()]


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
