"""First-k: steps that are sent, and batches of those environments that have ended."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

import agym
from agym.executors.thread import ThreadExecutor

from .coroutine_envs import AsyncGated, AsyncRaises, AsyncTally, Keeper, Parrot, try_gate
from .envs import Gated, Result, Tally
from .faces import FACES
from .faults import Exits, Raises
from .gates import Gates

# One that hangs fails by itself, and not the whole run.
pytestmark = pytest.mark.timeout(15, method="signal")

FORKED = {"backend": "process", "start_method": "fork"}


class Place:
    """A backend, and the kind of environments it takes; the second runs each on its own."""

    def __init__(self, name: str, coroutines: bool, options: dict[str, Any]) -> None:
        self.name = name
        self.options = options
        self.tally: Any = AsyncTally if coroutines else Tally
        self.gated: Any = AsyncGated if coroutines else Gated
        self.raises: Any = AsyncRaises if coroutines else Raises

    def of(self, count: int, **keywords: Any) -> list[Callable[[], Any]]:
        inner = (Tally,) if self.tally is AsyncTally else ()
        return [partial(self.tally, *inner, **keywords)] * count


SERIAL = Place("serial", False, {"backend": "serial"})
APART = [
    Place("thread", False, {"backend": "thread"}),
    Place("process", False, {**FORKED, "workers": 3}),
    Place("asyncio", True, {"backend": "asyncio"}),
    Place("process-coroutines", True, {**FORKED, "workers": 2}),
]


def _over(places: list[Place]) -> Any:
    return pytest.mark.parametrize("place", places, ids=lambda place: place.name)


# ``apart``: where environments wait without holding each other up.
everywhere, apart = _over([SERIAL, *APART]), _over(APART)
each_face = pytest.mark.parametrize("face", FACES)
each_mode = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])


class Player:
    """Either face, blocking: what has to be awaited is awaited at once, and inside its loop."""

    def __init__(self, envs: Any, runner: asyncio.Runner | None) -> None:
        self.envs = envs
        self.runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.envs, name)
        if self.runner is None or not callable(found):
            return found
        return partial(self._run, found)

    def _run(self, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        async def go() -> Any:
            result = method(*args, **keywords)
            if inspect.isasyncgen(result):
                return [batch async for batch in result]
            return await result if inspect.isawaitable(result) else result

        assert self.runner is not None
        return self.runner.run(go())

    def let(self, path: str) -> None:
        """Wait until an environment stands at its gate, and let it through."""

        async def go() -> None:
            while not try_gate(path):  # noqa: ASYNC110
                await asyncio.sleep(0)

        if self.runner is not None:
            self.runner.run(go())
        else:
            while not try_gate(path):
                time.sleep(0.001)


@contextmanager
def played(face: str, *args: Any, **options: Any) -> Iterator[Player]:
    options = {"output": "array", "autoreset": "disabled", **options}
    if face == "sync":
        with agym.make(*args, **options) as envs:
            yield Player(envs, None)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        player = Player(agym.make_async(*args, **options), runner)
        try:
            player.__aenter__()
            yield player
        finally:
            player.aclose()


@contextmanager
def gated(face: str, place: Place, gates: Gates, **options: Any) -> Iterator[Player]:
    """Three environments, reset, which wait in a step with action 1."""
    factories = [partial(place.gated, path) for path in gates.paths]
    with played(face, factories, **place.options, **options) as envs:
        envs.reset()
        yield envs


def rows(batch: agym.Batch) -> list[list[float]]:
    """Environment, step and action of each row."""
    columns = batch.observations[:, 1:]
    return [[i, *row] for i, row in zip(batch.env_ids.tolist(), columns.tolist(), strict=True)]


# ---------------------------------------------------------------- batches


@everywhere
@each_face
def test_all_that_was_sent_is_received_once(face: str, place: Place) -> None:
    with played(face, place.of(5, length=99), **place.options) as envs:
        envs.reset()
        for k in range(1, 20):
            envs.send([(k + i) % 10 for i in range(5)])
            got: list[list[float]] = []
            while len(got) < 5:
                batch = envs.recv(max_envs=2)
                assert 1 <= len(batch.env_ids) <= 2
                assert batch.env_ids.dtype == np.int64
                assert [info["now"] for info in batch.infos] == [k] * len(batch.infos)
                assert batch.rewards.tolist() == [1 + k / 16] * len(batch.infos)
                got += rows(batch)
            assert sorted(got) == [[i, k, (k + i) % 10] for i in range(5)]
            with pytest.raises(agym.UsageError, match="nothing to receive"):
                envs.recv()
        assert envs.get_attr("now") == [19] * 5


@everywhere
def test_lists(place: Place) -> None:
    with played("sync", place.of(3), **place.options, output="list") as envs:
        envs.reset()
        envs.send([5, 6, 7])
        batch = envs.recv(min_envs=3)
        assert [type(column) for column in batch] == [list] * 6
        assert type(batch.env_ids[0]) is int
        assert dict(zip(batch.env_ids, batch.rewards, strict=True)) == dict.fromkeys(
            range(3), 1.0625
        )
        for i, observation in zip(batch.env_ids, batch.observations, strict=True):
            assert observation.tolist() == [1, 1, 5 + i]


@everywhere
@each_face
def test_the_ids_of_a_batch_are_ids_for_the_next_send(face: str, place: Place) -> None:
    """Also where they do not ascend; actions are in their order."""
    with played(face, place.of(4, length=99), **place.options) as envs:
        envs.reset()
        for ids in ([3, 1], [2, 0]):
            envs.send(ids, ids)
        for _ in range(5):
            batch = envs.recv(min_envs=4)
            assert batch.observations[:, 2].tolist() == batch.env_ids.tolist()
            envs.send(batch.env_ids, batch.env_ids)
        envs.recv(min_envs=4)
        assert envs.get_attr("now") == [6] * 4


@apart
@each_face
def test_batches_do_not_wait_for_the_slowest(face: str, place: Place, gates: Gates) -> None:
    with gated(face, place, gates) as envs:
        envs.send([4, 1, 5])
        assert sorted(rows(envs.recv(min_envs=2))) == [[0, 1, 4], [2, 1, 5]]
        envs.send([6, 7], [0, 2])
        assert sorted(rows(envs.recv(min_envs=2))) == [[0, 2, 6], [2, 2, 7]]
        envs.let(gates.paths[1])
        assert rows(envs.recv()) == [[1, 1, 1]]


@apart
@each_face
def test_the_oldest_first(face: str, place: Place, gates: Gates) -> None:
    """Where the caller has looked in between; and never more than were asked for."""
    with gated(face, place, gates) as envs:
        envs.send([1, 1, 1])
        for i in (2, 0, 1):
            envs.let(gates.paths[i])
            envs.render([i])  # behind the step: it has ended
        for i in (2, 0, 1):
            assert rows(envs.recv(max_envs=1)) == [[i, 1, 1]]


@apart
@each_face
def test_nobody_starves(face: str, place: Place) -> None:
    """Those that are received are sent again at once, one by one, and all get their turns."""
    with played(face, place.of(4, length=10**6), **place.options) as envs:
        envs.reset()
        envs.send([0] * 4)
        taken = [0] * 4
        while min(taken) < 20:  # never ends if one is not received
            (i,) = envs.recv(max_envs=1).env_ids.tolist()
            taken[i] += 1
            envs.send([0], [i])
        envs.recv(min_envs=4)
        assert envs.get_attr("now") == [count + 1 for count in taken]


@everywhere
@each_face
def test_ready_ends_with_the_last(face: str, place: Place) -> None:
    with played(face, place.of(5), **place.options) as envs:
        envs.reset()
        assert list(envs.ready()) == []
        envs.send([0] * 5)
        batches = list(envs.ready(min_envs=2, max_envs=2))
        assert [len(batch.env_ids) for batch in batches] == [2, 2, 1]
        assert sorted(i for batch in batches for i in batch.env_ids) == [*range(5)]


async def test_ready_goes_on_with_what_is_sent_meanwhile() -> None:
    async with agym.make_async(
        partial(AsyncTally, length=99), 4, backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([0] * 4)
        steps = 0
        async for batch in envs.ready(min_envs=2):
            steps += len(batch.env_ids)
            if steps < 40:
                envs.send([1] * len(batch.env_ids), batch.env_ids)
        assert sum(await envs.get_attr("now")) == steps >= 40


@everywhere
@each_face
@each_mode
def test_the_three_modes(face: str, place: Place, mode: str) -> None:
    """Sent steps give what plain steps give: rows, infos, final observations."""
    lengths = [1, 2, 3, 5]
    factories = [place.of(1, length=k)[0] for k in lengths]
    options = {"autoreset": mode}
    with (
        played(face, factories, **place.options, **options) as envs,
        agym.make([partial(Tally, k) for k in lengths], output="array", **options) as oracle,
    ):
        envs.reset(seed=3)
        oracle.reset(seed=3)
        for k in range(8):
            expected = oracle.step([k] * 4)
            envs.send([k] * 4)
            for batch in list(envs.ready(max_envs=3)):
                for row, i in enumerate(batch.env_ids):
                    for ours, theirs in zip(batch[1:5], expected[:4], strict=True):
                        assert ours.dtype == theirs.dtype
                        assert ours[row].tolist() == theirs[i].tolist()
                    ours, theirs = dict(batch.infos[row]), dict(expected.infos[i])
                    final, expected_final = ours.pop("final_obs", 0), theirs.pop("final_obs", 0)
                    assert np.array_equal(final, expected_final)
                    assert ours == theirs


@everywhere
def test_copies_and_views(place: Place) -> None:
    """A copy is for ever; a whole range is a view where views were asked for."""
    for copy in (True, False):
        with played("sync", place.of(4, length=99), **place.options, copy=copy) as envs:
            envs.reset()
            whole = []
            for k in range(3):
                envs.send([k] * 4)
                envs.call("add", 1)  # behind the steps, so they all have ended
                batch = envs.recv(min_envs=4)
                order = batch.env_ids.tolist()
                assert batch.observations[:, 2].tolist() == [k] * 4
                envs.send([9], [3])
                some = envs.recv()
                assert rows(some) == [[3, 2 * k + 2, 9]]
                if order == [0, 1, 2, 3]:
                    whole.append((k, batch.observations))
            if copy:
                assert all((observations[:, 2] == k).all() for k, observations in whole)
            elif len(whole) > 1:
                assert np.shares_memory(whole[0][1], whole[-1][1])
            if place is SERIAL:
                assert len(whole) == 3


# ---------------------------------------------------------------- order


class Informs(Gated):
    """Tells something in its info with action 2 only."""

    def step(self, action: Any) -> Result:
        *result, info = super().step(action)
        return (*result, info if action == 2 else {})  # type: ignore[return-value]


def test_the_oldest_first_in_one_worker(gates: Gates) -> None:
    """Though one has an info, which takes another way back, and the other has not."""
    factories = [partial(Informs, path) for path in gates.paths]
    with played("sync", factories, **FORKED, workers=1) as envs:
        envs.reset()
        envs.send([0, 2, 1])
        with Path(gates.paths[2]).open("w"):  # environment 2 has begun: 0 and 1 have ended
            assert rows(envs.recv(min_envs=2)) == [[0, 1, 0], [1, 1, 2]]
        envs.recv()


# ---------------------------------------------------------------- timeouts of recv


@apart
@each_face
def test_an_empty_batch_when_time_is_up(face: str, place: Place, gates: Gates) -> None:
    with gated(face, place, gates) as envs:
        envs.send([1, 1, 1])
        for timeout in (0, 0.01):
            batch = envs.recv(timeout=timeout)
            assert batch.env_ids.shape == (0,)
            assert batch.observations.shape == (0, 3)
            assert (batch.rewards.shape, batch.infos) == ((0,), [])
        envs.let(gates.paths[1])
        envs.render([1])
        assert rows(envs.recv(min_envs=2, timeout=0.01)) == [[1, 1, 1]]  # what there is
        for i in (0, 2):
            envs.let(gates.paths[i])
        assert sorted(rows(envs.recv(min_envs=2, timeout=60))) == [[0, 1, 1], [2, 1, 1]]


@pytest.mark.parametrize("options", [{"backend": "asyncio"}, FORKED], ids=["asyncio", "process"])
@each_face
def test_an_empty_batch_of_objects(face: str, options: dict[str, Any], gates: Gates) -> None:
    factories = [partial(Pausing, path) for path in gates.paths[:1]]
    with played(face, factories, **options) as envs:
        envs.reset()
        envs.send(["wait"])
        batch = envs.recv(timeout=0)
        assert (batch.env_ids.tolist(), [*batch.observations], batch.infos) == ([], [], [])
        envs.let(gates.paths[0])
        assert [*envs.recv().observations] == ["wait"]


class Pausing(Parrot):
    """Waits at its gate in every step."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._gated = AsyncGated(path)

    async def step(self, action: Any) -> Any:
        await self._gated.wait()
        return await super().step(action)


