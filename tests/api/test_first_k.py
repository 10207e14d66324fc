"""First-k: steps that are sent, and batches of those environments that have ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.drivers import (
    FORKED,
    SERIAL,
    Setup,
    apart,
    each_api,
    each_mode,
    everywhere,
    gated,
    played,
    rows,
)
from tests.support.envs.coroutine_envs import AsyncTally, Parrot
from tests.support.envs.gated_envs import AsyncGated, Gated, Gates
from tests.support.envs.plain_envs import Result, Tally
from tests.support.patience import patience

# One that hangs fails by itself, and not the whole run.


# ---------------------------------------------------------------- batches


@everywhere
@each_api
def test_all_that_was_sent_is_received_once(api: str, setup: Setup) -> None:
    with played(api, setup.of(5, length=99), **setup.options) as envs:
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
def test_lists(setup: Setup) -> None:
    with played("sync", setup.of(3), **setup.options, output="list") as envs:
        envs.reset()
        envs.send([5, 6, 7])
        batch = envs.recv(min_envs=3)
        assert all(isinstance(column, list) for column in batch)
        assert type(batch.env_ids[0]) is int
        assert dict(zip(batch.env_ids, batch.rewards, strict=True)) == dict.fromkeys(
            range(3), 1.0625
        )
        for i, observation in zip(batch.env_ids, batch.observations, strict=True):
            assert observation.tolist() == [1, 1, 5 + i]


@everywhere
@each_api
def test_the_ids_of_a_batch_are_ids_for_the_next_send(api: str, setup: Setup) -> None:
    """Also where they do not ascend; actions are in their order."""
    with played(api, setup.of(4, length=99), **setup.options) as envs:
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
@each_api
def test_batches_do_not_wait_for_the_slowest(api: str, setup: Setup, gates: Gates) -> None:
    with gated(api, setup, gates) as envs:
        envs.send([4, 1, 5])
        assert sorted(rows(envs.recv(min_envs=2))) == [[0, 1, 4], [2, 1, 5]]
        envs.send([6, 7], [0, 2])
        assert sorted(rows(envs.recv(min_envs=2))) == [[0, 2, 6], [2, 2, 7]]
        envs.let(gates.paths[1])
        assert rows(envs.recv()) == [[1, 1, 1]]


@apart
@each_api
def test_the_oldest_first(api: str, setup: Setup, gates: Gates) -> None:
    """Where the caller has looked in between; and never more than were asked for."""
    with gated(api, setup, gates) as envs:
        envs.send([1, 1, 1])
        for i in (2, 0, 1):
            envs.let(gates.paths[i])
            envs.render([i])  # behind the step: it has ended
        for i in (2, 0, 1):
            assert rows(envs.recv(max_envs=1)) == [[i, 1, 1]]


@apart
@each_api
def test_nobody_starves(api: str, setup: Setup) -> None:
    """Those that are received are sent again at once, one by one, and all get their turns."""
    with played(api, setup.of(4, length=10**6), **setup.options) as envs:
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
@each_api
def test_ready_ends_with_the_last(api: str, setup: Setup) -> None:
    with played(api, setup.of(5), **setup.options) as envs:
        envs.reset()
        assert list(envs.as_completed()) == []
        envs.send([0] * 5)
        batches = list(envs.as_completed(min_envs=2, max_envs=2))
        assert [len(batch.env_ids) for batch in batches] == [2, 2, 1]
        assert sorted(i for batch in batches for i in batch.env_ids) == [*range(5)]


async def test_ready_goes_on_with_what_is_sent_meanwhile() -> None:
    async with agym.make_async(
        partial(AsyncTally, length=99), 4, backend="asyncio", autoreset="disabled"
    ) as envs:
        await envs.reset()
        envs.send([0] * 4)
        steps = 0
        async for batch in envs.as_completed(min_envs=2):
            steps += len(batch.env_ids)
            if steps < 40:
                envs.send([1] * len(batch.env_ids), batch.env_ids)
        assert sum(await envs.get_attr("now")) == steps >= 40


@everywhere
@each_api
@each_mode
def test_the_three_modes(api: str, setup: Setup, mode: str) -> None:
    """Sent steps give what plain steps give: rows, infos, final observations."""
    lengths = [1, 2, 3, 5]
    factories = [setup.of(1, length=k)[0] for k in lengths]
    options = {"autoreset": mode}
    with (
        played(api, factories, **setup.options, **options) as envs,
        agym.make([partial(Tally, k) for k in lengths], output="array", **options) as oracle,
    ):
        envs.reset(seed=3)
        oracle.reset(seed=3)
        for k in range(8):
            expected = oracle.step([k] * 4)
            envs.send([k] * 4)
            for batch in list(envs.as_completed(max_envs=3)):
                for row, i in enumerate(batch.env_ids):
                    for ours, theirs in zip(batch[1:5], expected[:4], strict=True):
                        assert ours.dtype == theirs.dtype
                        assert ours[row].tolist() == theirs[i].tolist()
                    ours, theirs = dict(batch.infos[row]), dict(expected.infos[i])
                    final, expected_final = ours.pop("final_obs", 0), theirs.pop("final_obs", 0)
                    assert np.array_equal(final, expected_final)
                    assert ours == theirs


@everywhere
def test_copies_and_views(setup: Setup) -> None:
    """A copy is for ever; a whole range is a view where views were asked for."""
    for copy in (True, False):
        with played("sync", setup.of(4, length=99), **setup.options, copy=copy) as envs:
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
            else:
                assert not any(observations.flags.owndata for k, observations in whole)
            if setup is SERIAL:
                assert len(whole) == 3


@everywhere
def test_resets_overwrite_nothing_that_was_not_received(setup: Setup) -> None:
    """However many of them follow the step, in whatever order results are received."""
    with played("sync", setup.of(4, length=99), **setup.options) as envs:
        envs.reset()
        for k in range(3):
            envs.send([k] * 4)
            for _ in range(5):
                latest, _ = envs.reset(env_ids=[1, 3])
                assert latest[[1, 3], 1].tolist() == [0, 0]
            batch = envs.recv(min_envs=4)
            assert sorted(rows(batch)) == [[i, k + 1, k] for i in range(4)]
            step = envs.step([5, 6], env_ids=[0, 1])
            assert step.observations[:, 1:].tolist() == [[k + 2, 5], [1, 6]]
            envs.reset(env_ids=[1])
            latest, _ = envs.reset(env_ids=[2])
            assert latest[[0, 2], 1:].tolist() == [[k + 2, 5], [0, -1]]
            envs.reset()
            for _ in range(k + 1):
                envs.step([0] * 4)


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
@each_api
def test_an_empty_batch_when_time_is_up(api: str, setup: Setup, gates: Gates) -> None:
    with gated(api, setup, gates) as envs:
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
        assert sorted(rows(envs.recv(min_envs=2, timeout=patience(6)))) == [[0, 1, 1], [2, 1, 1]]


@pytest.mark.parametrize("options", [{"backend": "asyncio"}, FORKED], ids=["asyncio", "process"])
@each_api
def test_an_empty_batch_of_objects(api: str, options: dict[str, Any], gates: Gates) -> None:
    factories = [partial(Pausing, path) for path in gates.paths[:1]]
    with played(api, factories, **options) as envs:
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
@each_api
def test_misuse(api: str, setup: Setup) -> None:
    with played(api, setup.of(3), **setup.options) as envs:
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
@each_api
def test_a_plain_step_while_one_that_was_sent_is_under_way(
    api: str, setup: Setup, gates: Gates
) -> None:
    with gated(api, setup, gates) as envs:
        envs.send([1], [1])
        with pytest.raises(agym.BusyError, match="environment 1"):
            envs.step([2, 2, 2])
        envs.let(gates.paths[1])
        envs.render([1])
        # It has ended; its result waits, and what others do does not touch it.
        with pytest.raises(agym.BusyError, match="environment 1"):
            envs.step([2, 2, 2])
        assert envs.step([2, 4], env_ids=[0, 2]).observations[:, 1:].tolist() == [[1, 2], [1, 4]]
        assert envs.reset(env_ids=[1]).observations[:, :2].tolist() == [[1, 1], [2, 0], [1, 1]]
        assert rows(envs.recv()) == [[1, 1, 1]]
        assert envs.step([2, 3, 4]).observations[:, 1:].tolist() == [[2, 2], [1, 3], [2, 4]]


@everywhere
@each_api
def test_use_after_close(api: str, setup: Setup) -> None:
    with played(api, setup.of(2), **setup.options) as envs:
        envs.reset()
        envs.send([0, 0])
        envs.envs.close() if api == "sync" else envs.aclose()
        with pytest.raises(agym.ClosedError):
            envs.recv()
        with pytest.raises(agym.ClosedError):
            envs.send([0, 0])
