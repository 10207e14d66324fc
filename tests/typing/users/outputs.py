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


Tensor = torch.Tensor
Lists = agym.Envs[list[Any], Any, list[float], list[bool]]
Arrays = agym.Envs[Values, Any, Rewards, Flags]
AsyncLists = agym.AsyncEnvs[list[Any], Any, list[float], list[bool]]
AsyncArrays = agym.AsyncEnvs[Values, Any, Rewards, Flags]


def made() -> None:
    """An API has a default of its own."""
    assert_type(agym.make("CartPole-v1", 2), Lists)
    assert_type(agym.make("CartPole-v1", 2, output="list"), Lists)
    assert_type(agym.make("CartPole-v1", 2, output="array"), Arrays)
    tensors = agym.make("CartPole-v1", 2, output="torch")
    assert_type(tensors, agym.Envs[Tensor, Any, Tensor, Tensor])
    jax_arrays = agym.make("CartPole-v1", 2, output="jax")
    assert_type(jax_arrays, agym.Envs[jax.Array, Any, jax.Array, jax.Array])


async def made_async() -> None:
    assert_type(await agym.make_async("CartPole-v1", 2), AsyncArrays)
    assert_type(agym.make_async("CartPole-v1", 2, output="array"), AsyncArrays)
    assert_type(agym.make_async("CartPole-v1", 2, output="list"), AsyncLists)
    tensors = agym.make_async("CartPole-v1", 2, output="torch")
    assert_type(tensors, agym.AsyncEnvs[Tensor, Any, Tensor, Tensor])
    jax_arrays = agym.make_async("CartPole-v1", 2, output="jax")
    assert_type(jax_arrays, agym.AsyncEnvs[jax.Array, Any, jax.Array, jax.Array])


def calls(envs: Arrays, lists: Lists) -> None:
    assert_type(envs.step([0, 1]), agym.StepResult[Values, Rewards, Flags])
    assert_type(envs.recv(), agym.Batch[Values, Rewards, Flags])
    _, rewards, terminated, truncated, infos = lists.step([0, 1])
    assert_type(rewards, list[float])
    assert_type(terminated, list[bool])
    assert_type(truncated, list[bool])
    assert_type(infos, list[dict[str, Any]])
    rewards.sum()  # type: ignore[attr-defined]


async def async_calls(envs: AsyncArrays) -> None:
    assert_type((await envs.step([0, 1])).rewards, Rewards)
    assert_type(await envs.recv(), agym.Batch[Values, Rewards, Flags])
    async for rollout in agym.rollout(envs, lambda latest: latest > 0, 8):
        assert_type(rollout.observations, Values)
        assert_type(rollout.rewards, Rewards)
        assert_type(rollout.valid, Flags)


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