# ---------------------------------------------------------------- misuse


@everywhere
@each_face
def test_misuse(face: str, place: Place) -> None:
    with played(face, place.of(3), **place.options) as envs:
        with pytest.raises(agym.ResetNeededError):
            envs.send([0, 0, 0])
        envs.reset()
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        for actions, ids in (([0, 0], None), ([0], [3]), ([0, 0], [1, 1]), ([0.5], [0]), (0, None)):
            with pytest.raises(agym.UsageError):
                envs.send(actions, ids)
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()  # nothing of that was sent
        envs.send([5, 6], [0, 2])
        for arguments in ({"min_envs": 0}, {"min_envs": 2, "max_envs": 1}, {"timeout": -1}):
            with pytest.raises(agym.UsageError):
                envs.recv(**arguments)
        with pytest.raises(agym.BusyError, match="environment 2"):
            envs.send([7, 7], [1, 2])
        assert sorted(rows(envs.recv(min_envs=3))) == [[0, 1, 5], [2, 1, 6]]
        assert envs.get_attr("now") == [1, 0, 1]


@apart
@each_face
def test_a_plain_step_while_one_that_was_sent_is_under_way(
    face: str, place: Place, gates: Gates
) -> None:
    with gated(face, place, gates) as envs:
        envs.send([1], [1])
        with pytest.raises(agym.BusyError, match="environment 1"):
            envs.step([2, 2, 2])
        envs.let(gates.paths[1])
        envs.render([1])
        # It has ended; its result waits, and plain steps do not touch it.
        assert envs.step([2, 3, 4]).observations[:, 1:].tolist() == [[1, 2], [2, 3], [1, 4]]
        assert envs.reset(env_ids=[1]).observations[:, :2].tolist() == [[1, 1], [2, 0], [1, 1]]
        assert rows(envs.recv()) == [[1, 1, 1]]


