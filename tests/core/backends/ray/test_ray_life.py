"""Joining, starting and leaving clusters, and Ray's own conventions."""

from __future__ import annotations

import asyncio
import importlib
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces

import agym
from agym.backends import Ray
from tests.support.envs.looping_envs import KeepsLoop, Looping, WantsLoop
from tests.support.envs.plain_envs import Probe, Tally
from tests.support.patience import patience
from tests.support.scripts import run, start

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

LOOPING = [Looping, partial(Looping, "own"), KeepsLoop]
ray = pytest.importorskip("ray", reason="the extra `ray`")

WAITS = """
import sys
import agym
from tests.support.envs.plain_envs import Probe
backend = agym.backends.Ray(workers_per_node=2)
envs = agym.make(Probe, 4, backend=backend, workers=2)
envs.reset(seed=0)
print(*{*envs.call("pid")}, *{w.pid for w in envs.stats().workers}, flush=True)
sys.stdin.read()
"""

STARTS = """
import agym
local = agym.backends.Ray(address="local")
half = agym.backends.Ray(resources={"num_cpus": 0.5})
with agym.make("CartPole-v1", 4, backend=local, workers=1) as envs:
    assert len(envs.reset(seed=0)[0]) == 4
    with agym.make("CartPole-v1", 2, backend=half, workers=1) as others:
        others.reset(seed=0)
    assert envs.step([0] * 4)[1] == [1.0] * 4
import psutil
import ray
assert not ray.is_initialized()
assert not psutil.Process().children()
"""

JOINS = """
import agym

class Own:
    async def reset(self, *, seed=None, options=None):
        return "begun", {}

    async def step(self, action):
        return action, 1.0, False, False, {}

with agym.make(Own, 4, backend=agym.backends.Ray(placement="pack"), workers=2) as envs:
    envs.reset()
    assert envs.step(list("abcd"))[0] == list("abcd")
"""

LEAVES = """
import agym
import ray
envs = agym.make("CartPole-v1", 4, backend="ray", workers=2)
envs.reset(seed=0)
envs.step([0] * 4)
ray.shutdown()
try:
    envs.step([0] * 4)
except* agym.WorkerDied as group:
    assert "ray.shutdown()" in str(group.exceptions[0])
else:
    raise AssertionError
ray.init(log_to_driver=False, logging_level="ERROR")
envs.close()
assert ray.is_initialized()  # a connection of the caller's own
"""


def test_actors_and_their_workers_end_with_a_driver_that_was_killed(folder: Path) -> None:
    with start(folder, WAITS) as driver:
        assert driver.stdout is not None
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 6
        left = [psutil.Process(pid) for pid in pids]
        driver.send_signal(signal.SIGKILL)
        _, left = psutil.wait_procs(left, timeout=patience())
    assert not left


@pytest.mark.parametrize("code", [STARTS, JOINS, LEAVES], ids=["starts", "joins", "leaves"])
def test_a_script_and_its_cluster(code: str, folder: Path) -> None:
    """What it started is ended, and nothing is printed.

    It joins the cluster of its environment, as under ``ray job submit``, and what only its
    ``__main__`` has goes by value. If it leaves the cluster, it is told so.
    """
    assert run(folder, code, seconds=10) == (0, "", "")


class Keeps(Tally):
    """Changes what it was given."""

    kept: Any = None

    def step(self, action: Any) -> Any:
        if self.kept is not None:
            self.kept += 1
        return super().step(action)


@pytest.mark.parametrize("pool", [None, 1])
def test_what_environments_are_given_is_theirs(pool: int | None, cluster: Cluster) -> None:
    with agym.make(Keeps, 2, backend=Ray(workers_per_node=pool), workers=2) as envs:
        envs.reset()
        envs.set_attr("kept", [np.zeros(40_000), np.ones(3)])
        envs.step([0, 0])
        first, second = envs.get_attr("kept")
        assert (first == 1).all()
        assert (second == 2).all()


def test_what_cannot_be_sent_leaves_nothing_half_done(cluster: Cluster) -> None:
    class Counts:
        steps = 0

        async def reset(self, **_: Any) -> Any:
            return "begun", {}

        async def step(self, action: Any) -> Any:
            self.steps += 1
            return f"{action}{self.steps}", 1.0, False, False, {}

    with agym.make(Counts, 4, backend="ray", workers=2) as envs:
        envs.reset()
        with pytest.raises(agym.UsageError, match="can't be pickled"):
            envs.step(["a", "b", "c", threading.Lock()])
        assert envs.step(list("abcd"))[0] == ["a1", "b1", "c1", "d1"]


def play(num_envs: int) -> float:
    with agym.make("CartPole-v1", num_envs, backend="ray", workers=2) as envs:
        envs.reset(seed=0)
        return float(sum(envs.step([0] * num_envs)[1]))


