"""Coroutine environments on the caller's loop, on a private one, and in workers."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from agym.core.engine import life
from agym.testing import Script, World
from tests.support.backends import FORK, with_own
from tests.support.drivers import APIS, opened
from tests.support.envs.coroutine_envs import AsyncTally, CancelsItself, Gives, Parrot
from tests.support.envs.costly_envs import Recorded
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Result, Tally
from tests.support.equality import same
from tests.support.patience import deadline, patience

FORKED = {"backend": FORK}
SETUPS = [
    pytest.param({"backend": "asyncio"}, id="asyncio"),
    pytest.param({**FORKED, "workers": 2}, id="process"),
]
everywhere = pytest.mark.parametrize("setup", SETUPS)

OBJECTS: list[Any] = [
    "text",
    "",
    {"role": "user", "parts": [1, 2.5, None, {"deep": ("tuple", b"bytes")}]},
    ["a", ["b"]],
    ("a", 1),
    np.arange(6).reshape(2, 3),
    None,
    3,
    float("inf"),
    {1, 2},
    partial(int, "7"),
]


# ---------------------------------------------------------------- observations and actions


@everywhere
@pytest.mark.parametrize("thing", OBJECTS, ids=[type(thing).__name__ for thing in OBJECTS])
def test_observations_and_actions_may_be_any_objects(setup: dict[str, Any], thing: Any) -> None:
    with agym.make(partial(Parrot, thing), 3, **setup) as envs:
        observations, _ = envs.reset()
        result = envs.step([thing, "other", thing])
        envs.send([thing, "third"], [2, 0])
        batch = envs.recv(min_envs=2)
        by_id = dict(zip(batch.env_ids, batch.observations, strict=True))
        for got in (*observations, result.observations[0], result.infos[0]["heard"], by_id[2]):
            if isinstance(thing, partial):
                assert got() == 7
            else:
                assert same(got, thing)
        assert (result.observations[1], by_id[0]) == ("other", "third")
        assert result.rewards == [0.5] * 3


async def test_observations_may_be_objects_that_cannot_be_copied() -> None:
    """An environment on the caller's loop may observe a page, a connection, a lock."""
    lock = threading.Lock()
    async with agym.make_async(partial(Parrot, lock), 2, backend="asyncio") as envs:
        observations, _ = await envs.reset()
        assert [*observations] == [lock, lock]


@everywhere
async def test_spaces_render_and_close_are_optional(setup: dict[str, Any]) -> None:
    """Coroutine methods and plain methods can be called."""
    async with agym.make_async(Parrot, 2, **setup) as envs:
        await envs.reset()
        await envs.step(["a", "b"])
        assert await envs.call("recall") == [["a"], ["b"]]
        assert await envs.call("count", more=2) == [3, 3]
        assert await envs[1].call("recall") == ["b"]
        assert await envs.get_attr("heard") == [["a"], ["b"]]
        await envs.set_attr("first", ["x", "y"])
        assert [*(await envs.reset()).observations] == ["x", "y"]
        with pytest.raises(agym.UsageError, match="sample"):
            envs.action_space.sample()
        with pytest.raises(agym.EnvError, match="environment 1 raised in render: AttributeError"):
            await envs[1].render()
        assert [*(await envs.step(["c", "d"])).observations] == ["c", "d"]


# ---------------------------------------------------------------- backends and loops


@pytest.mark.parametrize(
    ("env", "backend", "advice"),
    [(Parrot, "serial", "asyncio"), (Parrot, "thread", "process"), (Tally, "asyncio", "thread")],
)
def test_a_backend_refuses_the_other_kind_of_environment(
    env: Any, backend: str, advice: str
) -> None:
    with pytest.raises(agym.UsageError, match=f"{env.__name__}.*backend='{advice}'"):
        agym.make(env, 2, backend=backend)


class Where(Recorded):
    """Notes on which loop and in which thread it was made, reset, stepped, rendered and closed."""

    def __init__(self, places: list[tuple[str, int, int]]) -> None:
        self.places = places
        super().__init__()

    def _log(self, what: str) -> None:
        self.places.append((what, id(asyncio.get_running_loop()), threading.get_ident()))

    def render(self) -> Any:
        self._log("render")
        return super().render()


async def test_each_environment_stays_on_one_loop() -> None:
    """That is the caller's loop, or with the sync API a private loop in a thread of its own."""
    calls = [what for what in ("made", "reset", "step", "render", "closed") for _ in range(2)]
    here = id(asyncio.get_running_loop()), threading.get_ident()
    places: list[tuple[str, int, int]] = []
    env = partial(AsyncTally, Where, places)
    async with agym.make_async(env, 2, backend="asyncio") as envs:
        await envs.reset()
        await envs.step([0, 0])
        await envs.render()
    assert places == [(what, *here) for what in calls]
    places.clear()
    with agym.make(env, 2, backend="asyncio") as sync_envs:
        sync_envs.reset()
        sync_envs.step([0, 0])
        sync_envs.render()
    assert [what for what, *_ in places] == calls
    ((loop, thread),) = {(loop, thread) for _, loop, thread in places}
    assert loop != here[0]
    assert thread != here[1]


