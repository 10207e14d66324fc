"""Seeds, options, partial resets, and automatic resets."""

from __future__ import annotations

from typing import Any

import numpy as np

from agym.testing.law import assert_same, law, play
from agym.testing.worlds import World


@law()
def a_seed_repeats_a_run(world: World) -> None:
    """The same seed and actions lead to the same results, and another seed to other results."""
    with world.open(3) as envs:
        first, again, other = (play(envs, 2, seed) for seed in (7, 7, 8))
        for one, two in zip(first, again, strict=True):
            np.testing.assert_array_equal(one[0][:, 0], two[0][:, 0])
        assert (first[0].observations[:, 0] != other[0].observations[:, 0]).all()


@law("single")
def each_environment_gets_a_seed_of_its_own(world: World) -> None:
    """Environment ``i`` gets ``seed + i``, or element ``i`` of a list; ``None`` is no seed."""
    with world.open(3) as envs:
        assert [info["seed"] for info in envs.reset(seed=5).infos] == [5, 6, 7]
        assert [info["seed"] for info in envs.reset(seed=[9, None, 2]).infos] == [9, None, 2]
        assert [info["seed"] for info in envs.reset().infos] == [None] * 3
        largest = 2**32 - 1
        for seed, first in ((np.uint32(largest), largest), (np.arange(3), 0)):
            seeds = [info["seed"] for info in envs.reset(seed=seed).infos]
            assert [*map(repr, seeds)] == [str(first + i) for i in range(3)]  # Python's integers
        draws = envs.reset(seed=[4, 5, 4]).observations[:, 0]
        assert draws[0] == draws[2] != draws[1]


@law("single")
def a_partial_reset_leaves_others_alone(world: World) -> None:
    """The others' observations are their latest ones, and their infos are empty."""
    with world.open(4, length=100) as envs:
        envs.reset(seed=0)
        last = envs.step([1, 2, 3, 4]).observations
        observations, infos = envs.reset(env_ids=[2, 0])
        assert last[:, 2:].tolist() == [[1, 1], [1, 2], [1, 3], [1, 4]]
        np.testing.assert_array_equal(observations[[1, 3]], last[[1, 3]])
        assert observations[[0, 2], 1:].tolist() == [[2, 0, -1]] * 2
        assert [bool(info) for info in infos] == [True, False, True, False]
        assert envs.step([0] * 4).observations[:, 2].tolist() == [1, 2, 1, 2]
        some = envs.step([7, 8], env_ids=[1, 3])
        assert some.observations[:, 2:].tolist() == [[3, 7], [3, 8]]
        assert some.infos == [{"now": 3, "action": 7}, {"now": 3, "action": 8}]
        assert {len(column) for column in some} == {2}


@law("single")
def a_reset_mask_selects_as_ids_do(world: World) -> None:
    """``options={"reset_mask": mask}`` is Gymnasium's form of ``env_ids``."""
    with world.open(3) as one, world.open(3) as other:
        one.reset(seed=0)
        other.reset(seed=0)
        mask = np.array([True, False, True])
        by_mask = one.reset(options={"reset_mask": mask})
        by_ids = other.reset(env_ids=[0, 2])
        np.testing.assert_array_equal(by_mask.observations, by_ids.observations)


@law("single")
def seeds_of_a_partial_reset_follow_the_ids(world: World) -> None:
    """A list has a seed for each id; with a mask, it has one for each environment."""
    with world.open(4) as envs:
        mask = np.array([False, True, True, True])
        options = {"reset_mask": mask, "note": 1}
        envs.reset()
        by_ids = envs.reset(seed=[30, None, 10], env_ids=[3, 2, 1]).infos
        by_mask = envs.reset(seed=[99, 10, None, 30], options=options).infos
        for infos in (by_ids, by_mask):
            assert [info.get("seed", "no reset") for info in infos] == ["no reset", 10, None, 30]
        assert [info["options"] for info in by_mask[1:]] == [{"note": 1}] * 3
        assert options["reset_mask"] is mask
        by_number = envs.reset(seed=40, env_ids=[3, 1]).infos
        assert [info.get("seed") for info in by_number] == [None, 41, None, 43]


@law("single")
def options_of_a_reset_apply_until_the_next(world: World) -> None:
    """Automatic resets pass the options again, but not the seed."""
    with world.open(2) as envs:
        options: Any = {"length": 1, "nested": {"a": [1]}}
        infos = envs.reset(seed=0, options=options).infos
        assert [info["options"] for info in infos] == [options] * 2
        random = np.random.default_rng(0)
        assert infos[0]["draw"] == random.random()
        for expected in (options, None):
            steps = [envs.step([0, 0]).infos[0] for _ in range(4)]
            starts = [info for info in steps if "options" in info]
            assert len(starts) == {"next_step": 2, "same_step": 4, "disabled": 0}[world.autoreset]
            for info in starts:
                assert (info["seed"], info["options"]) == (None, expected)
                assert info["draw"] == random.random()
            info = envs.reset().infos[0]
            assert (info["options"], info["draw"]) == (None, random.random())


