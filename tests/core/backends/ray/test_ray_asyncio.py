"""An environment with plain methods may use asyncio in them, in an actor as anywhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import agym
from agym.backends import Ray
from tests.support.envs.looping_envs import KeepsLoop, Looping, WantsLoop
from tests.support.envs.plain_envs import Tally

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


ACTIONS = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0], [1, 1, 1]]


def play(env: Any, **options: Any) -> list[list[float]]:
    with agym.make(env, 3, autoreset="next_step", output="array", **options) as envs:
        seen = [envs.reset(seed=7).observations.tolist()]
        seen += [envs.step(actions).observations.tolist() for actions in ACTIONS]
        assert len(envs.render()) == 3
        return seen


@pytest.mark.parametrize("workers_per_node", [None, 2])
@pytest.mark.parametrize(
    "env",
    [Looping, partial(Looping, "own"), KeepsLoop, WantsLoop, lambda: WantsLoop()],
    ids=["run", "own", "keeps", "coroutines", "factory of coroutines"],
)
def test_environments_with_loops(cluster: Cluster, env: Any, workers_per_node: int | None) -> None:
    found = play(env, backend=Ray(workers_per_node=workers_per_node), workers=2)
    assert found == play(Tally, backend="serial")
