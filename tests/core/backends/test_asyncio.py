"""Coroutine environments on the caller's loop, on a private one, and in workers."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.backends import Asyncio
from agym.core.engine import life
from tests.support.backends import FORK, with_own
from tests.support.envs.coroutine_envs import (
    AsyncRaises,
    AsyncTally,
    Busy,
    Crowd,
    Doored,
    Doors,
    Gives,
    Keeper,
    Parrot,
    Stubborn,
    Where,
)
from tests.support.envs.faulty_envs import ABRUPT, Raises
from tests.support.envs.gated_envs import AsyncGated, Gates, try_gate
from tests.support.envs.plain_envs import Tally
from tests.support.equality import same
from tests.support.patience import deadline, patience

FORKED = {"backend": FORK}
SETUPS = [
    pytest.param({"backend": "asyncio"}, id="asyncio"),
    pytest.param({**FORKED, "workers": 2}, id="process"),
]
everywhere = pytest.mark.parametrize("setup", SETUPS)
each_mode = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])

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


# ---------------------------------------------------------------- what they give and take


@everywhere
@pytest.mark.parametrize("thing", OBJECTS, ids=[type(thing).__name__ for thing in OBJECTS])
def test_objects_travel_unharmed(setup: dict[str, Any], thing: Any) -> None:
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


@everywhere
def test_text_and_nested_spaces(setup: dict[str, Any]) -> None:
    space = spaces.Dict({"say": spaces.Text(99), "mood": spaces.Box(0, 1, (2,))})
    with agym.make(partial(Spoken, space), 2, **setup, output="array") as envs:
        envs.reset()
        result = envs.step([{"say": word, "mood": np.ones(2)} for word in ("hi", "ho")])
        assert result.observations["say"] == ("hi", "ho")
        assert result.observations["mood"].tolist() == [[1, 1], [1, 1]]
        assert result.observations["mood"].dtype == np.float32


class Spoken(Parrot):
    def __init__(self, space: Any) -> None:
        super().__init__({"say": "", "mood": np.zeros(2, np.float32)})
        self.observation_space = self.action_space = space


async def test_observations_that_cannot_be_copied() -> None:
    """An environment on the caller's loop may observe a page, a connection, a lock."""
    lock = threading.Lock()
    async with agym.make_async(partial(Parrot, lock), 2, backend="asyncio") as envs:
        observations, _ = await envs.reset()
        assert [*observations] == [lock, lock]


@everywhere
async def test_little_is_needed(setup: dict[str, Any]) -> None:
    """No spaces, no render, no close; methods of both kinds can be called."""
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


# ---------------------------------------------------------------- where they belong


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_coroutine_environments_elsewhere(backend: str) -> None:
    with pytest.raises(agym.UsageError, match="backend='asyncio'") as caught:
        agym.make(Parrot, 2, backend=backend)
    assert "Parrot" in str(caught.value)
    assert "backend='process'" in str(caught.value)


def test_other_environments_on_a_loop() -> None:
    with pytest.raises(agym.UsageError, match="backend='thread'") as caught:
        agym.make(Tally, 2, backend="asyncio")
    assert "Tally" in str(caught.value)


def test_a_class_of_them_finds_its_backend() -> None:
    with agym.make(Parrot, 2) as envs:
        assert "asyncio" in repr(envs)


async def test_on_the_callers_loop() -> None:
    setups: list[tuple[str, int, int]] = []
    async with agym.make_async(partial(Where, setups), 2, backend="asyncio") as envs:
        await envs.reset()
        await envs.step([0, 0])
        await envs.render()
    assert [what for what, *_ in setups] == [
        what for what in ("made", "reset", "step", "render", "close") for _ in range(2)
    ]
    here = id(asyncio.get_running_loop()), threading.get_ident()
    assert {tuple(setup) for _, *setup in setups} == {here}


async def test_on_a_private_loop() -> None:
    """Under the sync API, also inside a running loop."""
    setups: list[tuple[str, int, int]] = []
    with agym.make(partial(Where, setups), 2, backend="asyncio") as envs:
        envs.reset()
        envs.step([0, 0])
        envs.render()
    assert len(setups) == 10
    ((loop, thread),) = {tuple(setup) for _, *setup in setups}
    assert loop != id(asyncio.get_running_loop())
    assert thread != threading.get_ident()


