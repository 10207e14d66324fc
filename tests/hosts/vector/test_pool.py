"""Programs that give some results at a time (EnvPool's ``batch_size``): sent and received apart."""

from __future__ import annotations

import asyncio
import importlib
import random
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import agym
from agym._system.extras import installed
from tests.support.drivers import APIS, played
from tests.support.envs.pool_envs import Hand, Pairs, Pool
from tests.support.insides import backend_of
from tests.support.patience import deadline

pytestmark = pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")
each_api = pytest.mark.parametrize("api", APIS)
each_workers = pytest.mark.parametrize("workers", [1, 2])
each_policy = pytest.mark.parametrize("on_fault", ["raise", "restart"])

NATIVE: dict[str, Any] = {"backend": "native", "autoreset": "next_step"}


def envpool(num_envs: int, seed: int = 0, **keywords: Any) -> Any:
    make = importlib.import_module("envpool").make_gymnasium
    return make("CartPole-v1", num_envs=num_envs, seed=seed, **keywords)


# The one that ships with the tests, and the real one where it is installed.
each_pool = pytest.mark.parametrize("make", [Pool, *([envpool] if installed("envpool") else [])])


def action_of(i: int, k: int) -> int:
    """What environment i does in its step k, whenever that comes."""
    return (i * 7 + k * k + k // 3) % 2


class Diary:
    """What became of each environment: a list of rows for each."""

    def __init__(self, num_envs: int, first: int = 0) -> None:
        self.rows: dict[int, list[Any]] = {first + i: [] for i in range(num_envs)}
        self.first = first

    def add(self, ids: Any, columns: Any, infos: list[dict[str, Any]]) -> None:
        for k, i in enumerate(np.asarray(ids).tolist()):
            row = [np.asarray(column)[k].tolist() for column in columns]
            self.rows[i + self.first].append((*row, infos[k].get("elapsed_step")))

    def actions(self, ids: Any) -> Any:
        ids = np.asarray(ids).tolist()
        return np.array([action_of(i, len(self.rows[i + self.first])) for i in ids])


def by_hand(make: Any, num_envs: int, batch_size: int, first: int, batches: int) -> Diary:
    """Play a pool as its own documentation says."""
    env = make(num_envs=num_envs, batch_size=batch_size, seed=5 + first)
    diary = Diary(num_envs, first)

    def receive() -> Any:
        *columns, info = env.recv()
        elapsed = info.get("elapsed_step", [None] * batch_size)
        diary.add(info["env_id"], columns, [{"elapsed_step": one} for one in elapsed])
        return info["env_id"]

    env.async_reset()
    every = np.concatenate([receive() for _ in range(num_envs // batch_size)])
    env.send(diary.actions(every), every)
    for _ in range(batches):
        ids = receive()
        env.send(diary.actions(ids), ids)
    for _ in range(num_envs // batch_size):
        receive()
    env.close()
    return diary


@each_api
@each_workers
@pytest.mark.parametrize("batch_size", [1, 2, 4])
@each_pool
def test_each_environment_plays_its_own_game(
    make: Any, batch_size: int, workers: int, api: str
) -> None:
    """Sent and received in any order, in whole steps and in some: what it gives by hand."""
    num_envs = 8
    options = {**NATIVE, "workers": workers, "batch_size": batch_size, "seed": 5}
    diary = Diary(num_envs)
    # By hand an action is chosen by the number of its row, so ours are too.
    with played(api, make, num_envs, **options) as envs:
        observations, infos = envs.reset()
        zeros = np.zeros((3, num_envs))
        diary.add(range(num_envs), [observations, *zeros[:1], *zeros[1:].astype(bool)], infos)

        def step(ids: Any) -> None:
            result = envs.step(diary.actions(ids), env_ids=ids)
            diary.add(ids, result[:4], result.infos)

        def receive() -> Any:
            batch = envs.recv(min_envs=batch_size)
            assert len(batch.env_ids) % batch_size == 0, "whole batches of the program"
            diary.add(batch.env_ids, batch[1:5], batch.infos)
            return batch.env_ids

        for _ in range(10):
            step(range(num_envs))
        envs.send(diary.actions(range(num_envs)))
        for _ in range(100):
            ids = receive()
            envs.send(diary.actions(ids), ids)
        left = num_envs
        while left:
            left -= len(receive())
        for _ in range(10):
            step(range(num_envs))
            step(range(num_envs // workers - batch_size, num_envs // workers))
    share = num_envs // workers
    for first in range(0, num_envs, share):
        longest = max(len(diary.rows[first + i]) for i in range(share))
        plain = by_hand(make, share, batch_size, first, longest * share // batch_size + 50)
        for i, rows in plain.rows.items():
            length = min(len(rows), len(diary.rows[i]))
            assert length > 25
            assert diary.rows[i][:length] == rows[:length]


# ---------------------------------------------------------------- refusals


def pool(num_envs: int, hand: Hand | None = None, **keywords: Any) -> Any:
    return Pool(num_envs, **{"hand": hand, **keywords})


class Same(Pool):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "reset_mask": True}  # noqa: RUF012


INSTEAD = r"leave batch_size out and take workers=3 with recv\(min_envs=2\)"
REFUSED: list[Any] = [
    (Pairs, {}, f"Pairs has batch_size=2, and cannot be sent .*{INSTEAD}"),
    (Pool, {"num_envs": 5}, "batch_size=2, of which its num_envs=5 is no multiple"),
    (Pool, {"num_envs": 6, "workers": 2}, "environments . to .: .*num_envs=3 is no multiple"),
    (Pool, {"autoreset": "disabled"}, "takes no autoreset='disabled': pass autoreset='next_step'"),
    (Pool, {"autoreset": "same_step"}, "autoreset='same_step': pass autoreset='next_step'"),
    (Same, {"autoreset": "same_step"}, "takes no autoreset='same_step'"),
]
if installed("envpool"):

    def test_workers_do_not_play_the_same() -> None:
        with pytest.raises(agym.UsageError, match="all workers would play the same: pass seed="):
            agym.make(envpool, 4, **NATIVE, workers=2)
        with agym.make(envpool, 4, **NATIVE, workers=2, seed=5, output="array") as envs:
            observations, infos = envs.reset()
            assert len({row.tobytes() for row in observations}) == 4
            assert [info["env_id"] for info in infos] == [0, 1, 2, 3]

    REFUSED += [
        (envpool, {"batch_size": 4}, "batch_size=4, of which its num_envs=6 is no multiple"),
        (envpool, {"batch_size": 2, "autoreset": "disabled"}, "pass autoreset='next_step'"),
    ]
if installed("ale_py"):
    ale = importlib.import_module("ale_py.vector_env").AtariVectorEnv
    REFUSED.append((partial(ale, "pong"), {"batch_size": 2}, f"AtariVectorEnv has .*{INSTEAD}"))


@pytest.mark.parametrize(("env", "options", "message"), REFUSED)
def test_what_cannot_be_made(env: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(agym.UsageError, match=message):
        agym.make(env, **{"num_envs": 6, **NATIVE, **options})


@each_api
def test_numbers_that_would_never_come(api: str) -> None:
    with played(api, pool, 8, **NATIVE, workers=2) as envs:
        envs.reset()
        refused: list[Callable[[], Any]] = [
            lambda: envs.send([0], [1]),
            lambda: envs.send([0] * 3, [3, 1, 0]),
            lambda: envs.send([0] * 2, [0, 4]),
            lambda: envs.step([0] * 3, env_ids=[0, 1, 2]),
            lambda: envs.reset(env_ids=[5]),
            lambda: envs.envs[3].step(0),
            lambda: envs.envs[3].reset(),
        ]
        for call in refused:
            with pytest.raises(agym.UsageError, match=r"come 2 at a time.* a multiple of 2"):
                call()
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        with pytest.raises(agym.UsageError, match="one VectorEnv: name all of them"):
            envs.restart([0, 1])
        assert envs.step([1] * 8).observations[:, 1].tolist() == [1] * 8
        assert envs.step([1] * 2, env_ids=[1, 3]).observations[:, 1].tolist() == [2, 2]


def test_what_a_reset_cannot_tell_the_program() -> None:
    with played("sync", pool, 4, **NATIVE) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="Pool takes no options in async_reset"):
            envs.reset(options={"a": 1})
        with pytest.raises(agym.UsageError, match="integer as seed"):
            envs.reset(seed=[3, 1, 4, 1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            envs.reset(seed=3)
        assert "takes no seeds in async_reset, so they are ignored" in str(caught[0].message)
        assert envs.step([1] * 4).rewards.tolist() == [1] * 4


# ---------------------------------------------------------------- order


@each_api
def test_the_slow_hold_nobody_up(api: str) -> None:
    """Also what is sent while the program is waited for."""
    hand = Hand()
    with played(api, pool, 4, **NATIVE, hand=hand) as envs:
        envs.reset()
        hand.slow = {0, 3}
        envs.send([1, 2, 3, 4])
        for k in range(1, 4):
            batch = envs.recv(min_envs=2)
            assert sorted(batch.env_ids.tolist()) == [1, 2]
            assert batch.observations[:, 1].tolist() == [k, k]
            envs.send([5, 5], [2, 1])  # the receiver waits for these, or for 0 and 3
        with pytest.raises(agym.BusyError, match="environment"):
            envs.step([1] * 4)
        assert envs.recv(min_envs=2).env_ids.tolist() == [1, 2]
        assert envs.recv(timeout=0.01).env_ids.tolist() == []
        hand.let(3)
        assert envs.recv(timeout=0.01).env_ids.tolist() == [], "half a batch of the program"
        hand.let(0)
        assert sorted(envs.recv(min_envs=2).env_ids.tolist()) == [0, 3]


def test_a_reset_behind_what_is_under_way() -> None:
    async def main() -> None:
        hand = Hand()
        async with agym.make_async(pool, 4, **NATIVE, hand=hand) as envs:
            await envs.reset()
            hand.slow = {0, 3}
            envs.send([1] * 4)
            reset = envs.reset()
            assert len((await envs.recv(min_envs=2)).env_ids) == 2
            hand.slow = set()
            assert not reset.done()
            hand.let(0, 3)
            observations, _ = await reset
            assert observations[:, 1:].tolist() == [[0, 2]] * 4
            assert sorted((await envs.recv(min_envs=2)).env_ids.tolist()) == [0, 3]
            pending: list[Any] = [envs.reset(env_ids=[1, 2]), envs.step([1] * 4), envs.reset()]
            results = [await one for one in pending]
            assert results[1].observations[:, 1:].tolist() == [[1, 2], [1, 3], [1, 3], [1, 2]]
            assert results[2].observations[:, 1:].tolist() == [[0, 3], [0, 4], [0, 4], [0, 3]]

    asyncio.run(main())


def test_other_calls_wait_for_it() -> None:
    with played("sync", pool, 4, **NATIVE) as envs:
        envs.reset()
        for _ in range(50):
            envs.send([1] * 4)
            assert envs.render([2]) == ["frame 2"]
            assert envs.get_attr("seed") == [0] * 4
            assert len(envs.recv(min_envs=4).env_ids) == 4


def test_all_at_a_time_are_stepped_together() -> None:
    with (
        played("sync", pool, 4, **NATIVE, batch_size=2) as ours,
        played("sync", pool, 4, **NATIVE, workers=2) as apart,  # two programs with both in one
    ):
        assert backend_of(apart.envs).env_groups == [range(2), range(2, 4)]
        assert backend_of(ours.envs).env_groups == [range(i, i + 1) for i in range(4)]


# ---------------------------------------------------------------- closing


@each_api
@pytest.mark.parametrize("received", [0, 1])
@each_pool
def test_closing_with_things_under_way(make: Any, received: int, api: str) -> None:
    with played(api, make, 8, **NATIVE, batch_size=2, workers=2, seed=0) as envs:
        envs.reset()
        envs.send([1] * 8)
        for _ in range(received):
            envs.recv(min_envs=2)


def test_closing_waits_for_those_that_are_about_to_end() -> None:
    hand = Hand()
    with played("sync", pool, 4, **NATIVE, hand=hand) as envs:
        envs.reset()
        hand.slow = {0, 1}
        envs.send([1] * 4)
        envs.recv(min_envs=2)
        timer = threading.Timer(0.2, hand.let, (0, 1))
        timer.start()
    timer.join()
    assert hand.closed == 1


# ---------------------------------------------------------------- faults


@each_api
@pytest.mark.parametrize("where", ["send", "recv", "nonsense"])
def test_a_program_that_raises(api: str, where: str) -> None:
    """All that is under way has failed, which is told once; a reset begins with another."""
    hand = Hand(where=where)
    hand.where = ""
    with played(api, pool, 4, **NATIVE, hand=hand) as envs:
        envs.reset()
        hand.slow = {0, 1}
        envs.send([1, 1], [0, 1])
        hand.pools[0].await_slow(0, 1)
        hand.where = where
        envs.send([1, 1], [2, 3])
        told = "recv gave info" if where == "nonsense" else "boom"
        with pytest.raises(agym.EnvError, match=f"environments 0 to 3 raised in step: .*{told}"):
            envs.recv(min_envs=2)
        hand.where, hand.slow = "", set()
        hand.let(0, 1)
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        with pytest.raises(agym.ResetNeededError):
            envs.send([1, 1], [2, 3])
        assert [env.faults for env in envs.stats().envs] == [1] * 4
        envs.reset()
        assert len(hand.pools) == 2
        assert envs.step([1] * 4).observations[:, 1:].tolist() == [[1, 1]] * 4


def test_a_whole_step_fails_once() -> None:
    hand = Hand()
    with played("sync", pool, 6, **NATIVE, hand=hand) as envs:
        envs.reset()
        hand.slow = {0, 2, 4}
        hand.where = "recv"
        with pytest.raises(agym.EnvError, match="environments 0 to 5 raised in step"):
            envs.step([1] * 6)
        hand.let(0, 2, 4)
        hand.slow = set()
        envs.reset()
        assert envs.step([1] * 6).rewards.tolist() == [1] * 6


@each_api
@pytest.mark.parametrize("where", ["send", "recv"])
def test_restart(api: str, where: str) -> None:
    hand = Hand()
    with played(api, pool, 4, **NATIVE, hand=hand, on_fault="restart") as envs:
        envs.reset()
        envs.step([1] * 4)
        hand.where = where
        envs.send([1, 1], [0, 2])
        batch = envs.recv(min_envs=2)
        assert batch.env_ids.tolist() == [0, 2]
        assert batch.truncated.tolist() == [True, True]
        assert batch.rewards.tolist() == [0, 0]
        assert batch.observations[:, 1].tolist() == [1, 1]
        assert [info["fault"].kind for info in batch.infos] == ["raised"] * 2
        assert len(hand.pools) == 2
        # 0 begins an episode, and 1 is yet to be told that its own is over.
        envs.send([1, 1], [0, 1])
        batch = envs.recv(min_envs=2)
        assert batch.truncated.tolist() == [False, True]
        assert batch.observations[:, 1].tolist() == [0, 1]
        assert ["fault" in info for info in batch.infos] == [False, True]
        result = envs.step([3] * 4)
        assert result.truncated.tolist() == [False, False, False, True]
        assert result.observations[:, 1].tolist() == [1, 0, 0, 1]
        assert result.rewards.tolist() == [3, 0, 0, 0]
        assert envs.step([3] * 4).observations[:, 1].tolist() == [2, 1, 1, 0]
        assert [env.faults for env in envs.stats().envs] == [1] * 4


@pytest.mark.once
@each_api
@each_policy
def test_one_that_hangs_is_left_behind(api: str, on_fault: str) -> None:
    hand = Hand()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "worker 0, a thread", RuntimeWarning)
        options = {**NATIVE, "timeout": deadline(0.3), "on_fault": on_fault}
        with played(api, pool, 4, **options, hand=hand) as envs:
            envs.reset()
            hand.slow = {0, 3}
            envs.send([1] * 4)
            assert sorted(envs.recv(min_envs=2).env_ids.tolist()) == [1, 2]
            hung, hand.slow = hand.pools[0], set()
            if on_fault == "raise":
                with pytest.raises(agym.StepTimeout) as caught:
                    envs.recv(min_envs=2)
                assert caught.value.env_ids == (0, 3)
                with pytest.raises(agym.ResetNeededError):
                    envs.send([1] * 2, [1, 2])
                envs.reset()
                assert envs.step([1] * 4).rewards.tolist() == [1] * 4
            else:
                batch = envs.recv(min_envs=2)
                assert batch.env_ids.tolist() == [0, 3]
                assert batch.truncated.tolist() == [True, True]
                assert [info["fault"].kind for info in batch.infos] == ["timeout"] * 2
                result = envs.step([2] * 4)
                assert result.truncated.tolist() == [False, True, True, False]
            assert len(hand.pools) == 2
            hung.let([0, 3])
    for thread in threading.enumerate():  # the one that was left behind comes back
        if thread.name.startswith("agym-0"):
            thread.join()
    assert hand.closed == 2


@each_api
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("faulty", [False, True])
def test_random_play(api: str, seed: int, faulty: bool) -> None:
    """Whatever is sent is received, also while programs break; nothing hangs."""
    rng, hand = random.Random(seed), Hand()
    policy = agym.FaultPolicy("restart", max_restarts=999)
    options = {**NATIVE, "workers": 2, "on_fault": policy}
    with played(api, pool, 8, **options, hand=hand) as envs:
        envs.reset()
        idle, sent = set(range(8)), 0
        last = np.zeros(8, int)
        for _ in range(150):
            if faulty and rng.random() < 0.1:
                hand.where = rng.choice(["send", "recv", "reset"])
            for share in (range(4), range(4, 8)):
                ready = [i for i in share if i in idle]
                rng.shuffle(ready)
                ids = ready[: rng.choice([0, 2, 4]) if len(ready) > 3 else len(ready) // 2 * 2]
                if ids:
                    envs.send([1] * len(ids), ids)
                    idle -= set(ids)
                    sent += len(ids)
            if len(idle) == 8 and rng.random() < 0.3:
                assert envs.reset().observations[:, 1].tolist() == [0] * 8
                last[:] = 0
            elif len(idle) < 8:
                batch = envs.recv(min_envs=2)
                assert len(batch.env_ids) % 2 == 0
                assert not idle.intersection(batch.env_ids.tolist())
                idle |= set(batch.env_ids.tolist())
                for i, row, cut in zip(
                    batch.env_ids, batch.observations, batch.truncated, strict=True
                ):
                    # It went on by one, began anew, or was cut off where it was.
                    assert row[1] in ((last[i],) if cut else (last[i] + 1, 0))
                    last[i] = row[1]
        assert sent > 100
        assert faulty == (len(hand.pools) > 2)
