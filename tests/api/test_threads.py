"""The sync API in several threads, on every backend; and the async one on a second event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from agym.core.backends.options import ProcessWithCaller
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Probe, Tally
from tests.support.insides import engine_of
from tests.support.patience import deadline
from tests.support.scripts import run

NUM_ENVS, STEPS = 6, 40

SETUPS: dict[str, dict[str, Any]] = {
    "auto": {"env": Tally},
    "serial": {"env": Tally, "backend": "serial"},
    "thread": {"env": Tally, "backend": "thread"},
    "few threads": {"env": Tally, "backend": "thread", "workers": 2},
    "process": {"env": Tally, "backend": FORK, "workers": 2},
    "fork": {"env": Tally, "backend": FORK, "workers": 3},
    "caller": {"env": Tally, "backend": ProcessWithCaller(start_method="fork"), "workers": 2},
    "asyncio": {"env": AsyncTally, "backend": "asyncio"},
    "loops": {"env": AsyncTally, "backend": FORK, "workers": 2},
    "restart": {"env": Tally, "backend": FORK, "workers": 2, "on_fault": "restart"},
    "timeout": {"env": Tally, "backend": FORK, "workers": 2, "timeout": 600.0},
}
# In the core those whose results come in different ways.
CORE = ("serial", "thread", "fork", "caller")
each_place = pytest.mark.parametrize(
    "setup",
    [pytest.param(setup, marks=() if setup in CORE else pytest.mark.full) for setup in SETUPS],
)


def make(setup: str, **options: Any) -> agym.Envs:
    return agym.make(num_envs=NUM_ENVS, **{"autoreset": "next_step", **SETUPS[setup], **options})


def play(env: agym.EnvHandle[Any, int], steps: int = STEPS) -> list[Any]:
    """Everything that is seen of one environment, whose actions tell it from all others."""
    seen: list[Any] = [list(env.reset(seed=env.index)[0])]
    for k in range(steps):
        observation, reward, terminated, truncated, info = env.step((env.index + k) % 10)
        seen.append((list(observation), reward, terminated, truncated, info.get("action")))
        if k % 10 == 3:
            seen.append((env.call("add", env.index), env.render()))
    return seen


def in_threads(work: Callable[[agym.EnvHandle[Any, int]], Any], envs: agym.Envs) -> list[Any]:
    """Call a function for each environment at the same time; return the results."""
    with ThreadPoolExecutor(len(envs)) as pool:
        return [*pool.map(work, envs)]


def expected() -> list[Any]:
    with make("serial") as envs:
        return [play(env) for env in envs]


@each_place
def test_handles_in_threads(setup: str) -> None:
    with make(setup) as envs:
        assert in_threads(play, envs) == expected()
        assert len(envs.step([0] * NUM_ENVS).rewards) == NUM_ENVS


@each_place
def test_groups_in_threads(setup: str) -> None:
    def play_group(group: agym.Envs) -> list[list[float]]:
        group.reset(seed=0)
        seen = []
        for k in range(STEPS):
            result = group.step([k % 10] * len(group))
            seen.append([row[2] for row in result.observations])
        return seen

    env = partial(type_of(setup), length=1000)
    with make(setup, autoreset="disabled", env=env) as envs, ThreadPoolExecutor(2) as pool:
        for seen in pool.map(play_group, envs.split(2)):
            assert seen == [[k % 10] * 3 for k in range(STEPS)]


def type_of(setup: str) -> Callable[..., Any]:
    env: Callable[..., Any] = SETUPS[setup]["env"]
    return env if env is Tally else partial(AsyncTally, Tally)


@each_place
def test_send_and_recv_in_threads(setup: str) -> None:
    """What is received in one thread may have been sent in another, and nothing is lost."""
    with make(setup) as envs:
        envs.reset(seed=0)
        received: list[int] = []
        lock = threading.Lock()

        def work(own: list[int]) -> None:
            envs.send([1] * len(own), env_ids=own)
            for batch in envs.as_completed():
                with lock:
                    received.extend(batch.env_ids)

        for _ in range(5):
            with ThreadPoolExecutor(3) as pool:
                calls = [pool.submit(work, ids) for ids in ([0, 1], [2, 3], [4, 5])]
            for call in calls:
                call.result()
        assert sorted(received) == sorted(list(range(NUM_ENVS)) * 5)


@each_place
def test_everything_at_once(setup: str) -> None:
    """Threads that step, render, ask and read statistics; each gets its own answers."""
    with make(setup) as envs:
        envs.reset(seed=0)

        def step(index: int) -> None:
            for k in range(STEPS):
                action = (index + k) % 10
                observation, *_ = envs[index].step(action)
                assert observation[2] in (action, -1)

        def ask() -> None:
            for k in range(STEPS):
                assert envs.call("add", k) == [9.8 + k] * NUM_ENVS

        def look() -> None:
            for _ in range(STEPS):
                assert len(envs.render()) == NUM_ENVS
                assert len(envs.stats().envs) == NUM_ENVS

        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(step, index) for index in range(NUM_ENVS)]
            calls += [pool.submit(ask), pool.submit(look)]
        for call in calls:
            call.result()


@pytest.mark.parametrize("other", ["whole", "handle", "send"])
@pytest.mark.parametrize("first", ["whole", "handle"])
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_two_threads_want_the_same(backend: str, first: str, other: str, gates: Gates) -> None:
    workers = None if backend == "serial" else 3
    with agym.make(gates.factories, backend=backend, workers=workers) as envs:
        envs.reset()

        def step() -> Any:
            return envs.step([1, 0, 0]) if first == "whole" else envs[0].step(1)

        def try_to_step() -> None:
            if other == "whole":
                envs.step([0, 0, 0])
            elif other == "handle":
                envs[0].step(0)
            else:
                envs.send([0], env_ids=[0])

        with ThreadPoolExecutor(1) as pool:
            call: Future[Any] = pool.submit(step)
            with (
                Path(gates.paths[0]).open("w"),  # it stands there
                pytest.raises(agym.BusyError, match="environment 0"),
            ):
                try_to_step()
            assert call.result()
        assert len(envs.step([0, 0, 0]).rewards) == 3


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize("library", ["gymnasium", "sb3"])
def test_two_threads_step_a_vector_environment(library: str, backend: str, gates: Gates) -> None:
    """The second is told, and does not wait for the first."""
    if library == "sb3":
        pytest.importorskip("stable_baselines3")
    kind = agym.AgymVectorEnv if library == "gymnasium" else agym.sb3.AgymVecEnv
    envs: Any = kind(gates.factories, backend=backend)
    with contextlib.closing(envs), ThreadPoolExecutor(1) as pool:
        envs.reset()
        actions = np.array([1, 0, 0])
        call = pool.submit(envs.step, actions)
        with Path(gates.paths[0]).open("w"), pytest.raises(agym.BusyError, match="environment 0"):
            envs.step(actions)
        assert len(call.result()[1]) == 3
        assert len(envs.step(np.zeros(3, int))[1]) == 3


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_close_while_another_thread_waits(backend: str, gates: Gates) -> None:
    envs = agym.make(gates.factories, backend=backend, workers=3)
    envs.reset()
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(envs[i].step, 1) for i in (0, 1)]
        with Path(gates.paths[0]).open("w"), Path(gates.paths[1]).open("w"):
            closing = pool.submit(envs.close)
            for call in calls:
                assert isinstance(call.exception(), agym.ClosedError)
        closing.result()


@each_place
def test_closed_in_two_threads(setup: str) -> None:
    envs = make(setup)
    envs.reset()
    with ThreadPoolExecutor(4) as pool:
        for call in [pool.submit(envs.close) for _ in range(4)]:
            call.result()


def test_one_that_fails_stops_no_other() -> None:
    def work(env: agym.EnvHandle[Any, int]) -> Any:
        if env.index == 2:
            env.step("north")  # type: ignore[arg-type]
        return play(env)

    with make("process") as envs:
        envs.reset()
        with pytest.raises(agym.UsageError):
            in_threads(work, envs)
        assert len(envs.step([0] * NUM_ENVS).rewards) == NUM_ENVS


@pytest.mark.full
def test_a_deadline_of_one_thread_is_no_others(gates: Gates) -> None:
    with agym.make(gates.factories, backend=FORK, workers=3, timeout=deadline(0.5)) as envs:
        envs.reset()
        with ThreadPoolExecutor(2) as pool:
            late = pool.submit(envs[0].step, 1)
            for _ in range(20):
                assert envs[1].step(0)
            assert isinstance(late.exception(), agym.StepTimeout)


def test_a_worker_that_dies_while_threads_play() -> None:
    with make("restart", env=Probe) as envs:
        envs.reset()

        def work(env: agym.EnvHandle[Any, int]) -> int:
            faults = 0
            for k in range(STEPS):
                if env.index == 0 and k == 10:
                    os.kill(env.call("pid"), 9)
                faults += "fault" in env.step(0)[4]
            return faults

        faults = in_threads(work, envs)
        assert faults[0] == 1
        assert sum(faults) <= NUM_ENVS


@pytest.mark.full
def test_forked_while_another_thread_waits(tmp_path: Path) -> None:
    code, out, err = run(
        tmp_path,
        """
        import os, threading, warnings
        import agym
        from tests.support.envs.plain_envs import Tally

        warnings.simplefilter("ignore", DeprecationWarning)  # of forks in programs with threads
        envs = agym.make(Tally, 2, backend="process", autoreset="next_step")
        envs.reset()
        stop = threading.Event()

        def play():
            while not stop.is_set():
                envs[0].step(1)

        player = threading.Thread(target=play)
        player.start()
        for _ in range(10):
            child = os.fork()
            if not child:
                try:
                    envs[1].step(1)
                except agym.ClosedError:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        stop.set()
        player.join()
        envs.close()
        print("done")
        """,
    )
    assert (code, out, err) == (0, "done\n", "")


# ------------------------------------------------------------------ event loops

ASYNC_SETUPS = {
    "serial": {"env": Tally, "backend": "serial"},
    "thread": {"env": Tally, "backend": "thread"},
    "process": {"env": Tally, "backend": FORK, "workers": 2},
    "asyncio": {"env": AsyncTally, "backend": "asyncio"},
}

USES: dict[str, Callable[[agym.AsyncEnvs], Any]] = {
    "reset": lambda envs: envs.reset(),
    "step": lambda envs: envs.step([0, 0]),
    "send": lambda envs: envs.send([0, 0]),
    "recv": lambda envs: envs.recv(),
    "render": lambda envs: envs.render(),
    "call": lambda envs: envs.call("add", 1),
    "get_attr": lambda envs: envs.get_attr("gravity"),
    "set_attr": lambda envs: envs.set_attr("gravity", 1),
    "restart": lambda envs: envs.restart(),
    "handle.reset": lambda envs: envs[0].reset(),
    "handle.step": lambda envs: envs[0].step(0),
    "handle.render": lambda envs: envs[0].render(),
    "handle.close": lambda envs: envs[0].close(),
    "await": lambda envs: envs,
    "aclose": lambda envs: envs.aclose(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("setup", ASYNC_SETUPS)
async def test_a_second_event_loop(setup: str, use: str) -> None:
    async def second(envs: agym.AsyncEnvs) -> None:
        pending = USES[use](envs)
        if pending is not None:
            await pending

    async with agym.make_async(num_envs=2, **ASYNC_SETUPS[setup]) as envs:  # type: ignore[arg-type]
        await envs.reset()
        with pytest.raises(agym.UsageError, match="another event loop: make"):
            await asyncio.to_thread(asyncio.run, second(envs))
        with pytest.raises(agym.UsageError, match="another thread"):
            await asyncio.to_thread(envs.step, [0, 0])
        await envs.step([0, 0])


@pytest.mark.parametrize("setup", ASYNC_SETUPS)
def test_one_event_loop_after_the_other(setup: str) -> None:
    """What was opened on a loop that is closed may be used on the next."""
    envs = agym.make_async(num_envs=2, **ASYNC_SETUPS[setup])  # type: ignore[arg-type]

    async def begin() -> None:
        await envs
        await envs.reset()

    async def go_on() -> None:
        await envs.step([0, 0])
        await envs.aclose()

    asyncio.run(begin())
    asyncio.run(go_on())


def test_who_plays_in_a_thread_may_close() -> None:
    with make("process") as envs:
        envs.reset()

        def work(env: agym.EnvHandle[Any, int]) -> None:
            env.step(0)
            envs.close()

        with contextlib.suppress(agym.ClosedError):  # none if the first to close is the last
            in_threads(work, envs)
        assert engine_of(envs).life.closed