@pytest.mark.full
@pytest.mark.parametrize("limit", [None, 2])
def test_opened_in_one_loop_and_used_in_the_next(limit: int | None) -> None:
    async def opened() -> agym.AsyncEnvs:
        loop = Asyncio(max_concurrency=limit)
        envs = await agym.make_async(AsyncTally, 4, backend=loop, timeout=patience())
        await envs.reset()
        return envs

    async def used(envs: agym.AsyncEnvs) -> Any:
        return (await envs.step([1, 2, 3, 4])).observations[:, 2].tolist()

    with asyncio.Runner() as last:
        envs = asyncio.run(opened())
        try:
            assert asyncio.run(used(envs)) == [1, 2, 3, 4]
        finally:
            last.run(envs.aclose())


# ---------------------------------------------------------------- equal to serial


@everywhere
@each_mode
def test_equal_to_serial(setup: dict[str, Any], mode: str) -> None:
    lengths = [1, 2, 3]
    ours_made = [partial(AsyncTally, Tally, k, truncates=k == 2) for k in lengths]
    theirs_made = [partial(Tally, k, truncates=k == 2) for k in lengths]
    options: dict[str, Any] = {"autoreset": mode, "output": "array"}
    with (
        agym.make(ours_made, **setup, **options) as ours,
        agym.make(theirs_made, **options) as theirs,
    ):
        first = [e.reset(seed=5, options={"note": 1}) for e in (ours, theirs)]
        assert same(*first)
        for k in range(8):
            assert same(ours.step([k] * 3), theirs.step([k] * 3))
            assert same(ours.render(), theirs.render())
            if k == 4:
                some = [e.reset(seed=9, env_ids=[1]) for e in (ours, theirs)]
                assert same(*some)


@everywhere
@each_mode
@pytest.mark.parametrize("where", ["reset", "step"])
def test_errors_equal_those_of_serial(setup: dict[str, Any], mode: str, where: str) -> None:
    """In every operation, and in the reset that follows an episode by itself."""
    told = []
    for env, at in ((AsyncRaises, setup), (Raises, {"backend": "serial"})):
        errors: list[Any] = []
        with agym.make(partial(env, where, "plain", 1), 2, **at, autoreset=mode) as envs:
            envs.reset(seed=3, options={"well": True}) if where == "step" else None
            envs.set_attr("where", ["nowhere", "nowhere"])
            envs.reset(seed=3)
            envs.set_attr("where", ["nowhere", where])
            for _ in range(2):
                try:
                    envs.step([0, 9])
                except agym.EnvError as error:
                    errors.append((error.env_id, error.operation, error.seed, error.episode))
                    envs.set_attr("where", ["nowhere", "nowhere"])
                    envs.reset()
        told.append(errors)
    assert told[0] == told[1]


@everywhere
@pytest.mark.parametrize("where", ["make", "reset", "step", "render", "close"])
def test_exceptions(setup: dict[str, Any], where: str) -> None:
    factories = [AsyncTally, partial(AsyncRaises, where), AsyncTally]

    def go() -> None:
        with agym.make(factories, **setup) as envs:
            envs.reset()
            envs.step([0, 9, 0])
            envs.render()

    with pytest.raises(agym.EnvError, match="environment 1") as caught:
        go()
    assert (caught.value.env_id, caught.value.operation) == (1, where)
    assert "boom" in str(caught.value)


@everywhere
@pytest.mark.parametrize("api", ["sync", "async"])
def test_one_that_is_no_exception(setup: dict[str, Any], api: str) -> None:
    """A BaseException is the environment's failure too, and nobody waits for ever."""
    factories = [AsyncTally, partial(AsyncRaises, "step", "abrupt"), AsyncTally]
    assert "abrupt" in ABRUPT

    async def main() -> None:
        async with agym.make_async(factories, **setup, timeout=patience()) as envs:
            await envs.reset()
            await envs.step([0, 9, 0])

    def go() -> None:
        with agym.make(factories, **setup, timeout=patience()) as envs:
            envs.reset()
            envs.step([0, 9, 0])

    with pytest.raises(agym.EnvError, match="environment 1 raised in step: Abrupt"):
        go() if api == "sync" else asyncio.run(main())


