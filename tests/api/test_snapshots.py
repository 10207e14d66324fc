"""Snapshots: whoever restores one goes on as the original would have."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.testing import assert_same
from tests.support.backends import FORK
from tests.support.drivers import each_api, each_mode, opened
from tests.support.envs.drifting_envs import Cornered, Drifting, Words, assert_same_steps, play

BACKENDS = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": "thread"}, id="thread"),
    pytest.param({"backend": FORK, "workers": 2}, id="process"),
]
pytestmark = pytest.mark.xdist_group("compiled")


@pytest.mark.parametrize("options", BACKENDS)
@each_api
@each_mode
@pytest.mark.parametrize("env", [Drifting, "CartPole-v1"])
def test_it_goes_on_as_it_would_have(
    options: dict[str, Any], api: str, mode: str, env: Any
) -> None:
    with opened(api, env, 5, autoreset=mode, **options) as envs:
        envs.reset(seed=3, options={"from": 0.01} if env is Drifting else None)
        latest = play(envs, 40, seed=1)[-1]
        snapshots = envs.snapshot()
        once = play(envs, 60, seed=2)
        observations, infos = envs.restore(snapshots)
        assert_same(observations, [one.observation for one in snapshots])
        finals = {"final_obs", "final_info"}
        assert_same(
            infos, [{k: v for k, v in info.items() if k not in finals} for info in latest.infos]
        )
        assert_same_steps(once, play(envs, 60, seed=2))
        envs.restore(snapshots[3])
        for result in play(envs, 5, seed=0)[:1]:
            assert len({str(one) for one in result.observations}) <= 2  # two actions


@pytest.mark.parametrize("options", BACKENDS)
@pytest.mark.parametrize("env", [Drifting, Cornered])
def test_it_goes_on_elsewhere(options: dict[str, Any], env: Any) -> None:
    """In other environments, of another process, after the first have ended."""
    keywords: dict[str, Any] = {"autoreset": "next_step", "on_fault": "replay"}
    with agym.make(env, 3, **keywords, **options) as envs:
        envs.reset(seed=3)
        play(envs, 25, seed=1)
        snapshots = pickle.loads(pickle.dumps(envs.snapshot()))
        once = play(envs, 30, seed=2)
    with agym.make(env, 3, backend="serial", **keywords) as others:
        others.restore(snapshots)  # without a reset
        assert_same_steps(once, play(others, 30, seed=2))
    assert snapshots[0].way == ("actions" if env is Cornered else "attributes")


RULES: dict[str, Any] = {"backend": "vector", "engine": "python"}
KINDS = [
    *[pytest.param(Drifting, *option.values, id=str(option.id)) for option in BACKENDS],
    pytest.param(Cornered, {"backend": "serial", "on_fault": "replay"}, id="actions"),
    pytest.param(Words, {"backend": "asyncio"}, id="asyncio"),
    pytest.param(Words, {"backend": FORK, "workers": 2}, id="process-coroutines"),
    pytest.param("agym/FrozenLake-v1", RULES, id="vector"),
    pytest.param("agym/FrozenLake-v1", {"backend": "serial"}, id="rules"),
]


def ended(envs: Any) -> agym.Snapshot:
    """A snapshot of the first environment, whose episode has just ended."""
    envs.reset(seed=3)
    while not any(flags := [bool(column[0]) for column in envs.step([1, 1])[2:4]]):
        pass
    (snapshot,) = envs.snapshot([0])
    assert snapshot.state.flags == tuple(flags)
    return snapshot


@pytest.mark.parametrize("taken", ["next_step", "disabled"])
@each_mode
@pytest.mark.parametrize(("env", "options"), KINDS)
def test_an_ended_episode_waits_for_a_reset_as_the_mode_says(
    env: Any, options: dict[str, Any], mode: str, taken: str
) -> None:
    """Whichever mode the snapshot was taken under, and however often it is taken again."""
    with agym.make(env, 2, autoreset=taken, **options) as envs:
        snapshot = ended(envs)
    with agym.make(env, 2, autoreset=mode, **options) as envs:
        envs.reset(seed=4)
        envs.restore(snapshot, [1])
        (again,) = envs.snapshot([1])
        envs.step([1, 1])
        envs.restore(again, [1])
        observations, rewards, *flags, _ = envs.step([1, 1])
        assert rewards[1] == 0
        if mode == "disabled":
            assert_same(observations[1], snapshot.observation)
            assert tuple(column[1] for column in flags) == snapshot.state.flags
            envs.reset(env_ids=[1])
        else:
            assert not any(column[1] for column in flags)
        rows = [envs.step([1, 1]) for _ in range(200)]  # and so do the episodes that follow
        assert any(row.terminated[1] or row.truncated[1] for row in rows)
        if mode != "disabled":
            assert not all(row.terminated[1] or row.truncated[1] for row in rows)
        assert envs.snapshot([1])[0].state.episode.number > snapshot.state.episode.number


@given(st.data())
def test_any_order_of_steps_snapshots_and_restores(data: st.DataObject) -> None:
    """As with as many environments for which everything is played again from the beginning."""
    actions = st.lists(st.integers(0, 1), min_size=3, max_size=3)
    ids = st.lists(st.integers(0, 2), unique=True, min_size=1).map(sorted)
    kept: list[tuple[list[int], agym.Snapshot]] = []
    mode = data.draw(st.sampled_from(["disabled", "next_step", "same_step"]))
    with (
        agym.make(Drifting, 3, autoreset=mode) as envs,
        agym.make(Drifting, 1, autoreset=mode) as oracle,
    ):
        envs.reset(seed=0)
        histories = [[0], [1], [2]]  # the seed, then actions
        for _ in range(data.draw(st.integers(1, 8))):
            what = data.draw(st.sampled_from(["step", "some", "snapshot", "restore"]))
            some = data.draw(ids)
            if what == "snapshot":
                (one,) = envs.snapshot([some[0]])
                kept.append(([*histories[some[0]]], one))
            elif what == "restore" and kept:
                history, one = data.draw(st.sampled_from(kept))
                envs.restore(one, some)
                for i in some:
                    histories[i] = [*history]
            else:
                given_actions = data.draw(actions)
                some = some if what == "some" else [0, 1, 2]
                envs.step([given_actions[i] for i in some], env_ids=some)
                for i in some:
                    histories[i].append(given_actions[i])
        latest = envs.step([1, 1, 1])
        for i, history in enumerate(histories):
            oracle.reset(seed=history[0])
            for action in history[1:]:
                oracle.step([action])
            expected = oracle.step([1])
            assert_same(latest.observations[i], expected.observations[0])
            assert latest.rewards[i] == expected.rewards[0]
            assert latest.terminated[i] == expected.terminated[0]


@each_api
@pytest.mark.parametrize("options", BACKENDS)
def test_branches(api: str, options: dict[str, Any]) -> None:
    with opened(api, Drifting, 5, **options) as envs:
        envs.reset(seed=1)
        play(envs, 7, seed=1)
        if api == "sync":
            into = envs[2].branch(3, into=[4, 0, 1])
        else:
            into = envs.runner.run(envs.envs[2].branch(3, into=[4, 0, 1]))
        assert [env.index for env in into] == [4, 0, 1]
        observations = envs.step([1] * 5).observations
        assert_same(observations[:3] + observations[4:], [observations[2]] * 4)
        assert str(observations[3]) != str(observations[2])


def test_branches_need_others() -> None:
    with agym.make(Drifting, 3) as envs:
        envs.reset(seed=1)
        with pytest.raises(agym.UsageError, match="only 2 other environments"):
            envs[0].branch(3)
        with pytest.raises(agym.UsageError, match="must name 2 environments other than 0"):
            envs[0].branch(2, into=[0, 1])
        assert [env.index for env in envs[1].branch(2)] == [0, 2]
        assert [env.index for env in envs[1].branch()] == [0, 2]
        assert [env.index for env in envs[1].branch(into=(2,))] == [2]
        assert envs[1].branch(0) == []
        with pytest.raises(agym.UsageError, match="must name 1 environments other than"):
            envs[1].branch(into=[1])


def test_branches_stay_in_their_group() -> None:
    with agym.make(Drifting, 6) as envs:
        envs.reset(seed=1)
        left, right = envs.split(2)
        assert [env.index for env in right[0].branch()] == [1, 2]
        assert_same(right.get_attr("at")[1:], [right.get_attr("at")[0]] * 2)
        assert str(left.get_attr("at")[0]) != str(left.get_attr("at")[1])


async def test_a_snapshot_waits_its_turn() -> None:
    async with agym.make_async(Drifting, 4, backend=FORK, workers=2, output="list") as envs:
        await envs.reset(seed=1)
        before = envs.step([0] * 4)
        taken = envs.snapshot()
        after = envs.step([1] * 4) if before.done() else None
        observations = (await before).observations
        assert_same(observations, [one.observation for one in await taken])
        if after is not None:
            await after


async def test_of_steps_that_were_sent() -> None:
    async with agym.make_async(Drifting, 4, backend=FORK, workers=2, output="list") as envs:
        await envs.reset(seed=1)
        envs.send([0] * 4)
        taken = await envs.snapshot([1, 3])
        batch = await envs.recv(min_envs=4)
        by_id = dict(zip(batch.env_ids, batch.observations, strict=True))
        assert_same([by_id[1], by_id[3]], [one.observation for one in taken])


@pytest.mark.parametrize("backend", ["asyncio", FORK])
async def test_coroutine_environments(backend: Any) -> None:
    async with agym.make_async(Words, 4, backend=backend, output="list") as envs:
        await envs.reset(seed=5)
        await envs.step(["a", "b", "c", "d"])
        snapshot = await envs[1].snapshot()
        assert snapshot.way == "methods"
        await envs.step(["x"] * 4)
        for env in [envs[1], *await envs[1].branch(1)]:
            assert await env.restore(snapshot) == ((6, "b"), {"latest": "b"})
            assert (await env.step("e"))[0] == (6, "b", "e")


@each_mode
def test_a_program_of_rules(mode: str) -> None:
    options: dict[str, Any] = {"backend": "vector", "engine": "python", "autoreset": mode}
    with agym.make("agym/FrozenLake-v1", 6, **options) as envs:
        envs.reset(seed=3)
        latest = play(envs, 30, seed=1)[-1]
        snapshots = envs.snapshot()
        once = play(envs, 40, seed=2)
        envs.restore(snapshots[4], [1, 2])
        infos = envs.restore(snapshots).infos
        assert [info.get("prob") for info in infos] == [info.get("prob") for info in latest.infos]
        assert_same_steps(once, play(envs, 40, seed=2))
        assert snapshots[0].way == "methods"


class Steps:
    """A coroutine environment with the spaces of ``Resumable``."""

    observation_space = action_space = spaces.Discrete(9)
    at = 0

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.at, {}

    async def step(self, action: Any) -> Any:
        self.at += 1
        return self.at, 0.0, False, False, {}

    async def close(self) -> None: ...

    async def snapshot(self) -> int:
        return self.at

    async def restore(self, state: int) -> None:
        self.at = state


class Resumable(VectorEnv[Any, Any, Any]):
    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space = single_action_space = spaces.Discrete(9)

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.at = np.zeros(num_envs, np.int64)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.at.copy(), {}

    def step(self, actions: Any) -> Any:
        self.at += 1
        no = np.zeros(self.num_envs, bool)
        return self.at.copy(), np.zeros(self.num_envs), no, no, {}

    def get_state(self, index: int) -> int:
        return int(self.at[index])

    def set_state(self, index: int, state: int) -> None:
        self.at[index] = state


def test_methods_of_one_kind_are_not_given_states_of_another() -> None:
    with agym.make(Steps, 2) as coroutines, agym.make(Resumable, 2, backend="vector") as programs:
        for envs, others in ((coroutines, programs), (programs, coroutines)):
            envs.reset(seed=1)
            others.reset(seed=1)
            (snapshot, _) = envs.snapshot()
            assert snapshot.way == "methods"
            with pytest.raises(agym.AgymError, match="another kind of environment"):
                others.restore(snapshot, [0])


def test_programs_that_cannot_say_so() -> None:
    with agym.make("CartPole-v1", 2, backend="vector") as envs:
        envs.reset(seed=1)
        with pytest.raises(agym.SnapshotError, match="has no get_state"):
            envs.snapshot()
        envs.step([0, 1])


# ---------------------------------------------------------------- refusals


def test_what_cannot_be_copied_is_refused_until_its_next_episode() -> None:
    with agym.make(Cornered, 2) as envs:
        envs.reset(seed=1)
        with pytest.raises(
            agym.SnapshotError, match=r"environment 0 cannot.*from the next reset on"
        ):
            envs.snapshot()
        envs.step([0, 0])  # nothing was lost
        envs.reset(seed=2)
        play(envs, 5, seed=1)
        snapshots = envs.snapshot()
        once = play(envs, 5, seed=2)
        envs.restore(snapshots)
        assert_same_steps(once, play(envs, 5, seed=2))


def test_before_the_first_reset() -> None:
    with agym.make(Drifting, 2) as envs, pytest.raises(agym.ResetNeededError):
        envs.snapshot()


def test_other_environments_are_refused() -> None:
    with agym.make(Drifting, 2) as envs, agym.make("CartPole-v1", 2) as others:
        envs.reset(seed=1)
        others.reset(seed=1)
        with pytest.raises(agym.SnapshotError, match=r"CartPole-v1 does not fit environment 0"):
            envs.restore(others.snapshot())
        with pytest.raises(agym.UsageError, match="2 snapshots for 1 env"):
            envs.restore(envs.snapshot(), [0])
        with pytest.raises(agym.UsageTypeError, match="not int"):
            envs.restore([5, 5])  # type: ignore[list-item]
        envs.step([0, 0])


def test_other_arguments_are_refused() -> None:
    with (
        agym.make("FrozenLake-v1", 1, is_slippery=False) as envs,
        agym.make("FrozenLake-v1", 1, is_slippery=True) as others,
    ):
        envs.reset(seed=1)
        with pytest.raises(agym.SnapshotError, match="is_slippery"):
            others.restore(envs.snapshot())


# ---------------------------------------------------------------- codecs


class Outside:
    """A simulator with a state that only it can copy."""

    def __init__(self) -> None:
        self.at = 0.0

    def __reduce__(self) -> Any:
        raise TypeError("a simulator cannot be pickled")


class Simulated(Drifting):
    def __init__(self) -> None:
        self.outside = Outside()

    def step(self, action: Any) -> Any:
        self.outside.at += 1
        self.at += self.outside.at
        return super().step(action)


def test_workers_learn_what_is_registered_later() -> None:
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
        assert_same_steps(once, play(envs, 9, seed=2))
        assert "the state of Outside" in str(snapshots[0])


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        (2, "env_ids must be a sequence of integers"),
        ([0, 0], "each at most once"),
        ([5], "must name some of the environments 0 to 2"),
        ([0], "2 snapshots for 1 environments"),
    ],
)
def test_wrong_ids(ids: Any, error: str) -> None:
    with agym.make(Drifting, 3) as envs:
        envs.reset(seed=1)
        snapshots = envs.snapshot([0, 1])
        before = envs.get_attr("at")
        with pytest.raises(agym.UsageError, match=error):
            envs.restore(snapshots, ids)
        with pytest.raises(agym.UsageTypeError, match="restore takes snapshots, not NoneType"):
            envs.restore(None)  # type: ignore[arg-type]
        assert_same(envs.get_attr("at"), before)
        envs.restore(iter(snapshots), iter((2, 1)))  # type: ignore[arg-type]
        assert_same(envs.get_attr("at"), [before[0], before[1], before[0]])