@everywhere
@each_face
def test_use_after_close(face: str, place: Place) -> None:
    with played(face, place.of(2), **place.options) as envs:
        envs.reset()
        envs.send([0, 0])
        envs.envs.close() if face == "sync" else envs.aclose()
        with pytest.raises(agym.ClosedError):
            envs.recv()
        with pytest.raises(agym.ClosedError):
            envs.send([0, 0])


# ---------------------------------------------------------------- faults


@everywhere
@each_face
def test_an_environment_that_raises(face: str, place: Place) -> None:
    factories = [partial(place.raises, "step")] * 4
    with played(face, factories, **place.options) as envs:
        envs.reset()
        envs.send([5, 9, 6, 7])
        errors, got = [], []
        for _ in range(5):
            try:
                got += rows(envs.recv())
            except agym.EnvError as error:
                errors.append((error.env_id, error.operation, int(error.action)))
            if len(got) == 3 and errors:
                break
        assert errors == [(1, "step", 9)]
        assert sorted(got) == [[0, 1, 5], [2, 1, 6], [3, 1, 7]]
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        with pytest.raises(agym.ResetNeededError, match="environment 1"):
            envs.send([0, 0], [0, 1])
        envs.reset(env_ids=[1])
        envs.send([2, 3, 4, 5])
        batch = envs.recv(min_envs=4)
        assert sorted(rows(batch)) == [[0, 2, 2], [1, 1, 3], [2, 2, 4], [3, 2, 5]]


