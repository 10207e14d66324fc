"""Rollouts against a plain loop, and the program runner."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
from gymnasium import spaces

import agym
from agym.rollouts.rollout import TRIAL_GROUPS, Groups, group_counts
from agym.testing import Script, ScriptedEnv, assert_same
from agym.testing.random_env import RandomEnv
from tests.support.drivers import SETUPS


def lean(observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Push a pole to where it leans."""
    return (observations[:, 2] > 0).astype(np.int64)


async def first(num: int, envs: agym.AsyncEnvs, *arguments: Any, **options: Any) -> list[Any]:
    found = []
    async for rollout in agym.rollout(envs, *arguments, **options):
        found.append(rollout)
        if len(found) == num:
            break
    return found


def by_hand(mode: Any, steps: int) -> dict[str, Any]:
    """One rollout of CartPole by a plain loop over single environments."""
    with agym.make("CartPole-v1", 5, backend="serial", autoreset=mode, output="array") as envs:
        observations, _ = envs.reset(seed=3)
        columns: dict[str, list[Any]]
        columns = {name: [] for name in ("observations", "actions", "rewards", "done")}
        for _ in range(steps):
            columns["observations"].append(observations)
            columns["actions"].append(lean(observations))
            result = envs.step(lean(observations))
            observations = result.observations
            columns["rewards"].append(result.rewards)
            columns["done"].append(result.terminated | result.truncated)
        return {**{name: np.stack(rows) for name, rows in columns.items()}, "last": observations}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("groups", [1, 2, 5, "auto"])
async def test_equals_a_plain_loop(setup: dict[str, Any], mode: Any, groups: Groups) -> None:
    wanted = by_hand(mode, 120)
    async with agym.make_async("CartPole-v1", 5, autoreset=mode, **setup) as envs:
        pieces = await first(8, envs, lean, 15, groups=groups, seed=3)
    tried = [rollout.groups for rollout in pieces]
    expected = [1] * 8 if setup["backend"] == "serial" else [*TRIAL_GROUPS]
    assert tried[:6] == expected[:6] if groups == "auto" else tried == [groups] * 8
    for name in ("observations", "actions", "rewards"):
        ours = np.concatenate([getattr(rollout, name) for rollout in pieces])
        assert_same(ours, wanted[name])
    assert_same(pieces[-1].last_observations, wanted["last"])
    done = np.concatenate([rollout.terminated | rollout.truncated for rollout in pieces])
    assert_same(done, wanted["done"])

    # Episodes: from one end to the next, without the step that only resets.
    lengths, totals, running = [], [], np.zeros(5, np.int64)
    resets = np.zeros(5, bool)
    valid = np.concatenate([rollout.valid for rollout in pieces])
    for t in range(120):
        assert valid[t].tolist() == (~resets).tolist()
        running += ~resets
        for i in np.flatnonzero(done[t]):
            lengths.append(int(running[i]))
            totals.append(float(running[i]))  # each step is worth 1
            running[i] = 0
        resets = done[t] if mode == "next_step" else np.zeros(5, bool)
    assert len(lengths) > 5
    ours_lengths = np.concatenate([rollout.episode_lengths for rollout in pieces])
    ours_totals = np.concatenate([rollout.episode_returns for rollout in pieces])
    assert sorted(ours_lengths.tolist()) == sorted(lengths)
    assert sorted(ours_totals.tolist()) == sorted(totals)


