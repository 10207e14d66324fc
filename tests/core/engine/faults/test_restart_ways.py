"""``on_fault="restart"``: whichever way steps are asked for, whatever is observed."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from tests.support.drivers import FORKED, Setup, each_api, each_mode, played
from tests.support.envs.trapped_envs import Traps
from tests.support.equality import same
from tests.support.patience import deadline
from tests.support.scenarios import (
    ASYNCIO,
    COROUTINES,
    PROCESS,
    SERIAL,
    THREAD,
    over,
    trapped,
    wait_for_threads,
)

# Where it happens and what; whose rows are cut off by it.
each_case = pytest.mark.parametrize(
    ("setup", "what", "cut"),
    [
        (PROCESS, "exit", {0, 1}),
        (COROUTINES, "kill", {0, 1}),
        (THREAD, "hang", {0, 1}),
        *((setup, "plain", {1}) for setup in (PROCESS, COROUTINES, THREAD, ASYNCIO, SERIAL)),
    ],
    ids=lambda value: value.name if isinstance(value, Setup) else str(value),
)


def options(setup: Setup, what: str, **more: Any) -> dict[str, Any]:
    limit = {"timeout": deadline(0.4)} if what == "hang" else {}
    return {**setup.options, "on_fault": "restart", "autoreset": "next_step", **limit, **more}


def step_and_action(observation: Any) -> list[int]:
    numbers: list[int] = observation[1:].tolist()
    return numbers


@pytest.mark.filterwarnings("ignore:worker 0, a thread")
@each_api
@each_case
def test_what_was_sent(setup: Setup, what: str, cut: set[int], api: str, traps: Traps) -> None:
    with played(api, trapped(setup, traps), **options(setup, what)) as envs:
        envs.reset(seed=3)
        traps.set(1, "step", what)
        envs.send([5, 6, 7, 8])
        got = _receive_all(envs)
        assert sorted(got) == [0, 1, 2, 3]
        for i, (observation, reward, truncated, info) in got.items():
            # Env 0 may have ended before the other died; then it is the next step that is cut off.
            if i == 1 or (i in cut and "fault" in info):
                assert (step_and_action(observation), reward, truncated) == ([0, -1], 0.0, True)
                assert info["fault"].env_id == i
            else:
                assert step_and_action(observation) == [1, 5 + i]
                assert "fault" not in info
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            envs.recv()
        cut_before = {i for i in cut if "fault" in got[i][-1]}
        envs.send([8, 7, 6, 5], [3, 2, 1, 0])
        again = _receive_all(envs)
        for i, (observation, _, truncated, info) in again.items():
            if i in cut_before:
                assert step_and_action(observation) == [0, -1]  # the reset that follows
            elif i in cut:
                assert (truncated, "fault" in info) == (True, True)
            else:
                assert step_and_action(observation) == [2, 5 + i]
        traps.release()
    wait_for_threads()


def _receive_all(envs: Any) -> dict[int, tuple[Any, float, bool, dict[str, Any]]]:
    got: dict[int, tuple[Any, float, bool, dict[str, Any]]] = {}
    while len(got) < 4:
        batch = envs.recv()
        for k, i in enumerate(batch.env_ids.tolist()):
            assert i not in got
            got[i] = (
                batch.observations[k],
                float(batch.rewards[k]),
                bool(batch.truncated[k]),
                batch.infos[k],
            )
    return got


@pytest.mark.filterwarnings("ignore:worker 0, a thread")
@each_case
def test_groups(setup: Setup, what: str, cut: set[int], traps: Traps) -> None:
    """Each group is told of its own environments alone."""
    with played("sync", trapped(setup, traps), **options(setup, what)) as player:
        player.reset(seed=3)
        groups = player.split(2)
        traps.set(1, "step", what)
        for group in groups:
            ids = group.env_ids
            result = group.step([*ids])
            for k, i in enumerate(ids):
                info, now = result.infos[k], step_and_action(result.observations[k])
                if i == 1:
                    assert info["fault"].env_id == 1
                    assert now == [0, -1]
                elif i not in cut:
                    assert "fault" not in info
                    assert now == [1, i]
        again = [group.step([0, 0]).infos for group in groups]
        assert sum("fault" in info for infos in again for info in infos) <= len(cut) - 1
        traps.release()
    wait_for_threads()


@pytest.mark.filterwarnings("ignore:worker 0, a thread")
@each_case
def test_some_and_single_ones(setup: Setup, what: str, cut: set[int], traps: Traps) -> None:
    """The row of one that is not in the step is cut off in its next."""
    with played("sync", trapped(setup, traps), **options(setup, what)) as envs:
        envs.reset(seed=3)
        traps.set(1, "step", what)
        result = envs.step([5, 6], env_ids=[1, 3])
        assert result.infos[0]["fault"].operation == "step"
        assert result.truncated.tolist() == [True, False]
        assert [step_and_action(o) for o in result.observations] == [[0, -1], [1, 6]]
        observation, reward, _, truncated, info = envs.envs[0].step(4)
        if 0 in cut:
            assert (step_and_action(observation), reward, truncated) == ([0, -1], 0.0, True)
            assert info["fault"].operation.startswith("idle")
            assert info["fault"].culprit == 1
        else:
            assert (step_and_action(observation), truncated) == ([1, 4], False)
        rest = envs.step([0, 0, 7, 7])
        expected = [[0, -1] if 0 in cut else [2, 0], [0, -1], [1, 7], [2, 7]]
        assert [step_and_action(o) for o in rest.observations] == expected
        assert not any("fault" in info for info in rest.infos)
        traps.release()
    wait_for_threads()


@pytest.mark.filterwarnings("ignore:worker 0, a thread")
@pytest.mark.parametrize("where", ["reset", "step"])
@each_case
async def test_a_step_right_behind_a_reset(
    setup: Setup, what: str, cut: set[int], where: str, traps: Traps
) -> None:
    async with agym.make_async(trapped(setup, traps), **options(setup, what)) as envs:
        await envs.reset(seed=3)
        traps.set(1, where, what)
        resetting = envs.reset(seed=7)
        stepping = envs.step([5, 6, 7, 8])
        result = await stepping
        begun = await resetting
        for i in range(4):
            faults = ["fault" in infos[i] for infos in (begun.infos, result.infos)]
            assert step_and_action(begun.observations[i]) == [0, -1]
            if where == "reset" or i not in cut:
                assert faults == [where == "reset" and i in cut, False]
                assert step_and_action(result.observations[i]) == [1, 5 + i]
                assert result.observations[i][0] == begun.observations[i][0]
            elif i == 1:
                assert faults == [False, True]
                assert step_and_action(result.observations[i]) == [0, -1]
                assert result.truncated[i]
        traps.release()
    wait_for_threads()


SPACES: dict[str, spaces.Space[Any]] = {
    "dict": spaces.Dict(
        {"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Text(8), "c": spaces.Discrete(3)}
    ),
    "tuple": spaces.Tuple((spaces.MultiBinary(3), spaces.Text(5))),
    "text": spaces.Text(6),
    "sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
}


# With it no episode of these ends within five steps.
SEED = 12


class Fragile(RandomEnv):
    """Ends its process in its n-th step, once; it observes and takes anything."""

    def __init__(self, space: spaces.Space[Any], path: str, how: str) -> None:
        super().__init__(space, space)
        self._path, self._how = path, how

    def step(self, action: Any) -> Any:
        if os.path.exists(self._path):  # noqa: PTH110
            os.unlink(self._path)  # noqa: PTH108
            if self._how == "exit":
                os._exit(3)
            raise ValueError("boom")
        return super().step(action)


def _random_story(
    kind: str, mode: str, factories: list[Any], before: Any, **more: Any
) -> list[list[Any]]:
    space = SPACES[kind]
    space.seed(1)
    actions = [[space.sample() for _ in range(4)] for _ in range(8)]
    with played("sync", factories, output="list", autoreset=mode, **more) as envs:
        told = [list(zip(*envs.reset(seed=SEED), strict=True))]
        for k, batch in enumerate(actions):
            before(k)
            told.append([tuple(row) for row in zip(*envs.step(batch), strict=True)])
    return [list(column) for column in zip(*told, strict=True)]


@each_mode
@pytest.mark.parametrize("how", ["exit", "raise"])
@pytest.mark.parametrize("kind", SPACES)
def test_observations_that_are_no_arrays(kind: str, how: str, mode: str, tmp_path: Any) -> None:
    """What an environment last observed comes back in the form in which it gave it."""
    trap = tmp_path / "trap"
    factories: list[Any] = [partial(RandomEnv, SPACES[kind], SPACES[kind])] * 4
    expected = _random_story(kind, mode, factories, lambda _: None)
    factories[1] = partial(Fragile, SPACES[kind], str(trap), how)
    story = _random_story(
        kind, mode, factories, lambda k: k == 3 and trap.touch(), **FORKED, workers=2,
        on_fault="restart",
    )  # fmt: skip
    cut = {0, 1} if how == "exit" else {1}
    for i in range(4):
        if i not in cut:
            assert same(story[i], expected[i])
            continue
        assert same(story[i][:4], expected[i][:4])
        observation, reward, terminated, truncated, info = story[i][4]
        last = info["final_obs"] if mode == "same_step" else observation
        assert same(last, expected[i][3][0])
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["fault"].env_id == i


@over(PROCESS, COROUTINES)
async def test_an_await_that_was_cancelled_before(setup: Setup, traps: Traps) -> None:
    """Its step is dropped, and with it the row that tells; nothing later is off by one."""
    async with agym.make_async(trapped(setup, traps), **options(setup, "kill")) as envs:
        await envs.reset(seed=3)
        traps.set(1, "step", "kill")
        task = asyncio.ensure_future(envs.step([1, 2, 3, 4]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await envs.reset(env_ids=[0, 1])
        result = await envs.step([5, 6, 7, 8])
        now = [step_and_action(o) for o in result.observations]
        assert now == [[1, 5], [1, 6], [2, 7], [2, 8]]


@each_api
@each_mode
def test_two_workers_at_once(api: str, mode: str, traps: Traps) -> None:
    with played(
        api, traps.factories(6), **options(PROCESS, "exit", workers=3, autoreset=mode)
    ) as envs:
        envs.reset(seed=3)
        traps.set(0, "step", "exit")
        traps.set(5, "step", "kill")
        result = envs.step([1, 2, 3, 4, 5, 6])
        assert ["fault" in info for info in result.infos] == [True, True, False, False, True, True]
        assert [info["fault"].worker for info in result.infos if "fault" in info] == [0, 0, 2, 2]
        assert [step_and_action(o) for o in result.observations[2:4]] == [[1, 3], [1, 4]]
        assert envs.step([0] * 6) is not None


@each_api
@over(PROCESS, COROUTINES)
def test_it_dies_between_two_steps(api: str, setup: Setup, traps: Traps) -> None:
    with played(api, trapped(setup, traps), **options(setup, "kill")) as envs:
        envs.reset(seed=3)
        pid = envs.call("pid")[0]
        envs.step([1, 2, 3, 4])
        os.kill(pid, signal.SIGKILL)
        told: list[Any] = []
        for _ in range(6):
            result = envs.step([5, 6, 7, 8])
            told += [(i, info["fault"]) for i, info in enumerate(result.infos) if "fault" in info]
        assert [i for i, _ in told] == [0, 1]
        assert {fault.exitcode for _, fault in told} == {-9}
