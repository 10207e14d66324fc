"""A replay begins at the latest snapshot, and a snapshot may be taken after a recovery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agym import FaultPolicy
from agym.testing import Script, ScriptedEnv, World, assert_same
from tests.support.drivers import each_api
from tests.support.worlds import COROUTINES, PROCESS, SERIAL, over

EVERY = 10


def play(envs: Any, kill_at: int | None = None) -> list[Any]:
    """Step, and take snapshots; return the results of the environments that cause no death."""
    envs.reset(seed=5)
    results = []
    for k in range(70):
        if k == kill_at:
            envs.script.set(0, "step", "kill")
        result = envs.step([k % 9] * 3)
        results.append([*(np.array(column[1:]) for column in result[:4]), result.infos[1:]])
        if k % EVERY == EVERY - 1:
            envs.snapshot()
    return results


@each_api
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@over(PROCESS, COROUTINES)
def test_a_replay_needs_only_the_actions_since_a_snapshot(
    world: World, mode: Any, api: Any
) -> None:
    policy = FaultPolicy("replay", replay_limit=EVERY)
    world = replace(world, workers=1, api=api, autoreset=mode)
    for kill_at in (23, 40, 58):
        with world.open(3, length=30, on_fault=policy) as ours:
            found = play(ours, kill_at)
            assert not ours.script.is_set(0, "step")
        with replace(SERIAL, autoreset=mode).open(3, length=30) as theirs:
            for one, other in zip(found, play(theirs), strict=True):
                assert_same(one, other)


@each_api
@over(PROCESS, COROUTINES)
def test_a_restored_episode_can_be_replayed(world: World, api: Any) -> None:
    with replace(world, api=api).open(2, length=20, workers=1, on_fault="replay") as envs:
        envs.reset(seed=5)
        envs.step([0, 1])
        before = envs.snapshot()
        once = [envs.step([0, 0]) for _ in range(5)]
        envs.restore(before)
        envs.script.set(0, "step", "kill", after=3)
        for step in once:
            found = envs.step([0, 0])
            assert_same(step.observations[1], found.observations[1])
            assert "fault" not in found.infos[1]


@each_api
@over(PROCESS, COROUTINES)
def test_an_ended_episode_that_was_restored_is_still_over(world: World, api: Any) -> None:
    """Its steps did nothing, so that a replay has none to repeat."""
    with replace(world, api=api).open(2, workers=1, on_fault="replay") as envs:
        envs.reset(seed=5)
        for _ in range(3):
            envs.step([0, 0])
        (over,) = envs.snapshot([1])
        envs.reset(seed=6)
        envs.restore(over, [1])
        envs.script.set(0, "step", "kill", after=1)
        for _ in range(4):
            found = envs.step([0, 0])
            assert_same(found.observations[1], over.observation)
            assert (found.rewards[1], found.terminated[1], found.truncated[1]) == (0, True, False)
            assert found.infos[1] == {}


class Sealed(ScriptedEnv):
    """Can only be copied by its actions, and does not observe the number of the episode."""

    episode = property(lambda self: 0, lambda self, value: None)  # type: ignore[assignment]

    def __init__(self, script: Script, number: int) -> None:
        super().__init__(script, number, length=12)
        self.secret = (number for number in range(9))


def open_sealed(script: Script, policy: FaultPolicy) -> Any:
    factories = [lambda i=i: Sealed(script, i) for i in range(2)]  # type: ignore[misc]
    world = replace(PROCESS, workers=1, autoreset="next_step")
    return world.open_envs(factories, on_fault=policy)


@pytest.mark.parametrize("before", [4, 17], ids=["seeded", "unseeded"])
@pytest.mark.parametrize(
    ("policy", "env_id"),
    [(FaultPolicy("replay"), 0), (FaultPolicy("restart", retry=2), 1)],
    ids=["replay", "retry"],
)
def test_a_snapshot_after_a_recovery_continues_exactly(
    policy: FaultPolicy, env_id: int, before: int, tmp_path: Any
) -> None:
    """The snapshot has the actions since the start of the episode, also those before the fault."""
    script = Script(str(tmp_path))

    def continued(envs: Any) -> list[Any]:
        steps = (envs.step([k % 9] * 2) for k in range(20))
        return [[np.array(column[env_id]) for column in step[:4]] for step in steps]

    with open_sealed(script, policy) as envs, open_sealed(script, policy) as others:
        envs.reset(seed=3)
        for k in range(before):
            envs.step([k % 9] * 2)
        script.set(1, "step", "kill")
        infos = envs.step([1, 2]).infos
        assert "fault" in infos[1]
        assert ("fault" in infos[0]) == (env_id == 1)
        for _ in range(4):
            envs.step([3, 4])
        (snapshot,) = envs.snapshot([env_id])
        assert snapshot.way == "actions"
        once = continued(envs)
        assert any(row[2] for row in once)
        others.reset(seed=50)
        observations, _ = others.restore(snapshot, [env_id])
        assert_same(observations[env_id], snapshot.observation)
        assert_same(continued(others), once)