@pytest.mark.parametrize(("two", "chosen"), [(0.9, 2), (0.97, 1), (1.1, 1)])
def test_the_faster_number_of_groups_is_kept_and_said(
    two: float, chosen: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agym")
    numbers = group_counts("auto", 8)
    number = next(numbers)
    for k, tried in enumerate(TRIAL_GROUPS):
        assert number == tried
        # The first one of each also makes what later ones use, so it takes long.
        number = numbers.send({1: 1.0, 2: two}[tried] + 5 * (k < 2))
    assert [number, numbers.send(9.0), numbers.send(0.1)] == [chosen] * 3
    (said,) = caplog.messages
    assert f"pass groups={chosen} to skip the trial" in said


def test_one_environment_is_one_group() -> None:
    assert [next(group_counts(groups, 1)) for groups in ("auto", 2)] == [1, 1]


@pytest.mark.parametrize("backend", ["serial", "vector"])
async def test_where_nothing_overlaps_there_is_one_group(backend: str) -> None:
    async with agym.make_async("agym/CartPole-v1", 4, backend=backend) as envs:
        rollouts = await first(3, envs, lean, 5, groups="auto", seed=0)
    assert [rollout.groups for rollout in rollouts] == [1, 1, 1]


async def test_the_policy_gets_the_same_types_after_a_change_of_groups() -> None:
    types: set[Any] = set()

    def policy(observations: Any) -> Any:
        types.add(type(observations))
        return np.zeros(len(observations), np.int64)

    env = partial(RandomEnv, spaces.Text(5), spaces.Discrete(3))
    async with agym.make_async(env, 4, backend="thread", workers=2) as envs:
        pieces = await first(4, envs, policy, 3, groups="auto", seed=0)
    assert [piece.groups for piece in pieces] == [1, 2, 2, 1]
    assert len(types) == 1


@pytest.mark.parametrize("groups", [0, 1.5, True, "two", None])
async def test_what_is_no_number_of_groups_is_refused(groups: Any) -> None:
    async with agym.make_async("CartPole-v1", 2, backend="serial") as envs:
        with pytest.raises(agym.UsageError, match=re.escape(f"groups={groups!r}")):
            await first(1, envs, lean, 3, groups=groups)


async def test_the_other_group_steps_while_the_policy_acts() -> None:
    """The order of dispatches tells: a group's step is sent before the other's is awaited."""
    events: list[Any] = []

    class Group:
        def __init__(self, group: Any) -> None:
            self.group = group

        def __getattr__(self, name: str) -> Any:
            return getattr(self.group, name)

        def step(self, actions: Any) -> Any:
            events.append(("send", self.group.env_ids[0]))
            pending = self.group.step(actions)

            async def wait() -> Any:
                events.append(("await", self.group.env_ids[0]))
                return await pending

            return wait()

    class Whole(Group):
        def split(self, count: int) -> list[Any]:
            return [Group(part) for part in self.group.split(count)]

    async with agym.make_async("CartPole-v1", 4, backend="serial") as envs:
        await first(1, Whole(envs), lean, 3, groups=2, seed=0)  # type: ignore[arg-type]
    sends = [("send", 0), ("send", 2)]
    between = [("await", 0), ("send", 0), ("await", 2), ("send", 2)]
    assert events == [*sends, *between, *between, ("await", 0), ("await", 2)]


@pytest.mark.parametrize(
    ("options", "steps"),
    [({"autoreset": "disabled"}, 3), ({"output": "list"}, 3), ({}, 0), ({}, 1.5)],
    ids=str,
)
async def test_what_cannot_work(options: dict[str, Any], steps: Any) -> None:
    async with agym.make_async(ScriptedEnv, 2, **options) as envs:
        with pytest.raises(agym.UsageError):
            await first(1, envs, lean, steps)


def test_programs_run_on_uvloop_and_raise_their_errors() -> None:
    async def main() -> None:
        raise LookupError(type(asyncio.get_running_loop()))

    with pytest.raises(LookupError, match=uvloop.Loop.__name__):
        agym.run(main())


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
async def test_failed_parts_are_no_episodes_and_no_steps(mode: Any, tmp_path: Path) -> None:
    """With ``retry`` what is left is what a run without failures gives."""
    script = Script(str(tmp_path))

    def policy(observations: Any) -> Any:
        if observations[0, 2] == 2 and not seen:  # the first environment has made two steps
            seen.append(True)
            script.set(0, "step", "raise")
        return [1] * len(observations)

    async def play(retry: int) -> list[Any]:
        on_fault = agym.FaultPolicy("restart", retry=retry)
        factories = script.factories(2, length=5)
        async with agym.make_async(
            factories, backend="serial", autoreset=mode, on_fault=on_fault, output="array"
        ) as envs:
            return await first(2, envs, policy, 12, groups=1, seed=3)

    seen: list[bool] = [True]
    expected = await play(0)
    for retry in (1, 0):
        seen.clear()
        rollout, _ = await play(retry)
        failed = np.flatnonzero(rollout.truncated[:, 0])
        assert failed.tolist() == [2]
        assert rollout.valid[: failed[0] + 1, 0].tolist() == [not retry, not retry, False]
        assert rollout.valid[:, 1].tolist() == expected[0].valid[:, 1].tolist()
        assert not np.isin(3.0, rollout.episode_lengths)
        assert set(rollout.episode_lengths.tolist()) == {5}
        if retry:
            draws = rollout.observations[rollout.valid[:, 0], 0, 0]
            usual = expected[0].observations[expected[0].valid[:, 0], 0, 0]
            assert draws.tolist() == usual[: len(draws)].tolist()
