"""``on_fault="restart"`` and ``"replay"``: what the laws do not state.

The laws of recovery are in ``agym/testing/laws/recovery.py``, and faults at any moment in
``tests/laws/test_recoveries.py``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing import RandomEnv, Script, ScriptedEnv, World, assert_same
from agym.testing.law import await_for
from tests.support.drivers import FORKED, each_mode, opened
from tests.support.worlds import COROUTINES, PROCESS, SERIAL, over, steps_of

SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "dict": spaces.Dict(
        {"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Text(8), "c": spaces.Discrete(3)}
    ),
    "tuple": spaces.Tuple((spaces.MultiBinary(3), spaces.Text(5))),
    "text": spaces.Text(6),
    "sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
}
COUNT = 5


class Acting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Performs the acts of a script in its steps."""

    def __init__(self, factory: Any, script: Script, number: int) -> None:
        super().__init__(factory())
        self.acts = ScriptedEnv(script, number)

    def step(self, action: Any) -> Any:
        self.acts.step(0)
        return super().step(action)


def run(factory: Any, script: Script, mode: str, **options: Any) -> list[list[Any]]:
    """Return the rows of each environment in several episodes, the later ones without a seed."""
    factories = [partial(Acting, factory, script, i) for i in range(COUNT)]
    run = {"autoreset": mode, "output": "list", "workers": 2, **options}
    with opened("sync", factories, **run) as envs:
        envs.action_space.seed(4)
        results = [[*zip(*envs.reset(seed=9, options={"now": 1}), strict=True)]]
        for k in range(30):
            if k in (12, 25):
                results.append([*zip(*envs.reset(options={"now": k}), strict=True)])
            results.append([*zip(*envs.step(envs.action_space.sample()), strict=True)])
    return [list(column) for column in zip(*results, strict=True)]


@each_mode
@pytest.mark.parametrize(
    ("on_fault", "act", "lost"),
    [("restart", "exit", {2, 3, 4}), ("restart", "raise", {2}), ("replay", "segv", {2})],
)
@pytest.mark.parametrize("kind", [*SPACES, "CartPole"])
def test_any_observations_survive_a_fault(
    kind: str, on_fault: str, act: str, lost: set[int], mode: str, tmp_path: Any
) -> None:
    """The last observation is returned as it was, and environments that go on are not changed."""
    factory: Any = partial(gymnasium.make, "CartPole-v1")
    if kind in SPACES:
        factory = partial(RandomEnv, SPACES[kind], SPACES[kind])
    script = Script(str(tmp_path))
    expected = run(factory, script, mode, backend="serial")
    script.set(2, "step", act, after=2)
    found = run(factory, script, mode, on_fault=on_fault, **FORKED)
    assert not script.is_set(2, "step")
    for i in range(COUNT):
        faults = [k for k, row in enumerate(found[i]) if "fault" in row[-1]]
        assert len(faults) == (i in lost)
        end = faults[0] if faults else len(found[i])
        assert_same(found[i][:end], expected[i][:end])
        if faults:
            observation, reward, terminated, truncated, info = found[i][end]
            assert_same(info.get("final_obs", observation), expected[i][end - 1][0])
            assert (reward, terminated, truncated) == (0.0, False, True)


@pytest.mark.parametrize(("world", "act"), [(SERIAL, "raise"), (PROCESS, "exit")])
def test_a_group_has_the_faults_of_its_environments(world: World, act: str) -> None:
    with world.open(4, length=9, on_fault="restart") as envs:
        envs.reset(seed=3)
        envs.script.set(1, "step", act)
        faults = {}
        for group in envs.split(2):
            result = group.step([7, 8])
            faults |= {
                i: info.get("fault") for i, info in zip(group.env_ids, result.infos, strict=True)
            }
        assert faults[1].env_id == 1
        assert faults[2] is faults[3] is None


@over(PROCESS, COROUTINES)
def test_the_fault_of_a_cancelled_await_is_dropped(world: World) -> None:
    """No later row is off by one."""

    async def cancel_step(envs: Any) -> None:
        assert await await_for(envs.step([1, 2, 3, 4]), 1) is None

    world = replace(world, api="async", autoreset="next_step")
    with world.open(4, on_fault="restart") as envs:
        envs.reset(seed=3)
        envs.script.set(1, "step", "kill")
        envs.run(cancel_step(envs.envs))
        envs.reset(env_ids=[0, 1])
        result = envs.step([5, 6, 7, 8])
        assert steps_of(result) == [[1, 5], [1, 6], [2, 7], [2, 8]]