@everywhere
async def test_one_that_cancels_itself(setup: dict[str, Any]) -> None:
    async with agym.make_async(Gives, 3, **setup) as envs:
        await envs.reset()
        with pytest.raises(agym.EnvError, match="environment 1 raised in step: CancelledError"):
            await envs.step([4, 9, 4])
        await envs.reset(env_ids=[1])
        assert (await envs.step([5, 6, 7])).observations[:, 1:].tolist() == [[2, 5], [1, 6], [2, 7]]


# ---------------------------------------------------------------- side by side


@everywhere
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_how_many_are_busy(setup: dict[str, Any], limit: int | None) -> None:
    options = {**with_own(setup, max_concurrency=limit), "workers": 1}
    crowd = Crowd()
    factories = [partial(Busy, crowd) for _ in range(6)]  # packed together, they share it there too
    with agym.make(factories, **options) as envs:
        envs.reset()
        for k in range(3):
            result = envs.step([k] * 6)
            assert [o[1] for o in result.observations] == [k + 1] * 6
        assert set(envs.call("most")) == {limit or 6}


async def test_those_of_a_worker_do_not_wait_for_each_other() -> None:
    doors = Doors()
    factories = [partial(Doored, doors, i) for i in range(3)]
    async with agym.make_async(factories, **FORKED, workers=1, autoreset="disabled") as envs:
        await envs.reset()
        envs.send([1, 1, 2])
        assert (await envs.recv()).env_ids.tolist() == [2]
        for i in (1, 0):
            await envs[2].call("open_door", i)
            assert (await envs.recv()).env_ids.tolist() == [i]


@everywhere
async def test_closing_while_steps_wait(setup: dict[str, Any], gates: Gates) -> None:
    """They are cancelled: nobody has to let them go."""
    envs = await agym.make_async([partial(AsyncGated, path) for path in gates.paths], **setup)
    await envs.reset()
    step = envs.step([1, 0, 1])
    behind = envs.reset()
    waiting = asyncio.create_task(asyncio.wait_for(step, patience(6)))
    await asyncio.sleep(0)
    await envs.aclose()
    for pending in (waiting, step, behind):
        with pytest.raises(agym.ClosedError, match="closed"):
            await pending


async def test_what_is_closed_is_cancelled_first() -> None:
    keeper = Keeper()
    async with agym.make_async(keeper.factories(2), backend="asyncio") as envs:
        await envs.reset()
        envs.step([1, 1])
        while len(keeper.waiting) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert [env.log for env in keeper.envs.values()] == [
        ["reset", "step", "step cancelled", "close"]
    ] * 2


def test_one_that_will_not_be_cancelled_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends all the same, under the API that cannot leave it on the caller's loop."""
    monkeypatch.setattr(life, "GRACE_SECONDS", (deadline(0.2),) * 3)
    let_go = threading.Event()
    closed = threading.Event()

    def play() -> None:
        with agym.make(
            partial(Stubborn, let_go), 2, backend="asyncio", timeout=deadline(0.1)
        ) as envs:
            envs.reset()
            with pytest.raises(agym.StepTimeout):
                envs.step([1, 0])
        closed.set()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    ended = closed.wait(patience())
    let_go.set()
    thread.join(patience())
    for one in [t for t in threading.enumerate() if t.name.startswith("agym-")]:
        one.join(patience())
    assert ended


@pytest.mark.parametrize("setup", [{"backend": "thread"}, {**FORKED, "workers": 3}])
async def test_the_loop_turns_beside_a_step(setup: dict[str, Any], gates: Gates) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        for _ in range(500):
            ticks += 1
            await asyncio.sleep(0)
        for path in gates.paths:
            while not try_gate(path):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async with agym.make_async(gates.factories, **setup) as envs:
        await envs.reset()
        ticking = asyncio.create_task(tick())
        await envs.step([1, 1, 1])  # nobody opens the gates but the ticks
        assert ticks == 500
        await ticking