class Player:
    async def play(self, num_envs: int) -> float:
        async with agym.make_async("CartPole-v1", num_envs, backend="ray", workers=2) as envs:
            await envs.reset(seed=0)
            return float((await envs.step([0] * num_envs)).rewards.sum())


def test_inside_a_task_and_an_actor(cluster: Cluster) -> None:
    task, actor = ray.remote(play), ray.remote(Player).remote()  # type: ignore[attr-defined]
    assert ray.get([task.remote(4), actor.play.remote(6)]) == [4.0, 6.0]
    ray.kill(actor)


def test_a_connection_of_the_users_own_is_used_and_kept(cluster: Cluster) -> None:
    with pytest.raises(agym.UsageError, match="already"):
        agym.make("CartPole-v1", 2, backend=Ray(address="127.0.0.1:1"))
    for address in (None, "auto", ray.get_runtime_context().gcs_address):
        agym.make("CartPole-v1", 2, backend=Ray(address=address), workers=1).close()
    assert ray.is_initialized()


@pytest.mark.parametrize("options", [{"resources": {"num_cpus": 4}}, {"workers_per_node": 3}])
def test_by_default_there_are_as_many_actors_as_there_is_room_for(
    cluster: Cluster, options: Any
) -> None:
    with agym.make("CartPole-v1", 100, backend=Ray(**options)) as envs:
        assert len(envs.stats().workers) == 2


@pytest.mark.parametrize(("placement", "nodes"), [("spread", 2), ("pack", 1)])
def test_actors_are_placed_as_asked(cluster: Cluster, placement: Any, nodes: int) -> None:
    with agym.make(Probe, 4, backend=Ray(placement=placement), workers=4) as envs:
        raylets = {psutil.Process(pid).ppid() for pid in envs.call("pid")}
        assert len(raylets) == nodes


def test_actors_that_wait_for_room_are_warned_of(cluster: Cluster) -> None:
    async def main() -> None:
        with pytest.warns(RuntimeWarning, match="the actors wait until it grows"):
            envs = agym.make_async("CartPole-v1", 40, backend="ray", workers=20)
        opening = asyncio.ensure_future(envs.__aenter__())
        await asyncio.sleep(0.5)
        assert not opening.done()
        opening.cancel()
        await envs.aclose()

    asyncio.run(main())


class Costs(Tally):
    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, "cost": 0.5}


def test_costs_of_actors_are_summed(cluster: Cluster) -> None:
    """Actors report them now and then."""
    with agym.make(Costs, 4, backend="ray", workers=2, autoreset="next_step") as envs:
        envs.reset()
        steps = 0
        while not envs.stats().cost:
            envs.step([1] * 4)
            steps += 1
        assert 0 < envs.stats().cost <= 4 * 0.5 * steps


@pytest.mark.parametrize("workers_per_node", [None, 2])
@pytest.mark.parametrize("env", [*LOOPING, WantsLoop, lambda: WantsLoop()])
def test_environments_may_use_asyncio(
    cluster: Cluster, env: Any, workers_per_node: int | None
) -> None:
    """In an actor as anywhere."""

    def play(env: Any, **options: Any) -> list[Any]:
        with agym.make(env, 3, autoreset="next_step", **options) as envs:
            observations = [envs.reset().observations, *(envs.step([1] * 3)[0] for _ in range(5))]
            assert len(envs.render()) == 3
            return [np.stack(each).tolist() for each in observations]

    ours = play(env, backend=Ray(workers_per_node=workers_per_node), workers=2)
    assert ours == play(Tally, backend="serial")


def used(cluster: Cluster) -> int:
    internal_api: Any = importlib.import_module("ray._private.internal_api")
    state = internal_api.get_state_from_address(cluster.address)
    reply = internal_api.get_memory_info_reply(state)
    return int(reply.store_stats.object_store_bytes_used)


class Large(Probe):
    def __init__(self) -> None:
        super().__init__(length=1000)
        self.observation_space = spaces.Box(0, 255, (100, 1000), np.uint8)
        self._frame = np.zeros((100, 1000), np.uint8)

    def _observe(self, action: Any) -> Any:
        return self._frame


def test_the_object_store_stays_as_full_as_it_was(cluster: Cluster) -> None:
    """Over 10,000 batches, each of which goes through it."""
    with agym.make(Large, 1, backend="ray", autoreset="next_step", output="array") as envs:
        envs.reset(seed=0)
        begun, highest = used(cluster), 0
        for k in range(10_000):
            envs.step([0])
            if k % 1000 == 999:
                highest = max(highest, used(cluster))
        assert highest < begun + 5_000_000
    end = time.monotonic() + patience()
    while used(cluster) > 1_000_000 and time.monotonic() < end:
        time.sleep(0.1)
    assert used(cluster) <= 1_000_000
