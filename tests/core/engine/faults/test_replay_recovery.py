"""``on_fault="replay"``: who only shared the worker is where it was, to the last bit."""

from __future__ import annotations

import faulthandler
import os
import signal
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from tests.support.drivers import FORKED, Setup, each_api, each_mode, played
from tests.support.envs.plain_envs import Tally
from tests.support.envs.trapped_envs import Traps
from tests.support.equality import same
from tests.support.scenarios import (
    COROUTINES,
    PROCESS,
    disturbed,
    over,
    play,
    trapped,
    undisturbed,
)

NESTED = spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Text(6)})
CULPRIT = 2


class Wrapped(gym.Wrapper[Any, Any, Any, Any]):
    """Kills its process in a step while there is a file."""

    def __init__(self, env: gym.Env[Any, Any], path: str) -> None:
        super().__init__(env)
        self._path = path

    def step(self, action: Any) -> Any:
        if os.path.exists(self._path):  # noqa: PTH110
            os.unlink(self._path)  # noqa: PTH108
            faulthandler.disable()  # this death is intended: no traceback is of use
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


def random_env(path: str, space: spaces.Space[Any]) -> gym.Env[Any, Any]:
    return Wrapped(RandomEnv(space, space), path)


def cart_pole(path: str) -> gym.Env[Any, Any]:
    return Wrapped(gym.make("CartPole-v1"), path)


MAKERS: dict[str, Any] = {
    "CartPole": cart_pole,
    "box": partial(random_env, space=spaces.Box(-1, 1, (2, 3))),
    "nested": partial(random_env, space=NESTED),
    "text": partial(random_env, space=spaces.Text(5)),
}


def story(maker: Any, mode: str, trap: Any, at: int | None, options: Any = None) -> Any:
    """Steps over several episodes, the later ones begun without a seed."""
    factories = [partial(maker, str(trap) if i == CULPRIT else "/nowhere") for i in range(5)]
    run = {**FORKED, "workers": 2, "on_fault": "replay", "autoreset": mode, "output": "list"}
    told = []
    with played("sync", factories, **run) as envs:
        envs.action_space.seed(4)
        told.append([*zip(*envs.reset(seed=9, options=options), strict=True)])
        for k in range(60):
            if k == at:
                trap.touch()
            if k in (20, 41):
                reset = envs.reset(options={"now": k} if options else None)
                told.append([*zip(*reset, strict=True)])
            told.append([*zip(*envs.step(envs.action_space.sample()), strict=True)])
    return [list(column) for column in zip(*told, strict=True)]


@each_mode
@pytest.mark.parametrize("at", [13, 50])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_others_go_on_as_if_nothing_had_been(
    kind: str, at: int, mode: str, tmp_path: Any
) -> None:
    options = {"some": [1, 2]} if kind != "CartPole" else None
    expected = story(MAKERS[kind], mode, tmp_path / "trap", None, options)
    told = story(MAKERS[kind], mode, tmp_path / "trap", at, options)
    changed = {i for i in range(5) if not same(told[i], expected[i])}
    assert changed <= {CULPRIT}
    if CULPRIT in changed:
        (fault,) = [row[-1]["fault"] for row in told[CULPRIT] if "fault" in row[-1]]
        assert (fault.culprit, fault.exitcode, fault.replay) == (CULPRIT, -11, "")
    else:
        assert mode == "disabled", "it held still all the time"


@each_api
@over(PROCESS, COROUTINES)
def test_nobody_is_cut_off_when_the_worker_idled(api: str, setup: Setup, traps: Traps) -> None:
    options = {**setup.options, "on_fault": "replay", "autoreset": "next_step"}
    with played(api, trapped(setup, traps), **options) as envs:
        pid = envs.call("pid")[0]
        told = play(envs, lambda k: os.kill(pid, signal.SIGKILL) if k == 7 else None)
        assert envs.call("pid")[0] != pid
    assert disturbed(told, undisturbed("next_step")) in ({}, {0: 8, 1: 8}, {0: 8}, {1: 8})


