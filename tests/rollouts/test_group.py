"""Groups: one task for all members, which succeed or fail as one."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

import agym
from agym.testing import AsyncScriptedEnv, Script, World
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over

everywhere = over(SERIAL, THREAD, PROCESS, ASYNCIO, COROUTINES)
apart = over(THREAD, PROCESS, ASYNCIO, COROUTINES)

Told = tuple[int, float, list[float]]


async def episode(env: Any, observation: Any, info: dict[str, Any]) -> Told:
    """Play to the end; return the environment, the draw of its reset and all rewards."""
    rewards, over = [], False
    draw = float(observation[0])
    while not over:
        _, reward, terminated, truncated, _ = await env.step(1)
        rewards.append(reward)
        over = terminated or truncated
    return env.index, draw, rewards


def opened(world: World, script: Script, **options: Any) -> Any:
    env = script.factories(4, coroutines=world.kind == "coroutine", length=5)
    return agym.make_async(
        env, backend=world.backend, workers=world.workers, output="array", **options
    )


async def plain(script: Script, seed: int = 7) -> list[Told]:
    """What a group of all four gives that nothing happens to."""
    async with opened(SERIAL, script) as envs:
        (group,) = agym.group(envs, 4)
        return await group.play(episode, seed=seed)


@everywhere
async def test_all_members_begin_alike_and_their_results_are_in_order(
    world: World, script: Script
) -> None:
    async with opened(world, script) as envs:
        groups = agym.group(envs, 2)
        assert [group.env_ids for group in groups] == [(0, 1), (2, 3)]
        plays = [
            group.play(episode, seed=k, options={"length": 3}) for k, group in enumerate(groups)
        ]
        for k, told in enumerate(await asyncio.gather(*plays)):
            assert [env_id for env_id, _, _ in told] == [2 * k, 2 * k + 1]
            assert len({draw for _, draw, _ in told}) == 1
            assert {len(rewards) for _, _, rewards in told} == {3}
        (one, other) = await groups[0].play(episode)  # without a seed too
        assert one[1:] == other[1:]


@everywhere
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
@pytest.mark.parametrize("where", ["step", "reset"])
async def test_a_failure_of_one_is_one_of_all(
    world: World, on_fault: Any, where: str, script: Script
) -> None:
    """The whole group begins again, with the same task."""
    expected = await plain(script)
    begun = []

    async def counted(env: Any, *beginning: Any) -> Told:
        begun.append(env.index)
        return await episode(env, *beginning)

    async with opened(world, script, on_fault=on_fault) as envs:
        (group,) = agym.group(envs, 4)
        script.set(2, where, "raise")
        assert await group.play(counted, seed=7, retry=1) == expected
        again = where == "step" or on_fault == "raise"  # a restart resets it again by itself
        assert group.attempts == 1 + again
        assert sorted(begun) == sorted([0, 1, 2, 3] * (1 + (where == "step")))
        script.set(2, "step", "raise", always=True)
        with pytest.raises(agym.GroupError, match=r"failed 3 times .* seed=7") as caught:
            await group.play(counted, seed=7, retry=2)
        error = caught.value
        assert (error.group, error.env_ids, error.env_id) == (0, (0, 1, 2, 3), 2)
        assert (error.seed, error.options) == (7, None)
        assert isinstance(error.__cause__, agym.AgymError)
        assert (error.fault is not None) == (on_fault == "restart")
        script.clear(2, "step")
        assert await group.play(episode, seed=7) == expected


@over(PROCESS, COROUTINES)
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
async def test_a_worker_that_dies_takes_its_groups_with_it_and_no_other(
    world: World, on_fault: Any, script: Script
) -> None:
    expected = await plain(script)
    async with opened(world, script, on_fault=on_fault) as envs:
        groups = agym.group(envs, 2)  # each in a worker of its own
        script.set(1, "step", "kill")
        told = await asyncio.gather(*(group.play(episode, seed=7, retry=1) for group in groups))
        assert [*told[0], *told[1]] == expected
        assert [group.attempts for group in groups] == [2, 1]
        script.set(1, "step", "kill")
        with pytest.raises(agym.GroupError):
            await groups[0].play(episode, seed=7)
        assert await groups[0].play(episode, seed=7) == expected[:2]


@apart
@pytest.mark.parametrize("how", ["a member fails", "the play is cancelled"])
async def test_a_play_that_ends_early_leaves_nothing_to_the_next_one(
    world: World, how: str, script: Script
) -> None:
    """A step of another member is under way; its result goes nowhere."""
    expected = await plain(script)
    cancelled = []

    async def member(env: Any, *beginning: Any) -> Told:
        if env.index == 0 and how == "a member fails":
            while script.is_set(3, "step"):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            raise ValueError("of the episode")
        try:
            return await episode(env, *beginning)
        except asyncio.CancelledError:
            cancelled.append(env.index)
            raise

    async with opened(world, script) as envs:
        (group,) = agym.group(envs, 4)
        script.set(3, "step", "wait")
        task = asyncio.ensure_future(group.play(member, seed=11))
        while script.is_set(3, "step"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        if how == "a member fails":
            with pytest.raises(agym.GroupError, match="of the episode") as caught:
                await task
            assert isinstance(caught.value.__cause__, ValueError)
        else:
            with pytest.raises(agym.BusyError, match="is playing"):
                await group.play(episode)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert 3 in cancelled
        again = asyncio.ensure_future(group.play(episode, seed=7))
        await asyncio.sleep(0)
        await asyncio.to_thread(script.open, 3)
        assert await again == expected


async def test_a_part_of_the_environments(script: Script) -> None:
    async with opened(SERIAL, script) as envs:
        (group,) = agym.group(envs, 2, env_ids=[3, 1])
        assert len(group) == 2
        assert repr(group) == "Group(0, env_ids=[3, 1])"
        assert [env_id for env_id, _, _ in await group.play(episode)] == [3, 1]
        half = envs.split(2)[1]
        (group,) = agym.group(half, 2)
        assert len(await group.play(episode, seed=1)) == 2


REFUSED: list[tuple[type[Exception], str, Any]] = [
    (agym.UsageError, r"4 environments can't .* groups of 3", lambda envs: agym.group(envs, 3)),
    (agym.UsageError, "n", lambda envs: agym.group(envs, 0)),
    (agym.UsageError, "9", lambda envs: agym.group(envs, 1, env_ids=[9])),
    (agym.UsageError, "env_ids must be a sequence", lambda envs: agym.group(envs, 1, env_ids=3)),
]
PLAYS: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (agym.UsageError, "retry", {"retry": -1}),
    (agym.UsageError, "the seed of environment 0 is 'a'", {"seed": "a", "retry": 2}),
    (agym.UsageTypeError, "options=3 must be a dict or None", {"options": 3}),
    (agym.UsageTypeError, r"must be an `async def`.*returned int",
     {"episode": lambda env, observation, info: 1, "retry": 2}),
    (agym.UsageTypeError, "is called with these three", {"episode": lambda env: 1}),
    (agym.UsageTypeError, "episode=None must be", {"episode": None}),
]  # fmt: skip


async def test_what_cannot_be_played_is_refused(script: Script) -> None:
    async with opened(SERIAL, script) as envs:
        for kind, words, make in REFUSED:
            with pytest.raises(kind, match=words):
                make(envs)
        (group,) = agym.group(envs, 4)
        for kind, words, given in PLAYS:
            with pytest.raises(kind, match=words):
                await group.play(**{"episode": episode, **given})
            assert group.attempts <= 1
        wrapped = await group.play(lambda *each: episode(*each), seed=1)
        assert wrapped == await group.play(episode, seed=1)
    with pytest.raises(agym.ClosedError):
        await group.play(episode)


def test_without_a_loop_it_is_refused(script: Script) -> None:
    with (
        agym.make(script.factories(2), backend="serial") as envs,
        pytest.raises(agym.UsageTypeError, match="a group needs environments made by"),
    ):
        agym.group(envs, 2)  # type: ignore[arg-type]


class Wanders(AsyncScriptedEnv):
    """Takes a random time for each step."""

    async def step(self, action: Any) -> Any:
        await asyncio.sleep(random.random() * 0.002)
        return await super().step(action)


async def counted(env: Any, observation: Any, info: dict[str, Any]) -> tuple[float, int]:
    """Play to the end; each result must be that of its own step."""
    count, over = 0, False
    draw = info["draw"]
    while not over:
        _, _, terminated, truncated, info = await env.step(count % 10)
        assert (info["now"], info["action"]) == (count + 1, count % 10)
        count, over = count + 1, terminated or truncated
    return draw, count


@over(ASYNCIO, COROUTINES)
async def test_plays_that_are_cancelled_at_random_moments_cross_no_results(world: World) -> None:
    dice = random.Random(0)
    known: dict[int, list[tuple[float, int]]] = {}

    async def cancel_some(group: agym.Group) -> None:
        for _ in range(40):
            seed = dice.randrange(10)
            task = asyncio.ensure_future(group.play(counted, seed=seed))
            if dice.random() < 0.6:
                await asyncio.sleep(dice.random() * 0.01)
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                told = await task
                assert len({*told}) == 1
                assert known.setdefault(seed, told) == told

    async with agym.make_async(Wanders, 16, backend=world.backend, workers=world.workers) as envs:
        await asyncio.gather(*map(cancel_some, agym.group(envs, 4)))
    assert known
