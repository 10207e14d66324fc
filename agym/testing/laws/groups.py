"""Groups: parts of the environments with the whole API each, over the same workers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pytest

from agym.errors import ClosedError, UsageError
from agym.testing.law import assert_same, law
from agym.testing.worlds import Player, World


def split(envs: Player, count: int) -> list[Any]:
    """Split environments into groups with blocking calls."""
    return [Player(group, envs.runner) for group in envs.envs.split(count)]


@law("single")
def groups_return_what_the_whole_returns(world: World) -> None:
    """Each environment is in one group; seeds and masks are for the environments of the group."""
    for count in (1, 2, 3, 7):
        with world.open(7, length=2) as whole, world.open(7, length=2) as other:
            groups = split(other, count)
            ids = [group.env_ids for group in groups]
            assert sorted(i for some in ids for i in some) == [*range(7)]
            mask = np.arange(7) % 2 == 0
            results = [whole.reset(seed=100)]
            results += [whole.step([(k + i) % 10 for i in range(7)]) for k in range(4)]
            results.append(whole.reset(seed=[*range(7)], options={"reset_mask": mask}))
            for group, some in zip(groups, ids, strict=True):
                assert len(group.envs) == group.num_envs == group.action_space.shape[0] == len(some)
                parts = [group.reset(seed=100)]
                parts += [group.step([(k + i) % 10 for i in some]) for k in range(4)]
                if mask[some].any():
                    options = {"reset_mask": mask[some]}
                    parts.append(group.reset(seed=[*some], options=options))
                for part, result in zip(parts, results, strict=False):
                    for column, expected in zip(part[:-1], result[:-1], strict=True):
                        assert_same(column, expected[some])
                    assert_same(part.infos, [result.infos[i] for i in some])


@law("single")
def a_group_has_the_whole_api(world: World) -> None:
    """It numbers its environments from 0, and calls do not reach those of other groups."""
    with world.open(5, length=99) as envs:
        a, b = split(envs, 2)
        n, ids = a.num_envs, a.env_ids
        for group in (a, b):
            group.reset()
        a.step([4] * n)
        assert a.step([7], env_ids=[1]).observations[:, 2:].tolist() == [[2, 7]]
        a.send([*range(n)])
        batch = a.recv(min_envs=n)
        assert sorted(batch.env_ids.tolist()) == [*range(n)]
        assert batch.observations[:, 3].tolist() == batch.env_ids.tolist()
        with pytest.raises(UsageError, match="nothing to receive"):
            b.recv()
        assert a.render([1]) == ["1:3"]
        a.set_attr("value", [float(k) for k in range(n)])
        assert a.call("add", 1.0) == [float(k + 1) for k in range(n)]
        assert envs.get_attr("value") == [
            float(ids.index(i)) if i in ids else 1.0 for i in range(5)
        ]
        observations, infos = a.reset(env_ids=[1, 0], seed=[8, 9])
        assert [info.get("seed") for info in infos] == [9, 8, *[None] * (n - 2)]
        assert observations[:, 1].tolist() == [2, 2, *[1] * (n - 2)]
        assert a[1].reset(seed=3)[1]["seed"] == 3
        assert a[1].step(6)[0][1:].tolist() == [3, 1, 6]
        for use in (partial(a.step, [0]), partial(a.render, [n]), partial(a.send, [0], [n])):
            with pytest.raises(UsageError):
                use()
        assert b.get_attr("now") == [0] * b.num_envs
        a.send([0] * n)
        a.close()
        for group in (a, b, envs):
            with pytest.raises(ClosedError):
                group.step([0] * group.num_envs)
            group.close()


@law("async", "concurrent")
def a_group_steps_while_another_waits(world: World) -> None:
    """Each receives its own results."""
    with world.with_options(workers=4).open(4, length=9) as envs:
        a, b = envs.envs.split(2)

        async def run() -> None:
            await asyncio.gather(a.reset(), b.reset())
            envs.script.set(b.env_ids[1], "step", "wait")
            envs.script.set(a.env_ids[0], "step", "wait", after=3)
            slow = b.step([2, 2])
            for k in range(3):
                assert (await a.step([k, k])).observations[:, 2:].tolist() == [[k + 1, k]] * 2
            a.send([5, 6])
            batch = await a.recv()
            assert (batch.env_ids.tolist(), batch.observations[:, 3].tolist()) == ([1], [6])
            assert not slow.done()
            for env_id in (b.env_ids[1], a.env_ids[0]):
                await asyncio.to_thread(envs.script.open, env_id)
            assert (await slow).observations[:, 2:].tolist() == [[1, 2]] * 2
            assert (await a.recv()).env_ids.tolist() == [0]

        envs.run(run())
