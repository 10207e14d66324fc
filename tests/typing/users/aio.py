"""The async API: every call gives a ``Pending`` of what the sync API gives."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import agym

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


async def opened() -> None:
    envs: agym.AsyncEnvs[Floats, Ints]
    async with agym.make_async("CartPole-v1", 8, backend="process", workers=2) as envs:
        assert_type(await envs.reset(), agym.ResetResult[Floats])
    envs = await agym.make_async("CartPole-v1", 8)
    assert_type(await envs.reset(), agym.ResetResult[Floats])
    await envs.aclose()


async def batches(envs: agym.AsyncEnvs[Floats, Ints]) -> None:
    assert_type(envs.reset(seed=0), agym.Pending[agym.ResetResult[Floats]])
    observations, infos = await envs.reset(seed=0)
    assert_type(observations, Floats)
    assert_type(infos, list[dict[str, Any]])

    pending = envs.step(np.zeros(8, np.int64), env_ids=range(8))
    assert_type(pending, agym.Pending[agym.StepResult[Floats]])
    assert_type(pending.done(), bool)
    assert_type((await pending).observations, Floats)
    observations, rewards, terminated, truncated, infos = await pending
    assert_type(observations, Floats)
    print(rewards.sum(), terminated | truncated)

    assert_type(await envs.render([0]), list[Any])
    assert_type(await envs.call("seed"), list[Any])
    assert_type(await envs.get_attr("gravity"), list[Any])
    await envs.set_attr("gravity", 9.8)
    assert_type(await envs.restart(), list[int])


async def with_asyncio(envs: agym.AsyncEnvs[Floats, Ints], actions: Ints) -> None:
    """A ``Pending`` is a coroutine to asyncio, whose functions know what it gives."""
    both = await asyncio.gather(envs.restart([0]), envs.restart([1]))
    assert_type(both, tuple[list[int], list[int]])
    assert_type(await asyncio.wait_for(envs.step(actions), 1.0), agym.StepResult[Floats])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(envs.step(actions))
    assert_type(task.result(), agym.StepResult[Floats])
    envs.step(actions)  # set off, and awaited by nobody: that is allowed


async def first_k(envs: agym.AsyncEnvs[Floats, Ints]) -> None:
    envs.send(np.zeros(8, np.int64))
    assert_type(await envs.recv(4, timeout=1.0), agym.Batch[Floats])
    async for batch in envs.as_completed(min_envs=4):
        assert_type(batch, agym.Batch[Floats])
        envs.send(np.zeros(len(batch.infos), np.int64), batch.env_ids)


async def groups(envs: agym.AsyncEnvs[Floats, Ints]) -> None:
    left, right = envs.split(2)
    assert_type(left, agym.AsyncEnvs[Floats, Ints])
    await asyncio.gather(left.reset(), right.reset())


async def play(env: agym.AsyncEnvHandle[Floats, int]) -> float:
    observation, info = await env.reset(seed=0)
    assert_type(info, dict[str, Any])
    total = 0.0
    while True:
        observation, reward, terminated, truncated, info = await env.step(int(observation[0] > 0))
        assert_type(observation, Floats)
        assert_type(reward, float)
        total += reward
        if terminated or truncated:
            return total


async def handles(envs: agym.AsyncEnvs[Floats, Ints]) -> None:
    assert_type(envs[0], agym.AsyncEnvHandle[Any, Any])
    assert_type(await asyncio.gather(*(play(env) for env in envs)), list[float])


async def without_types(envs: agym.AsyncEnvs, env: agym.AsyncEnvHandle) -> None:
    """Plain names are complete annotations: everything in a batch is ``Any``."""
    assert_type((await envs.step([0, 1])).observations, Any)
    assert_type(await env.reset(), tuple[Any, dict[str, Any]])


class Chat:
    """A coroutine environment inherits nothing."""

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        return "hello", {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return action, 1.0, False, False, {}

    async def close(self) -> None:
        pass


async def coroutine_envs() -> None:
    env: agym.AsyncEnv[str, str] = Chat()
    print(env)
    envs: agym.AsyncEnvs[tuple[str, ...], list[str]] = agym.make_async(Chat, 2)
    async with envs:
        assert_type((await envs.step(["a", "b"])).observations, tuple[str, ...])


async def program() -> int:
    return 3


def run() -> None:
    assert_type(agym.run(program()), int)


async def mistakes(
    envs: agym.AsyncEnvs[Floats, Ints], env: agym.AsyncEnvHandle[Floats, int], actions: Ints
) -> None:
    await envs.step("left")  # type: ignore[arg-type]
    envs.send([0, 1])  # type: ignore[arg-type]
    envs.step(actions).observations  # type: ignore[attr-defined]
    rewards: list[float] = envs.step(actions)  # type: ignore[assignment]
    print(rewards)
    with envs:  # type: ignore[attr-defined]
        pass
    iter(envs.as_completed())  # type: ignore[call-overload]
    envs.close()  # type: ignore[attr-defined]
    envs.stpe(actions)  # type: ignore[attr-defined]
    await env.step(actions)  # type: ignore[arg-type]
    number: agym.AsyncEnv[str, int] = Chat()  # type: ignore[assignment]
    print(number)
    agym.run(program)  # type: ignore[arg-type]
    agym.make_async("CartPole-v1", 8, "process")  # type: ignore[call-overload]
