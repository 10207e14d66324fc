"""What dies with an actor, a worker process in it, or its whole node; and what takes its place."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import agym
from agym.core.protocol.metrics.gauges import Meter
from agym.testing import assert_same
from tests.core.backends.ray.conftest import NODE
from tests.support.backends import with_own
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Probe

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.usefixtures("cluster")

OPTIONS: dict[str, Any] = {"backend": "ray", "autoreset": "next_step", "output": "array"}


def killed(envs: Any, worker: int) -> int:
    """Kill the process of an actor."""
    pid = envs.stats().workers[worker].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return int(pid)


def test_an_actor_that_dies_is_named_and_spoils_no_other() -> None:
    with agym.make("CartPole-v1", 4, workers=2, **OPTIONS) as envs:
        envs.reset(seed=0)
        pid = killed(envs, 1)
        with pytest.raises(agym.WorkerDied) as caught:
            envs.call("get_wrapper_attr", "length")
        assert (caught.value.worker, caught.value.pid) == (1, pid)
        assert [*caught.value.env_ids] == [2, 3]
        envs.step([0, 1], env_ids=[0, 1])
        envs.restart()
        envs.reset(seed=3)
        assert envs.step([0, 1, 0, 1]).rewards.tolist() == [1.0] * 4


class BreaksItsHost(AsyncTally):
    """Leaves agym itself broken in the actor when it is rendered."""

    async def render(self) -> Any:
        def fail(*_: Any) -> None:
            raise RuntimeError("boom")

        Meter.end_one = fail  # type: ignore[method-assign]
        return await super().render()


def test_what_fails_on_the_loop_of_an_actor_ends_the_actor() -> None:
    with agym.make(BreaksItsHost, 2, workers=1, **OPTIONS) as envs:
        envs.reset()
        with pytest.raises(agym.WorkerDied, match=r"RuntimeError: boom.*environments 0 to 1"):
            envs.render()
        assert envs.restart() == [0, 1]
        envs.reset()
        envs.step([0, 0])


@pytest.mark.parametrize("workers_per_node", [None, 2])
def test_rows_of_a_dead_actor_are_truncated_and_no_other(workers_per_node: int | None) -> None:
    options = {**with_own(OPTIONS, workers_per_node=workers_per_node), "workers": 2}
    with (
        agym.make("CartPole-v1", 4, on_fault="restart", **options) as envs,
        agym.make("CartPole-v1", 4, **{**OPTIONS, "backend": "serial"}) as same,
    ):
        assert_same(envs.reset(seed=0), same.reset(seed=0))
        for _ in range(5):
            before = envs.step([0, 1, 0, 1])
            assert_same(before, same.step([0, 1, 0, 1]))
        killed(envs, 1)
        theirs = same.step([1, 0, 1, 0])
        while not (ours := envs.step([1, 0, 1, 0])).truncated.any():
            theirs = same.step([1, 0, 1, 0])
        for one, other in zip(ours[:4], theirs[:4], strict=True):
            assert_same(one[:2], other[:2])
        assert ours.truncated.tolist() == [False, False, True, True]
        assert ours.rewards[2:].tolist() == [0.0, 0.0]
        faults = [info.get("fault") for info in ours.infos]
        assert faults[:2] == [None, None]
        assert [fault.kind for fault in faults[2:]] == ["died", "died"]


def test_a_worker_process_that_dies_takes_its_actor_along() -> None:
    options = {**with_own(OPTIONS, workers_per_node=2), "workers": 2, "on_fault": "replay"}
    with agym.make(Probe, 8, **options) as envs:
        envs.reset(seed=0)
        envs.step([0] * 8)
        pid = envs.call("pid")[3]
        os.kill(pid, signal.SIGKILL)
        while not (batch := envs.step([0] * 8)).truncated.any():
            pass
        assert batch.truncated.tolist() == [False, False, True, True] + [False] * 4
        assert f"worker process {pid}" in batch.infos[3]["fault"].error
        assert batch.observations[0, 1] == envs.get_attr("now")[0]  # it is where it was


def test_environments_of_a_lost_node_go_on_where_another_one_joins(cluster: Cluster) -> None:
    """Each node has room for one; nothing is made up while there is none for both."""
    special = {**NODE, "resources": {"special": 1}}
    nodes = [cluster.add_node(**special) for _ in range(2)]
    options = {**with_own(OPTIONS, resources={"num_cpus": 0, "special": 1}), "workers": 2}

    async def main() -> None:
        async with agym.make_async("CartPole-v1", 4, on_fault="restart", **options) as envs:
            await envs.reset(seed=0)
            before = await envs.step(np.zeros(4, np.int64))
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            for _ in range(10_000):
                pending = envs.step(np.zeros(4, np.int64))
                try:
                    batch = await asyncio.wait_for(asyncio.shield(pending), 1.0)
                except TimeoutError:
                    nodes.append(cluster.add_node(**special))
                    batch = await pending
                if batch.truncated.any():
                    break
                before = batch
            lost = np.flatnonzero(batch.truncated)
            assert lost.tolist() in ([0, 1], [2, 3])
            assert batch.rewards[lost].tolist() == [0.0, 0.0]
            assert_same(batch.observations[lost], before.observations[lost])
            assert [batch.infos[i]["fault"].kind for i in lost] == ["died", "died"]
            for _ in range(2):
                begins = batch.terminated | batch.truncated
                batch = await envs.step(np.zeros(4, np.int64))
                assert not any("fault" in info for info in batch.infos)
                assert batch.rewards.tolist() == np.where(begins, 0.0, 1.0).tolist()
            assert batch.rewards[lost].tolist() == [1.0, 1.0]

    try:
        asyncio.run(main())
    finally:
        for node in nodes:
            cluster.remove_node(node)