@everywhere
@each_face
def test_several_that_raise(face: str, place: Place) -> None:
    """Each of them is told, by itself or in a group, and none is received as if it had not."""
    factories = [partial(place.raises, "step")] * 5
    with played(face, factories, **place.options) as envs:
        envs.reset()
        envs.send([9, 5, 9, 6, 9])
        named: list[int] = []
        got = []
        while len(named) + len(got) < 5:
            try:
                got += rows(envs.recv())
            except agym.EnvError as error:
                named.append(error.env_id)
            except ExceptionGroup as group:
                named += [error.env_id for error in group.exceptions]  # type: ignore[attr-defined]
        assert sorted(named) == [0, 2, 4]
        assert sorted(got) == [[1, 1, 5], [3, 1, 6]]


class Patchy(Tally):
    """Ends each episode at once; its info and whether a reset fails are what ``tell`` says."""

    def __init__(self) -> None:
        super().__init__(length=1)
        self.info: dict[str, Any] = {}
        self.fails = False

    def tell(self, info: dict[str, Any], fails: bool) -> None:
        self.info, self.fails = info, fails

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.fails:
            raise ValueError("told to fail")
        return super().reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> Result:
        *result, _ = super().step(action)
        return (*result, self.info)  # type: ignore[return-value]


@pytest.mark.parametrize("coroutines", [False, True], ids=["serial", "asyncio"])
def test_nothing_of_a_failed_step_shows_up_later(coroutines: bool) -> None:
    env = partial(AsyncTally, Patchy) if coroutines else Patchy
    backend = "asyncio" if coroutines else "serial"
    with played("sync", env, 1, backend=backend, autoreset="same_step") as envs:
        envs.reset()
        envs.call("tell", {"old": 1}, True)
        envs.send([0])
        with pytest.raises(agym.EnvError) as caught:
            envs.recv()
        assert caught.value.operation == "reset"  # as it says of plain steps
        envs.call("tell", {}, False)
        envs.reset()
        envs.send([0])
        (info,) = envs.recv().infos
        assert info["final_info"] == {}