def test_faults_outside_the_window_are_forgotten() -> None:
    policy = agym.FaultPolicy("restart", max_restarts=1, restart_window=1e-9)
    with PROCESS.open(4, on_fault=policy) as envs:
        for _ in range(3):
            envs.reset()
            envs.script.set(1, "step", "exit")
            assert "fault" in envs.step([1] * 4).infos[1]


# ---------------------------------------------------------------- replays


@over(PROCESS, COROUTINES)
@pytest.mark.parametrize("ids", [[0, 2], [1, 3], [0, 1, 3]])
def test_steps_of_some_environments_are_replayed(world: World, ids: list[int]) -> None:
    with world.open(4, length=99, workers=1, on_fault="replay") as envs:
        for some in (ids, [i for i in range(4) if i not in ids]):
            draws = envs.reset(seed=[50 + i for i in some], env_ids=some).observations[:, 0]
        for k in range(8):
            envs.step([k] * len(ids), env_ids=ids)
        envs.script.set(ids[0], "step", "exit")
        assert "fault" in envs.step([1], env_ids=[ids[0]]).infos[0]
        result = envs.step([2] * 4)
        assert not any("fault" in info for info in result.infos)
        for i in {*range(4)} - {ids[0]}:
            assert result.observations[i, 0] == draws[i]
            assert result.observations[i, 2] == (9 if i in ids else 1)


def test_an_environment_whose_replay_differs_is_truncated() -> None:
    """Scripted environments observe the number of their episode, which a replay cannot repeat."""
    with PROCESS.open(3, workers=1, on_fault="replay") as envs:
        envs.reset(seed=1)
        envs.reset()
        envs.step([1, 2, 3])
        envs.script.set(1, "step", "kill")
        result = envs.step([4, 5, 6])
        reasons = [info["fault"].replay for info in result.infos]
        assert ["different observation" in reason for reason in reasons] == [True, False, True]
        assert result.truncated.tolist() == [True] * 3
        assert result.rewards.tolist() == [0.0] * 3


@pytest.mark.parametrize("limit", [4, 5])
def test_a_replay_needs_all_actions(limit: int) -> None:
    policy = agym.FaultPolicy("replay", replay_limit=limit)
    with PROCESS.open(4, length=99, on_fault=policy) as envs:
        envs.reset(seed=1)
        for _ in range(5):
            envs.step([1] * 4)
        envs.script.set(1, "step", "exit")
        result = envs.step([2] * 4)
        assert result.truncated[0] == ("fault" in result.infos[0]) == (limit == 4)
        if limit == 4:
            assert "replay_limit=4" in result.infos[0]["fault"].replay
        else:
            assert result.observations[0, 2] == 6


@pytest.mark.parametrize("act", ["exit", "raise"])
@over(PROCESS, COROUTINES)
def test_a_replay_that_fails_truncates_the_episode(world: World, act: str) -> None:
    with world.open(4, length=99, on_fault="replay") as envs:
        envs.reset(seed=1)
        envs.step([1] * 4)
        envs.script.set(0, "reset", act)  # performed by the replay
        envs.script.set(1, "step", "exit")
        result = envs.step([2] * 4)
        assert result.truncated.tolist() == [True, True, False, False]
        assert act == "exit" or "its replay raised ValueError" in result.infos[0]["fault"].replay
        envs.reset(env_ids=[0, 1])
        assert steps_of(envs.step([3] * 4)) == [[1, 3], [1, 3], [3, 3], [3, 3]]


def test_an_environment_may_be_replayed_again_and_again() -> None:
    with PROCESS.open(4, length=1000, on_fault="replay") as envs:
        envs.reset(seed=1)
        for k in range(1, 20, 2):
            envs.script.set(1, "step", "kill")
            envs.step([0] * 4)
            envs.reset(env_ids=[1])
            result = envs.step([k % 9] * 4)
            assert not any("fault" in info for info in result.infos)
            assert result.observations[[0, 2, 3], 2].tolist() == [k + 1] * 3