@over(PROCESS, COROUTINES)
@pytest.mark.parametrize("ids", [[0, 2], [1, 3], [0, 1, 3]])
def test_environments_that_are_no_neighbours(setup: Setup, ids: list[int], traps: Traps) -> None:
    """Their resets and steps are logged as all others."""
    options = {**setup.options, "workers": 1, "on_fault": "replay", "autoreset": "next_step"}
    with played("sync", trapped(setup, traps), **options) as envs:
        envs.reset(seed=3)
        first = envs.reset(seed=[50 + i for i in ids], env_ids=ids)
        for k in range(8):  # over the end of an episode
            envs.step([k] * len(ids), env_ids=ids)
        culprit = ids[0]
        traps.set(culprit, "step", "exit")
        envs.step([1], env_ids=[culprit])
        result = envs.step([2] * 4)
        assert ["fault" in info for info in result.infos] == [False] * 4
        others = [i for i in range(4) if i != culprit]
        assert [result.observations[i][1] for i in others] == [3 if i in ids else 1 for i in others]
        for i in others:
            if i not in ids:
                assert result.observations[i][0] == first[0][i][0]


class Forgetful(Tally):
    """Observes how often it was reset in its life: no function of seed and actions."""


@each_mode
def test_one_that_is_no_function_of_seed_and_actions(mode: str, tmp_path: Any) -> None:
    trap = tmp_path / "trap"
    factories: list[Any] = [
        partial(Forgetful, 1000), lambda: Wrapped(Tally(1000), str(trap)), Tally
    ]  # fmt: skip
    options = {**FORKED, "workers": 1, "on_fault": "replay", "autoreset": mode}
    with played("sync", factories, **options) as envs:
        envs.reset(seed=1)
        envs.reset()
        envs.step([1, 2, 3])
        trap.touch()
        result = envs.step([4, 5, 6])
        for i in (0, 2):
            fault = result.infos[i]["fault"]
            assert "different observation" in fault.replay
            assert (bool(result.truncated[i]), float(result.rewards[i])) == (True, 0.0)
        assert result.infos[1]["fault"].replay == ""


@pytest.mark.parametrize("limit", [4, 5])
def test_more_actions_than_are_kept(limit: int, traps: Traps) -> None:
    policy = agym.FaultPolicy("replay", replay_limit=limit)
    options = {**PROCESS.options, "on_fault": policy}
    with played("sync", traps.factories(4, length=1000), **options) as envs:
        envs.reset(seed=1)
        for _ in range(5):
            envs.step([1] * 4)
        traps.set(1, "step", "exit")
        result = envs.step([2] * 4)
        if limit == 5:
            assert "fault" not in result.infos[0]
            assert result.observations[0][1] == 6
        else:
            assert "replay_limit=4" in result.infos[0]["fault"].replay
            assert result.truncated[0]


@pytest.mark.parametrize("how", ["exit", "plain"])
@over(PROCESS, COROUTINES)
def test_a_replay_that_goes_wrong_itself(setup: Setup, how: str, traps: Traps) -> None:
    options = {**setup.options, "on_fault": "replay", "autoreset": "next_step"}
    with played("sync", trapped(setup, traps, length=1000), **options) as envs:
        envs.reset(seed=1)
        envs.step([1] * 4)
        traps.set(0, "reset", how)  # that is when it is brought back
        traps.set(1, "step", "exit")
        result = envs.step([2] * 4)
        assert result.truncated.tolist() == [True, True, False, False]
        fault = result.infos[0]["fault"]
        if how == "plain":
            assert "its replay raised ValueError" in fault.replay
        assert [o[1] for o in result.observations[2:]] == [2, 2]
        after = envs.step([3] * 4)
        assert [o[1] for o in after.observations] == [0, 0, 3, 3]
        assert not any("fault" in info for info in after.infos)


async def test_it_dies_again_and_again(traps: Traps) -> None:
    """A neighbour that is brought back five times is still where it was."""
    options = {**PROCESS.options, "on_fault": "replay", "autoreset": "next_step"}
    async with agym.make_async(traps.factories(4, length=1000), **options) as envs:
        await envs.reset(seed=1)
        for k in range(20):
            if k % 4 == 1:
                traps.set(1, "step", "kill")
            result = await envs.step([k % 9] * 4)
            assert [result.observations[i][1] for i in (0, 2, 3)] == [k + 1] * 3
            assert ("fault" in result.infos[1]) == (k % 4 == 1)