@each_face
def test_a_worker_that_dies(face: str) -> None:
    with played(face, [partial(Exits, 3)] * 4, **FORKED, workers=2) as envs:
        envs.reset()
        envs.send([9, 5, 6, 7])
        told: list[tuple[int, ...]] = []
        got = []
        for _ in range(6):
            try:
                got += rows(envs.recv())
            except agym.WorkerDied as error:
                told.append(error.env_ids)
            except agym.UsageError:
                break
        assert told == [(0, 1)]
        assert sorted(got) == [[2, 1, 6], [3, 1, 7]]
        with pytest.raises(agym.WorkerDied):
            envs.send([0], [1])
        envs.send([4, 4], [2, 3])
        assert sorted(rows(envs.recv(min_envs=2))) == [[2, 2, 4], [3, 2, 4]]


def test_a_worker_that_dies_is_told_to_every_group() -> None:
    """Each of them waits for environments that will never come."""
    with agym.make([partial(Exits, 3)] * 2, **FORKED, workers=1) as envs:
        envs.reset()
        groups = envs.split(2)
        groups[1].send([5])
        groups[1].recv()
        for group in groups:
            group.send([0 if group is groups[1] else 9])
        with pytest.raises(agym.WorkerDied):
            groups[0].recv()
        with pytest.raises(agym.WorkerDied):
            _receive_and_send_again(groups[1])  # its step may have ended before the other's


def _receive_and_send_again(envs: Any) -> None:
    while True:
        envs.recv()
        envs.send([0])


