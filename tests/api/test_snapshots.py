"""Snapshots of each kind of environment, and refusals; see ``agym.testing.laws.snapshots``."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.testing import AsyncScriptedEnv, ScriptedEnv, assert_same
from tests.support.backends import FORK
from tests.support.drivers import each_mode
from tests.support.envs.drifting_envs import Cornered, Drifting, play

pytestmark = pytest.mark.xdist_group("compiled")

RULES: dict[str, Any] = {"backend": "vector", "engine": "python"}
KINDS = [
    pytest.param(Cornered, {"backend": "serial", "on_fault": "replay"}, "actions", id="actions"),
    pytest.param("agym/FrozenLake-v1", RULES, "methods", id="vector"),
    pytest.param("agym/FrozenLake-v1", {"backend": "serial"}, "attributes", id="rules"),
    pytest.param("CartPole-v1", {"backend": FORK, "workers": 2}, "attributes", id="process"),
]
each_kind = pytest.mark.parametrize(("env", "options", "way"), KINDS)


@each_mode
@each_kind
def test_a_restored_environment_continues_exactly(
    env: Any, options: dict[str, Any], way: str, mode: str
) -> None:
    """The infos are restored, too, and each way to copy an environment is taken."""
    with agym.make(env, 6, autoreset=mode, **options) as envs:
        envs.reset(seed=3)
        latest = play(envs, 30, seed=1)[-1]
        snapshots = envs.snapshot()
        assert snapshots[0].way == way
        once = play(envs, 40, seed=2)
        envs.restore(snapshots[4], [1, 2])
        for info, before in zip(envs.restore(snapshots).infos, latest.infos, strict=True):
            assert_same(info, {k: v for k, v in before.items() if not k.startswith("final_")})
        assert_same(once, play(envs, 40, seed=2))


@pytest.mark.parametrize("taken", ["next_step", "disabled"])
@each_mode
@each_kind
def test_an_ended_episode_waits_for_a_reset_as_the_mode_says(
    env: Any, options: dict[str, Any], way: str, mode: str, taken: str
) -> None:
    """In whichever mode the snapshot was taken, and though it is taken again."""
    with agym.make(env, 2, autoreset=taken, **options) as envs:
        envs.reset(seed=3)
        while not any(flags := tuple(bool(column[0]) for column in envs.step([1, 1])[2:4])):
            pass
        snapshot = envs[0].snapshot()
        assert snapshot.state.flags == flags
    with agym.make(env, 2, autoreset=mode, **options) as envs:
        envs.reset(seed=4)
        envs.restore(snapshot, [1])
        again = envs[1].snapshot()
        envs.step([1, 1])
        envs.restore(again, [1])
        observations, rewards, *columns, _ = envs.step([1, 1])
        held = mode == "disabled"
        assert rewards[1] == 0
        assert tuple(column[1] for column in columns) == (flags if held else (False, False))
        if held:
            assert_same(observations[1], snapshot.observation)
            envs.reset(env_ids=[1])
        later = [envs.step([1, 1]) for _ in range(200)]
        assert any(row.terminated[1] or row.truncated[1] for row in later)
        assert envs[1].snapshot().state.episode.number > snapshot.state.episode.number


@given(st.data())
def test_any_order_of_steps_snapshots_and_restores(data: st.DataObject) -> None:
    """Each environment is where its history leads when it is played again from the beginning."""
    mode = data.draw(st.sampled_from(["disabled", "next_step", "same_step"]))
    kinds = st.lists(st.sampled_from(["step", "snapshot", "restore"]), min_size=1, max_size=8)
    kept: list[tuple[list[int], agym.Snapshot]] = []
    with (
        agym.make(Drifting, 3, autoreset=mode) as envs,
        agym.make(Drifting, 1, autoreset=mode) as oracle,
    ):
        envs.reset(seed=0)
        histories = [[0], [1], [2]]  # the seed, then the actions
        for kind in data.draw(kinds):
            ids = sorted(data.draw(st.sets(st.integers(0, 2), min_size=1)))
            if kind == "snapshot":
                kept.append((histories[ids[0]], envs[ids[0]].snapshot()))
            elif kind == "restore" and kept:
                history, snapshot = data.draw(st.sampled_from(kept))
                envs.restore(snapshot, ids)
                for i in ids:
                    histories[i] = history
            else:
                actions = [data.draw(st.integers(0, 1)) for _ in ids]
                envs.step(actions, env_ids=ids)
                for i, action in zip(ids, actions, strict=True):
                    histories[i] = [*histories[i], action]
        latest = envs.step([1, 1, 1])
        for i, (seed, *actions) in enumerate(histories):
            oracle.reset(seed=seed)
            *_, expected = [oracle.step([action]) for action in [*actions, 1]]
            for ours, theirs in zip(latest[:4], expected[:4], strict=True):
                assert_same(ours[i], theirs[0])


def test_branches_stay_in_their_group() -> None:
    with agym.make(Drifting, 6) as envs:
        envs.reset(seed=1)
        left, right = envs.split(2)
        assert [env.index for env in right[0].branch()] == [1, 2]
        assert [env.index for env in right[1].branch(1)] == [0]
        assert right[1].branch(0) == []
        places = [at.tolist() for at in (*left.get_attr("at"), *right.get_attr("at"))]
        assert places[3] == places[4] == places[5]
        assert len({*map(str, places)}) == 4


# ---------------------------------------------------------------- refusals


class Resumable(SyncVectorEnv):
    """Has the methods of environments that can be copied."""

    def get_state(self, index: int) -> Any:
        return self.envs[index].get_wrapper_attr("now")

    def set_state(self, index: int, state: Any) -> None:
        self.envs[index].set_wrapper_attr("now", state)


def test_a_snapshot_of_another_kind_of_environment_is_refused() -> None:
    with (
        agym.make(AsyncScriptedEnv, 2) as coroutines,
        agym.make(
            lambda num_envs: Resumable([ScriptedEnv] * num_envs), 2, backend="vector"
        ) as programs,
    ):
        for envs, others in ((coroutines, programs), (programs, coroutines)):
            envs.reset(seed=1)
            others.reset(seed=1)
            snapshot, _ = envs.snapshot()
            assert snapshot.way == "methods"
            with pytest.raises(agym.AgymError, match="another kind of environment"):
                others.restore(snapshot, [0])


def test_a_snapshot_of_another_environment_is_refused() -> None:
    with (
        agym.make("FrozenLake-v1", 1, is_slippery=False) as envs,
        agym.make("FrozenLake-v1", 1, is_slippery=True) as slippery,
        agym.make("CartPole-v1", 1) as poles,
    ):
        for others in (envs, slippery, poles):
            others.reset(seed=1)
        with pytest.raises(agym.SnapshotError, match="is_slippery"):
            slippery.restore(envs.snapshot())
        with pytest.raises(agym.SnapshotError, match="CartPole-v1 does not fit environment 0"):
            envs.restore(poles.snapshot())
        envs.step([0])


def test_a_vector_environment_without_methods_for_it_cannot_be_copied() -> None:
    with agym.make("CartPole-v1", 2, backend="vector") as envs:
        envs.reset(seed=1)
        with pytest.raises(agym.SnapshotError, match="has no get_state"):
            envs.snapshot()
        envs.step([0, 1])


def test_what_cannot_be_copied_is_copied_by_its_actions_from_the_next_reset_on() -> None:
    with agym.make(Cornered, 2) as envs:
        envs.reset(seed=1)
        with pytest.raises(agym.SnapshotError, match=r"environment 0 cannot.*from the next reset"):
            envs.snapshot()
        envs.step([0, 0])  # nothing was lost
        envs.reset(seed=2)
        play(envs, 5, seed=1)
        snapshots = envs.snapshot()
        once = play(envs, 5, seed=2)
        envs.restore(snapshots)
        assert_same(once, play(envs, 5, seed=2))


class Outside:
    """A simulator with a state that only it can copy."""

    at = 0.0

    def __reduce__(self) -> Any:
        raise TypeError("a simulator cannot be pickled")


class Simulated(Drifting):
    def __init__(self) -> None:
        self.outside = Outside()

    def step(self, action: Any) -> Any:
        self.outside.at += 1
        self.at += self.outside.at
        return super().step(action)


def test_workers_learn_of_codecs_that_are_registered_later() -> None:
    with agym.make(Simulated, 2, backend=FORK, workers=2) as envs:
        envs.reset(seed=1)
        with pytest.raises(agym.SnapshotError, match="a simulator cannot be pickled"):
            envs.snapshot()
        agym.snapshot_codecs.register(
            Outside, lambda one: one.at, lambda one, at: setattr(one, "at", at)
        )
        play(envs, 3, seed=1)
        snapshots = envs.snapshot()
        once = play(envs, 9, seed=2)
        envs.restore(snapshots)
        assert_same(once, play(envs, 9, seed=2))
        assert "the state of Outside" in str(snapshots[0])
