"""``output=`` says what observations, rewards and flags are, with every call and both APIs."""

from __future__ import annotations

from typing import Any, Literal, assert_type

import jax
import numpy as np
import numpy.typing as npt
import torch

import agym

Values = npt.NDArray[Any]
Rewards = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def lists() -> None:
    with agym.make("CartPole-v1", 2) as envs:
        assert_type(envs, agym.Envs[list[Any], Any, list[float], list[bool]])
        assert_type(envs.reset(), agym.ResetResult[list[Any]])
        result = envs.step([0, 1])
        assert_type(result, agym.StepResult[list[Any], list[float], list[bool]])
        observations, rewards, terminated, truncated, infos = result
        assert_type(observations, list[Any])
        assert_type(rewards, list[float])
        assert_type(terminated, list[bool])
        assert_type(truncated, list[bool])
        assert_type(infos, list[dict[str, Any]])
        rewards.sum()  # type: ignore[attr-defined]
        observations.shape  # type: ignore[attr-defined]
    assert_type(
        agym.make("CartPole-v1", 2, output="list"),
        agym.Envs[list[Any], Any, list[float], list[bool]],
    )


def arrays() -> None:
    with agym.make("CartPole-v1", 2, output="array") as envs:
        assert_type(envs.reset().observations, Values)
        result = envs.step([0, 1])
        assert_type(result, agym.StepResult[Values, Rewards, Flags])
        assert_type(result.rewards.sum(), Any)
        assert_type(envs.recv(), agym.Batch[Values, Rewards, Flags])
        for batch in envs.as_completed():
            assert_type(batch, agym.Batch[Values, Rewards, Flags])
        for group in envs.split(2):
            assert_type(group, agym.Envs[Values, Any, Rewards, Flags])


def tensors() -> None:
    with agym.make("CartPole-v1", 2, output="torch") as envs:
        assert_type(envs.reset().observations, torch.Tensor)
        result = envs.step([0, 1])
        assert_type(result, agym.StepResult[torch.Tensor, torch.Tensor, torch.Tensor])
        assert_type(result.rewards.sum(), torch.Tensor)
        for batch in envs.as_completed():
            assert_type(batch.terminated, torch.Tensor)


def jax_arrays() -> None:
    with agym.make("CartPole-v1", 2, output="jax") as envs:
        assert_type(envs.reset().observations, jax.Array)
        result = envs.step([0, 1])
        assert_type(result, agym.StepResult[jax.Array, jax.Array, jax.Array])
        assert_type(result.rewards.sum(), jax.Array)
        assert_type(envs.recv().truncated, jax.Array)


async def async_lists() -> None:
    async with agym.make_async("CartPole-v1", 2, output="list") as envs:
        assert_type((await envs.reset()).observations, list[Any])
        result = await envs.step([0, 1])
        assert_type(result, agym.StepResult[list[Any], list[float], list[bool]])
        assert_type(await envs.recv(), agym.Batch[list[Any], list[float], list[bool]])
        async for batch in envs.as_completed():
            assert_type(batch.rewards, list[float])
        result.rewards.sum()  # type: ignore[attr-defined]


async def async_arrays() -> None:
    envs = await agym.make_async("CartPole-v1", 2)
    assert_type(envs, agym.AsyncEnvs[Values, Any, Rewards, Flags])
    pending = envs.step([0, 1])
    assert_type(pending, agym.Pending[agym.StepResult[Values, Rewards, Flags]])
    observations, rewards, terminated, truncated, _ = await pending
    assert_type(observations, Values)
    assert_type(rewards, Rewards)
    assert_type(terminated, Flags)
    assert_type(truncated, Flags)
    assert_type(await envs.recv(), agym.Batch[Values, Rewards, Flags])
    async for batch in envs.as_completed():
        assert_type(batch, agym.Batch[Values, Rewards, Flags])
    async for rollout in agym.rollout(envs, lambda latest: latest > 0, 8):
        assert_type(rollout.observations, Values)
        assert_type(rollout.rewards, Rewards)
        assert_type(rollout.valid, Flags)
    assert_type(
        agym.make_async("CartPole-v1", 2, output="array"),
        agym.AsyncEnvs[Values, Any, Rewards, Flags],
    )


async def async_tensors() -> None:
    async with agym.make_async("CartPole-v1", 2, output="torch") as envs:
        assert_type((await envs.reset()).observations, torch.Tensor)
        result = await envs.step([0, 1])
        assert_type(result, agym.StepResult[torch.Tensor, torch.Tensor, torch.Tensor])
        assert_type((await envs.recv()).rewards, torch.Tensor)
        async for batch in envs.as_completed():
            assert_type(batch.terminated, torch.Tensor)


async def async_jax_arrays() -> None:
    async with agym.make_async("CartPole-v1", 2, output="jax") as envs:
        assert_type((await envs.reset()).observations, jax.Array)
        result = await envs.step([0, 1])
        assert_type(result, agym.StepResult[jax.Array, jax.Array, jax.Array])
        assert_type((await envs.recv()).rewards, jax.Array)
        async for batch in envs.as_completed():
            assert_type(batch.terminated, jax.Array)


def gymnasium(actions: Any) -> None:
    envs = agym.make_vec("CartPole-v1", 2)
    assert_type(envs.step(actions)[1], np.ndarray[Any, Any])
    vector = agym.AgymVectorEnv([])
    assert_type(vector.step(actions), tuple[Any, Rewards, Flags, Flags, dict[str, Any]])


def chosen_later(output: Literal["list", "array"]) -> None:
    assert_type(agym.make("CartPole-v1", 2, output=output).step([0, 1]).rewards, Any)


def nested() -> None:
    """Nested observations have the type of an annotation; rewards and flags keep theirs."""
    envs: agym.Envs[dict[str, Values], list[int], Rewards, Flags]
    envs = agym.make("Nested-v0", 2, output="array")
    assert_type(envs.reset().observations["camera"], Values)
    short: agym.Envs[dict[str, Values]] = agym.make("Nested-v0", 2, output="array")
    assert_type(short.reset().observations, dict[str, Values])
    tree: agym.AsyncEnvs[dict[str, torch.Tensor]]
    tree = agym.make_async("Nested-v0", 2, output="torch")
    assert_type(tree.reset(), agym.Pending[agym.ResetResult[dict[str, torch.Tensor]]])
    wrong: agym.Envs[Any, Any, Rewards] = agym.make("Nested-v0", 2)  # type: ignore[assignment]
    print(wrong)