def test_a_worker_that_dies_while_a_step_is_under_way_too(gates: Gates) -> None:
    """The step's error does not stand for the one of what was sent."""

    async def main() -> None:
        factories = gates.factories[:2]
        async with agym.make_async(factories, **FORKED, workers=1) as envs:
            await envs.reset()
            pids = await envs.call("pid")
            step = envs.step([1], env_ids=[0])
            envs.send([1], [1])
            os.kill(pids[0], signal.SIGKILL)
            with pytest.raises(agym.WorkerDied):
                await step
            with pytest.raises(agym.WorkerDied):
                await envs.recv()

    asyncio.run(main())


@apart
@each_face
def test_a_missed_deadline(face: str, place: Place, gates: Gates) -> None:
    with gated(face, place, gates, timeout=0.7) as envs:
        envs.send([4, 1, 5])
        assert sorted(rows(envs.recv(min_envs=2))) == [[0, 1, 4], [2, 1, 5]]
        with pytest.raises(agym.StepTimeout, match="environments 1;") as caught:
            envs.recv()
        assert (caught.value.env_ids, caught.value.operation) == ((1,), "step")
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        with pytest.raises(agym.BusyError, match="environment 1"):
            envs.send([6, 6, 6])
        envs.send([6, 7], [0, 2])
        envs.let(gates.paths[1])
        envs.render([1])  # behind the late step
        got = rows(envs.recv(min_envs=2))
        assert sorted(got) == [[0, 2, 6], [2, 2, 7]]
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        envs.send([8, 8, 8])
        assert sorted(rows(envs.recv(min_envs=3))) == [[0, 3, 8], [1, 2, 8], [2, 3, 8]]


# ---------------------------------------------------------------- closing


async def test_closing_while_a_recv_waits() -> None:
    keeper = Keeper()
    async with agym.make_async(keeper.factories(2), backend="asyncio") as envs:
        await envs.reset()
        envs.send([0, 0])
        waiting = [asyncio.create_task(envs.recv()) for _ in range(2)]
        listening = asyncio.create_task(anext(envs.ready()))
        while len(keeper.waiting) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await envs.aclose()
        for task in (*waiting, listening):
            with pytest.raises(agym.ClosedError, match="closed"):
                await task
        assert keeper.envs[0].log == ["reset", "step", "step cancelled", "close"]


async def test_closing_while_a_recv_waits_for_a_worker(gates: Gates) -> None:
    async with agym.make_async(gates.factories, **FORKED, workers=3) as envs:
        await envs.reset()
        envs.send([1, 1, 1])
        waiting = asyncio.create_task(envs.recv())
        await asyncio.sleep(0)
        closing = asyncio.create_task(envs.aclose())
        await asyncio.sleep(0)
        for i in range(3):
            gates.open(i)
        await closing
        with pytest.raises(agym.ClosedError, match="closed"):
            await waiting


async def test_closing_just_before_a_recv_takes_its_batch() -> None:
    """The batch was there, and its waiter had not had its turn: it gets it, or ClosedError."""
    async with agym.make_async(Tally, 2, backend="serial") as envs:
        await envs.reset()
        envs.send([3, 4])
        time.sleep(0.002)  # noqa: ASYNC251 - for so long that recv lets the loop turn once
        receiving = asyncio.create_task(envs.recv(min_envs=2))
        await asyncio.sleep(0)
        await envs.aclose()
        try:
            batch = await receiving
        except agym.ClosedError:
            pass
        else:
            assert rows(batch) == [[0, 1, 3], [1, 1, 4]]


# ---------------------------------------------------------------- several that receive


async def test_two_that_receive_share() -> None:
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(4), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([2, 3, 4, 5])
        tasks = [asyncio.create_task(envs.recv(min_envs=2, max_envs=2)) for _ in range(2)]
        await keeper.let(3, 1, 0, 2)
        batches = await asyncio.gather(*tasks)
        assert [batch.env_ids.tolist() for batch in batches] == [[3, 1], [0, 2]]
        assert [rows(batch) for batch in batches] == [
            [[3, 1, 5], [1, 1, 3]],
            [[0, 1, 2], [2, 1, 4]],
        ]


