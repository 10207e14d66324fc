"""``snapshot``, ``restore`` and ``branch``: an environment continues exactly."""

from __future__ import annotations

import pickle

from agym.testing.laws.law import assert_same, law, play
from agym.testing.worlds import World


@law("single")
def a_restored_environment_continues_exactly(world: World) -> None:
    """The same or another environment continues, also from a pickled snapshot."""
    with world.open(3, length=5) as envs:
        play(envs, 2)
        snapshots = pickle.loads(pickle.dumps(envs.snapshot()))
        first = [envs.step([k % 10] * 3) for k in range(8)]
        restored = envs.restore(snapshots)
        assert restored.observations[:, 2].tolist() == [2, 2, 2]
        assert_same([envs.step([k % 10] * 3) for k in range(8)], first)
        with world.open(3, length=5) as others:
            others.reset()
            others.restore(snapshots)
            assert_same([others.step([k % 10] * 3) for k in range(8)], first)


@law("single")
def one_snapshot_branches_into_many(world: World) -> None:
    """All branches continue from the same state, independently of each other."""
    with world.open(3, length=9) as envs:
        play(envs, 2)
        snapshot = envs[1].snapshot()
        envs.restore(snapshot)
        result = envs.step([4, 5, 6])
        assert len({*result.observations[:, 0].tolist()}) == 1
        assert result.observations[:, 1:].tolist() == [[1, 3, 4], [1, 3, 5], [1, 3, 6]]