# ---------------------------------------------------------------- errors


@everywhere
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("env", "error"),
    [
        (partial(AsyncTally, Raises, "step", "abrupt"), "Abrupt"),
        *((env, "CancelledError") for env in (Gives, CancelsItself)),
    ],
)
def test_an_abrupt_end_is_an_error_of_its_environment(
    setup: dict[str, Any], api: str, env: Any, error: str
) -> None:
    """A base exception or a cancellation ends neither the event loop nor the worker."""
    factories = [AsyncTally, env, AsyncTally]
    with opened(api, factories, **setup, timeout=patience()) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match=f"environment 1 raised in step: {error}"):
            envs.step([0, 9, 0])
        envs.reset(env_ids=[1])
        assert [row[1] for row in envs.step([5, 6, 7]).observations] == [2, 1, 2]


# ---------------------------------------------------------------- concurrency and closing


@everywhere
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_concurrency_is_limited(setup: dict[str, Any], limit: int | None) -> None:
    options = {**with_own(setup, max_concurrency=limit), "workers": 1}

    class Busy(AsyncTally):
        """Counts how many of its kind are in a step, also in a worker, which gets this class."""

        now = most = 0

        async def step(self, action: Any) -> Result:
            Busy.now += 1
            Busy.most = max(Busy.now, Busy.most)
            for _ in range(5):
                await asyncio.sleep(0)
            Busy.now -= 1
            return await super().step(action)

    with agym.make(partial(Busy, length=9), 6, **options) as envs:
        envs.reset()
        for k in range(3):
            result = envs.step([k] * 6)
            assert [o[1] for o in result.observations] == [k + 1] * 6
        assert set(envs.get_attr("most")) == {limit or 6}


def test_environments_of_one_worker_wait_at_the_same_time() -> None:
    with World(FORK, kind="coroutine", workers=1).open(3) as envs:
        envs.reset()
        for i in (0, 1):
            envs.script.set(i, "step", "wait")
        envs.send([1, 1, 1])
        assert envs.recv().env_ids.tolist() == [2]
        for i in (1, 0):
            envs.open_gate(i)
            assert envs.recv().env_ids.tolist() == [i]


@pytest.mark.parametrize("backend", ["asyncio", FORK], ids=["asyncio", "process"])
def test_closing_cancels_steps_that_wait(backend: Any) -> None:
    """No gate has to be opened."""
    with World(backend, "async", kind="coroutine", workers=2).open(3) as player:
        player.reset()
        for i in (0, 2):
            player.script.set(i, "step", "wait")

        async def run(envs: Any) -> None:
            step, reset = envs.step([1, 0, 1]), envs.reset()
            waiting = asyncio.create_task(asyncio.wait_for(step, patience(6)))
            await asyncio.sleep(0)
            await envs.aclose()
            for pending in (waiting, step, reset):
                with pytest.raises(agym.ClosedError, match="closed"):
                    await pending

        player.run(run(player.envs))


class Waits(AsyncTally):
    """Waits in each step, and logs the end of the step and of itself."""

    def __init__(self, log: list[str], steps: asyncio.Event) -> None:
        super().__init__()
        self.log = log
        self.steps = steps

    async def step(self, action: Any) -> Result:
        self.log.append("step")
        self.steps.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.log.append("step cancelled")
            raise
        return await super().step(action)

    async def close(self) -> None:
        self.log.append("close")


async def test_a_step_is_cancelled_before_its_environment_is_closed() -> None:
    logs: list[list[str]] = [[], []]
    steps = [asyncio.Event() for _ in logs]
    factories = [partial(Waits, *each) for each in zip(logs, steps, strict=True)]
    async with agym.make_async(factories, backend="asyncio") as envs:
        await envs.reset()
        envs.step([1, 1])
        for each in steps:
            await each.wait()
    assert logs == [["step", "step cancelled", "close"]] * 2


def test_an_environment_that_ignores_its_cancellation_is_abandoned(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing ends all the same, under the API that cannot leave it on the caller's loop."""
    monkeypatch.setattr(life, "GRACE_SECONDS", (deadline(0.2),) * 3)
    closed = threading.Event()

    def play() -> None:
        factories = script.factories(2, coroutines=True)
        with agym.make(factories, backend="asyncio", timeout=deadline(0.4)) as envs:
            envs.reset()
            script.set(0, "step", "wait stubbornly")
            with pytest.raises(agym.StepTimeout):
                envs.step([1, 0])
        closed.set()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    ended = closed.wait(patience())
    script.open(0)
    thread.join(patience())
    for one in [t for t in threading.enumerate() if t.name.startswith("agym-")]:
        one.join(patience())
    assert ended