@pytest.mark.parametrize("consumers", [2, 3])
async def test_several_that_iterate_share(consumers: int) -> None:
    """Each of them ends when nothing is left, and nothing is lost between them."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(4), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([2, 3, 4, 5])
        got: list[list[float]] = []

        async def consume() -> None:
            async for batch in envs.ready(max_envs=1):
                got.extend(rows(batch))

        tasks = [asyncio.create_task(consume()) for _ in range(consumers)]
        await keeper.let(3, 1, 0, 2)
        await asyncio.gather(*tasks)
        assert got == [[3, 1, 5], [1, 1, 3], [0, 1, 2], [2, 1, 4]]


async def test_many_that_receive_and_send_again() -> None:
    """A pool of consumers: whoever receives an environment sends it again."""
    async with agym.make_async(
        partial(AsyncTally, length=10**6), 4, backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([0] * 4)
        steps = [1] * 4
        seen = [0] * 4

        async def consume() -> None:
            for _ in range(50):
                batch = await envs.recv(max_envs=1)
                (i,) = batch.env_ids.tolist()
                seen[i] += 1
                assert rows(batch) == [[i, seen[i], seen[i] % 10 if seen[i] > 1 else 0]]
                steps[i] += 1
                envs.send([steps[i] % 10], [i])

        await asyncio.gather(*(consume() for _ in range(3)))
        await envs.recv(min_envs=4)
        assert sum(seen) == 150
        assert await envs.get_attr("now") == steps


# ---------------------------------------------------------------- cancelling


async def cancelled_after(turns: int, coroutine: Any) -> Any:
    """Run a coroutine and cancel it after so many turns of the loop; ``None`` if that was in time.

    What it gave is given in a tuple otherwise.
    """
    task = asyncio.ensure_future(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return (await task,)
    except asyncio.CancelledError:
        return None


@pytest.mark.parametrize("held", [False, True], ids=["quick", "held"])
async def test_cancelling_recv_at_any_point_loses_nothing(held: bool) -> None:
    keeper = Keeper()
    where = ("step",) if held else ()
    async with agym.make_async(
        keeper.factories(3, where=where), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        received = [0] * 3
        for turns in range(12):
            envs.send([turns % 10] * 3)
            if held:
                opening = asyncio.create_task(keeper.let(1, 0, 2))
            got: list[list[float]] = []
            while len(got) < 3:
                result = await cancelled_after(turns, envs.recv(max_envs=2))
                batch = await envs.recv(max_envs=1) if result is None else result[0]
                got += rows(batch)
            if held:
                await opening
                assert [row[0] for row in got] == [1, 0, 2]
            for i, now, action in got:
                received[int(i)] += 1
                assert (now, action) == (received[int(i)], turns % 10)
        assert received == [12] * 3 == [keeper.envs[i].total for i in range(3)]


@apart
async def test_cancelling_recv_loses_nothing_anywhere(place: Place, gates: Gates) -> None:
    async with agym.make_async(
        [partial(place.gated, path) for path in gates.paths], autoreset="disabled", **place.options
    ) as envs:
        await envs.reset()
        for turns in range(8):
            envs.send([1, 1, 1])
            assert await cancelled_after(turns, envs.recv()) is None
            iteration = envs.ready()
            assert await cancelled_after(turns, anext(iteration)) is None
            for path in gates.paths:
                while not try_gate(path):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            got = []
            while len(got) < 3:
                result = await cancelled_after(turns, envs.recv(max_envs=1))
                got += [] if result is None else rows(result[0])
                if result is None:
                    got += rows(await envs.recv(max_envs=2))
            assert sorted(got) == [[i, turns + 1, 1] for i in range(3)]
        assert await envs.get_attr("now") == [8] * 3


async def test_a_recv_that_times_out_around_it(gates: Gates) -> None:
    async with agym.make_async(gates.factories, autoreset="disabled", **FORKED, workers=3) as envs:
        await envs.reset()
        envs.send([1, 1, 1])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await envs.recv()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(envs.recv(), 0.01)
        gates.open(1)
        assert rows(await envs.recv()) == [[1, 1, 1]]
        gates.open(0)
        gates.open(2)
        assert sorted(rows(await envs.recv(min_envs=2))) == [[0, 1, 1], [2, 1, 1]]


class Parking(ThreadExecutor):
    """Tells whether the caller said that it sleeps."""

    parked = False

    def park(self) -> None:
        Parking.parked = True
        super().park()

    def unpark(self) -> None:
        Parking.parked = False
        super().unpark()


async def test_a_cancelled_recv_is_not_waited_for_for_ever(gates: Gates) -> None:
    """Once nobody waits any more, workers need not ring."""
    async with agym.make_async(gates.factories, backend=Parking) as envs:
        await envs.reset()
        assert not Parking.parked
        envs.send([1, 1, 1])
        task = asyncio.create_task(envs.recv())
        while not Parking.parked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for i in range(3):
            gates.open(i)
        assert sorted(rows(await envs.recv(min_envs=3))) == [[i, 1, 1] for i in range(3)]
        await envs.render()
        assert not Parking.parked


# ---------------------------------------------------------------- the order of operations


async def test_a_reset_behind_steps_that_were_sent() -> None:
    """It waits for them, and what comes behind it waits for it: no step is doubled or mixed up."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(2, where=("step", "reset")), backend="asyncio", autoreset="disabled"
    ) as envs:
        opening = asyncio.create_task(keeper.let_all())
        await envs.reset()
        await opening
        envs.send([2, 3])
        reset = envs.reset()
        await keeper.let(0, 1)
        assert rows(await envs.recv(min_envs=2)) == [[0, 1, 2], [1, 1, 3]]
        first = envs.step([4, 5])
        await keeper.let(0, 1)
        assert (await reset).observations[:, :2].tolist() == [[2, 0], [2, 0]]
        with pytest.raises(agym.BusyError):
            envs.step([6, 7])
        await keeper.let(0, 1)
        assert (await first).observations[:, 1:].tolist() == [[1, 4], [1, 5]]
        assert [keeper.envs[i].total for i in range(2)] == [2, 2]