@law("single")
def a_reset_after_the_end_is_the_only_one(world: World) -> None:
    """An environment that the caller resets steps next; others go on as their mode says."""
    with world.open(3, length=1) as envs:
        envs.reset()
        envs.reset(env_ids=[2], options={"length": 9})
        envs.step([0] * 3)
        start = 3 if world.autoreset == "same_step" else 2
        observations = envs.reset(env_ids=[1], options={"length": 9}).observations
        assert observations[1, 1:].tolist() == [start, 0, -1]
        first = {"next_step": [2, 0, -1], "same_step": [3, 0, -1], "disabled": [1, 1, 0]}
        rows = [first[world.autoreset], [start, 1, 7], [2, 2, 7]]
        assert envs.step([7] * 3).observations[:, 1:].tolist() == rows
        assert envs.get_attr("episode") == [row[0] for row in rows]
        observations = envs.reset(options={"length": 9}).observations
        assert observations[:, 1:].tolist() == [[row[0] + 1, 0, -1] for row in rows]
        assert envs.step([7] * 3).observations[:, 2].tolist() == [1] * 3


@law("next_step")
def next_step_resets_in_the_step_that_follows(world: World) -> None:
    """That step ignores the action, and has the reset's observation and no reward."""
    with world.open(2, length=2) as envs:
        envs.reset(seed=0)
        envs.step([5, 5])
        last = envs.step([5, 5])
        assert last.terminated.all()
        assert last.observations[:, 2].tolist() == [2, 2]
        first = envs.step([5, 5])
        assert not (first.terminated | first.truncated).any()
        assert first.rewards.tolist() == [0, 0]
        assert first.observations[:, 1:].tolist() == [[2, 0, -1]] * 2


@law("same_step", "single")
def same_step_resets_in_the_step_that_ends_the_episode(world: World) -> None:
    """The final observation and info are in the info."""
    with world.open(2, length=2) as envs:
        envs.reset(seed=0)
        envs.step([5, 5])
        last = envs.step([5, 6])
        assert last.terminated.all()
        assert last.observations[:, 1:].tolist() == [[2, 0, -1]] * 2
        assert [info["final_obs"][2:].tolist() for info in last.infos] == [[2, 5], [2, 6]]
        assert [info["final_info"] for info in last.infos] == [
            {"now": 2, "action": 5},
            {"now": 2, "action": 6},
        ]


@law("disabled", "single")
def a_finished_environment_holds_still(world: World) -> None:
    """With ``disabled``, steps repeat the last observation and flags, without a reward."""
    for truncates in (False, True):
        with world.open(3, length=2, truncates=truncates) as envs:
            envs.reset(seed=0)
            envs.reset(env_ids=[1], options={"length": 4})
            envs.step([5] * 3)
            last = envs.step([5] * 3)
            flags = last.truncated if truncates else last.terminated
            assert flags.tolist() == [True, False, True]
            for k in (3, 4, 5):
                still = envs.step([7] * 3)
                for now, before in zip(still[:4], last[:4], strict=True):
                    expected = np.zeros(2) if now is still.rewards else before[[0, 2]]
                    np.testing.assert_array_equal(now[[0, 2]], expected)
                assert still.infos[::2] == [{}, {}]
                assert still.observations[1, 2] == min(k, 4)
            assert envs.get_attr("now") == [2, 4, 2]
            envs.reset(env_ids=[0])
            assert envs.step([7] * 3).observations[:, 2].tolist() == [1, 4, 2]


@law()
def a_call_for_no_environment_does_nothing(world: World) -> None:
    """The call returns the latest observations, or an empty result, in the usual form."""
    with world.open(3, length=9) as envs:
        reset = envs.reset(seed=0)
        assert_same(envs.reset(env_ids=[]).observations, reset.observations)
        if "single" in world.has:
            some = envs.step([1], env_ids=[0])
            empty: list[Any] = [[], (), np.array([]), range(0)]
            for ids in empty:
                again = envs.reset(seed=7, options={"length": 1}, env_ids=ids)
                assert again.observations[:, 2].tolist() == [1, 0, 0]
                assert again.infos == [{}] * 3
                step = envs.step([], env_ids=ids)
                for none, one in zip(step[:4], some[:4], strict=True):
                    assert (none.shape, none.dtype) == ((0, *one.shape[1:]), one.dtype)
                assert step.infos == envs.render(env_ids=ids) == envs.restart(env_ids=ids) == []
                envs.send([], ids)
            assert envs.render() == ["1:1", "1:0", "1:0"]
            assert envs.get_attr("length") == [9] * 3
        else:
            assert envs.step([], env_ids=[]).observations.shape == (0, 4)
            assert envs.restart([]) == []
