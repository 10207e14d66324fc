"""``snapshot``, ``restore`` and ``branch``: an environment continues exactly."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from agym.errors import ResetNeededError, UsageError, UsageTypeError
from agym.testing.laws.law import assert_same, law, play
from agym.testing.worlds import World


@law("single")
def a_restored_environment_continues_exactly(world: World) -> None:
    """The same or another environment continues, also from a pickled snapshot."""
    with world.open(3, length=5) as envs:
        for steps in (2, 6):
            latest = play(envs, steps)[-1]
            snapshots = pickle.loads(pickle.dumps(envs.snapshot()))
            first = [envs.step([k % 10] * 3) for k in range(8)]
            restored = envs.restore(snapshots)
            assert_same(restored.observations, latest.observations)
            for info, before in zip(restored.infos, latest.infos, strict=True):
                assert_same(info, {k: v for k, v in before.items() if not k.startswith("final_")})
            assert_same([envs.step([k % 10] * 3) for k in range(8)], first)
        assert snapshots[0].way == ("methods" if world.kind == "coroutine" else "attributes")
        elsewhere = world if world.kind == "coroutine" else world.serial
        with elsewhere.open(3, length=5) as others:
            others.restore(snapshots)  # without a reset
            assert_same([others.step([k % 10] * 3) for k in range(8)], first)


@law("single")
def one_snapshot_branches_into_many(world: World) -> None:
    """All branches continue from the same state, independently of each other."""
    with world.open(5, length=9) as envs:
        play(envs, 2)
        assert [env.index for env in envs[1].branch(3, into=[4, 0, 2])] == [4, 0, 2]
        result = envs.step([4, 5, 6, 7, 8])
        assert result.observations[:, 2:].tolist() == [[3, 4], [3, 5], [3, 6], [3, 7], [3, 8]]
        draws = result.observations[:, 0].tolist()
        assert draws[0] == draws[1] == draws[2] == draws[4] != draws[3]
        envs.restore(envs[3].snapshot())
        assert len({*envs.step([0] * 5).observations[:, 0].tolist()}) == 1


@law("single")
def a_snapshot_is_of_what_was_sent_before(world: World) -> None:
    """A snapshot waits until the steps have ended; their results can be received afterwards."""
    with world.open(3) as envs:
        envs.reset()
        envs.send([5, 6, 7])
        snapshots = envs.snapshot([1, 2])
        assert [one.observation[2:].tolist() for one in snapshots] == [[1, 6], [1, 7]]
        assert len(envs.recv(min_envs=3).env_ids) == 3


@law("single")
def bad_snapshots_are_refused(world: World) -> None:
    """A call that is refused restores nothing."""
    with world.open(3) as envs:
        with pytest.raises(ResetNeededError):
            envs.snapshot()
        envs.reset()
        snapshots = envs.snapshot([0, 1])
        envs.step([0] * 3)
        for ids in ([0], [0, 0], [0, 5], 2, None):
            with pytest.raises(UsageError, match=r"env_ids|2 snapshots for"):
                envs.restore(snapshots, ids)
        for wrong in (None, [5, 5, 5]):
            with pytest.raises(UsageTypeError, match="restore takes snapshots, not"):
                envs.restore(wrong)
        for count, into in ((3, None), (2, [0, 1]), (None, [0])):
            with pytest.raises(UsageError, match=r"only 2 other|must name . environments other"):
                envs[0].branch(count, into=into)
        assert envs.render() == ["1:1"] * 3
        envs.restore(iter(snapshots), iter((2, 1)))
        assert envs.render() == ["1:1", "1:0", "1:0"]


@law("single")
def an_episode_that_had_ended_is_over_when_it_is_restored(world: World) -> None:
    """The environment then waits for a reset as the mode says, in any mode of the original."""
    for mode in ("next_step", "disabled"):
        with (
            replace(world, autoreset=mode).open(2, length=2) as others,
            world.open(2, length=2) as envs,
        ):
            last = play(others, 2)[-1]
            for taken_from in (others, envs):
                envs.restore(taken_from.snapshot())
                result = envs.step([7, 7])
                assert result.rewards.tolist() == [0, 0]
                ended = world.autoreset == "disabled"
                assert result.terminated.tolist() == [ended] * 2
                rows = last.observations[:, 1:].tolist() if ended else [[2, 0, -1]] * 2
                assert result.observations[:, 1:].tolist() == rows
                envs.restore(others.snapshot())
            envs.reset()
            assert envs.step([7, 7]).observations[:, 2].tolist() == [1, 1]