async def test_a_step_behind_a_call_that_ends_first() -> None:
    """The call's end frees nothing that the step holds."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(2), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        frames = envs.render()
        step = envs.step([4, 5])
        assert await frames == ["1:0", "1:0"]
        with pytest.raises(agym.BusyError):
            envs.step([6, 7])
        await keeper.let(0, 1)
        assert (await step).observations[:, 1:].tolist() == [[1, 4], [1, 5]]


async def test_a_reset_behind_a_step_behind_a_call() -> None:
    """No row of the first step is written again before that step is collected."""
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(2), backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        frames = envs.render()
        first = envs.step([4, 5])
        await frames
        await keeper.let(0)
        reset = envs.reset()
        try:
            second = envs.step([6, 7])
        except agym.BusyError:
            second = None
        opening = asyncio.create_task(keeper.let_all())
        assert (await first).observations[:, 1:].tolist() == [[1, 4], [1, 5]]
        assert (await reset).observations[:, :2].tolist() == [[2, 0], [2, 0]]
        if second is not None:
            assert (await second).observations[:, 1:].tolist() == [[1, 6], [1, 7]]
        await opening


async def test_what_cannot_be_sent_from_behind_a_reset_spoils_nothing_else() -> None:
    """The step that waits behind the reset fails by itself, when its turn comes."""
    async with agym.make_async(Parrot, 2, **FORKED, workers=1, autoreset="disabled") as envs:
        reset = envs.reset()
        step = envs.step([threading.Lock(), "fine"])
        assert [*(await reset).observations] == ["", ""]
        with pytest.raises(agym.UsageError, match="cannot be sent"):
            await step
        assert [*(await envs.step(["a", "b"])).observations] == ["a", "b"]


@everywhere
def test_forgotten_runners_end(place: Place) -> None:
    """Also with results that were sent for and never received."""
    envs = agym.make(place.of(2), **place.options)
    envs.reset()
    envs.send([0, 0])
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("agym-")]
    del envs
    gc.collect()
    for thread in threads:
        thread.join(timeout=3)
        assert not thread.is_alive()
