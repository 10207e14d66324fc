"""Groups: parts of the environments with the whole API each, over the same workers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.random_env import RandomEnv
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally, Keeper
from tests.support.envs.plain_envs import Tally
from tests.support.equality import same
from tests.support.patience import patience

FORKED = {"backend": FORK, "workers": 2}
SETUPS = [
    pytest.param(Tally, {"backend": "serial"}, id="serial"),
    pytest.param(Tally, {"backend": "thread"}, id="thread"),
    pytest.param(Tally, FORKED, id="process"),
    pytest.param(partial(AsyncTally, Tally), {"backend": "asyncio"}, id="asyncio"),
    pytest.param(partial(AsyncTally, Tally), FORKED, id="process-coroutines"),
]
everywhere = pytest.mark.parametrize(("tally", "setup"), SETUPS)


@everywhere
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_environment_is_in_one_group(tally: Any, setup: dict[str, Any], count: int) -> None:
    with agym.make(tally, 7, **setup) as envs:
        groups = envs.split(count)
        assert len(groups) == count
        assert all(len(group) == group.num_envs >= 1 for group in groups)
        assert sorted(i for group in groups for i in group.env_ids) == [*range(7)]
        for group in groups:
            observations, infos = group.reset(seed=100)
            assert [info["seed"] for info in infos] == [100 + i for i in group.env_ids]
            assert len(observations) == len(group)
        assert envs.get_attr("episode") == [1] * 7


@pytest.mark.parametrize("count", [0, -1, 4, 1.0, "2", None])
def test_wrong_numbers_of_groups(count: Any) -> None:
    with agym.make(Tally, 3) as envs:
        with pytest.raises(agym.UsageError, match="split"):
            envs.split(count)
        with pytest.raises(agym.UsageError, match="again"):
            envs.split(2)[0].split(1)


@everywhere
def test_each_has_the_whole_api(tally: Any, setup: dict[str, Any]) -> None:
    with agym.make(partial(tally, length=99), 5, **setup, output="array") as envs:
        a, b = envs.split(2)
        ids = a.env_ids
        n = len(a)
        assert a.action_space.shape == (n,)
        for group in (a, b):
            group.reset()
        assert a.step([4] * n).observations[:, 1:].tolist() == [[1, 4]] * n
        assert a.step([7], env_ids=[1]).observations[:, 1:].tolist() == [[2, 7]]
        a.send([*range(n)])
        batch = a.recv(min_envs=n)
        assert sorted(batch.env_ids.tolist()) == [*range(n)]
        assert batch.observations[:, 2].tolist() == batch.env_ids.tolist()
        with pytest.raises(agym.UsageError, match="nothing to receive"):
            b.recv()
        assert a.render([1]) == ["1:3"]
        assert a.call("add", 1) == [10.8] * n
        a.set_attr("gravity", [float(k) for k in range(n)])
        assert a.get_attr("gravity") == [float(k) for k in range(n)]
        assert b.get_attr("gravity") == [9.8] * len(b)
        assert envs.get_attr("gravity") == [
            float(ids.index(i)) if i in ids else 9.8 for i in range(5)
        ]
        observations, infos = a.reset(env_ids=[1, 0], seed=[8, 9])
        assert [info.get("seed") for info in infos] == [9, 8, *[None] * (n - 2)]
        assert observations[:, 0].tolist() == [2, 2, *[1] * (n - 2)]
        assert a[1].reset(seed=3)[1]["seed"] == 3
        assert a[1].step(6)[0].tolist() == [3, 1, 6]
        for use in (partial(a.step, [0]), partial(a.render, [n]), partial(a.send, [0], [n])):
            with pytest.raises(agym.UsageError):
                use()
        assert b.get_attr("now") == [0] * len(b)


def test_a_mask_and_seeds_are_for_the_group() -> None:
    """As for the whole, seeds are one for each of all, also where a mask leaves some out."""
    with agym.make(Tally, 4) as envs:
        for api in (envs, envs.split(1)[0], envs.split(2)[1]):
            n = len(api)
            mask = np.arange(n) == n - 1
            infos = api.reset(seed=[*range(n)], options={"reset_mask": mask}).infos
            assert [info.get("seed") for info in infos] == [*[None] * (n - 1), n - 1]


@everywhere
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_whole_in_groups_is_the_whole(tally: Any, setup: dict[str, Any], mode: str) -> None:
    if tally is Tally:
        env: Any = partial(RandomEnv, spaces.Box(-9, 9, (2, 3)), spaces.Discrete(4))
    else:
        env = tally
    options: dict[str, Any] = {**setup, "autoreset": mode, "output": "array"}
    with agym.make(env, 5, **options) as whole, agym.make(env, 5, **options) as other:
        groups = other.split(2)

        def compare(all_of_it: Any, parts: list[Any]) -> None:
            for group, part in zip(groups, parts, strict=True):
                for ours, theirs in zip(part, all_of_it, strict=True):
                    for k, i in enumerate(group.env_ids):
                        assert same(ours[k], theirs[i])

        compare(whole.reset(seed=11), [group.reset(seed=11) for group in groups])
        whole.action_space.seed(0)
        for _ in range(15):
            actions = whole.action_space.sample()
            compare(whole.step(actions), [g.step(actions[g.env_ids]) for g in groups])


async def test_one_group_steps_while_another_waits() -> None:
    keeper = Keeper()
    async with agym.make_async(
        keeper.factories(4), backend="asyncio", autoreset="disabled"
    ) as envs:
        a, b = envs.split(2)
        await asyncio.gather(a.reset(), b.reset())
        slow = b.step([2, 2])
        b_task = asyncio.create_task(asyncio.wait_for(slow, patience(6)))
        for k in range(1, 4):
            step = a.step([k, k])
            await keeper.let(*a.env_ids)
            assert (await step).observations[:, 1:].tolist() == [[k, k]] * 2
        a.send([5, 6])
        await keeper.let(a.env_ids[1])
        batch = await a.recv()
        assert (batch.env_ids.tolist(), batch.observations[:, 2].tolist()) == ([1], [6])
        assert not b_task.done()
        await keeper.let(*b.env_ids, a.env_ids[0])
        assert (await b_task).observations[:, 1:].tolist() == [[1, 2]] * 2
        assert (await a.recv()).env_ids.tolist() == [0]


@everywhere
async def test_closing_one_closes_all(tally: Any, setup: dict[str, Any]) -> None:
    envs = await agym.make_async(tally, 4, **setup)
    a, b = envs.split(2)
    await envs.reset()
    await a.aclose()
    for api in (a, b, envs):
        with pytest.raises(agym.ClosedError):
            api.step([0] * len(api))
        await api.aclose()
