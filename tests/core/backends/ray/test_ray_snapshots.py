"""Snapshots go from one actor to another, and to environments that are in none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import agym
from agym.backends import Ray
from agym.testing import assert_same

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


@pytest.mark.parametrize("workers_per_node", [None, 2])
def test_a_state_goes_on_elsewhere(cluster: Cluster, workers_per_node: int | None) -> None:
    backend = Ray(workers_per_node=workers_per_node)
    options: dict[str, Any] = {"autoreset": "next_step", "output": "list"}
    with agym.make("CartPole-v1", 4, backend=backend, workers=2, **options) as envs:
        envs.reset(seed=1)
        for _ in range(30):
            latest = envs.step([0, 1, 0, 1])
        snapshots = envs.snapshot()
        assert_same([one.observation for one in snapshots], latest.observations)
        once = [envs.step([0, 1, 1, 0]) for _ in range(40)]
        envs.restore(snapshots)
        for step in once:
            assert_same(step, envs.step([0, 1, 1, 0]))
        assert [env.index for env in envs[0].branch(2, into=[3, 1])] == [3, 1]
        observations = envs.step([0] * 4).observations
        assert_same([observations[1], observations[3]], [observations[0]] * 2)
    with agym.make("CartPole-v1", 4, backend="serial", **options) as others:
        others.restore(snapshots)
        for step in once:
            assert_same(step, others.step([0, 1, 1, 0]))
