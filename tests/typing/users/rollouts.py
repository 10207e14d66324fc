"""Rollouts, with policies that are functions and ones that are coroutine functions."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import agym

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def lean(observations: Floats) -> Ints:
    return (observations[:, 2] > 0).astype(np.int64)


async def ask(observations: Floats) -> Ints:
    return lean(observations)


def read(text: list[str]) -> Ints:
    return np.zeros(len(text), np.int64)


async def collect(envs: agym.AsyncEnvs[Floats, Ints]) -> None:
    async for rollout in agym.rollout(envs, lean, 128, groups=2, seed=0):
        assert_type(rollout, agym.Rollout[Floats, Ints])
        assert_type(rollout.observations, Floats)
        assert_type(rollout.actions, Ints)
        assert_type(rollout.last_observations, Floats)
        print(rollout.rewards.sum(), rollout.episode_returns.mean())
        break
    async for rollout in agym.rollout(envs, ask, 128):
        assert_type(rollout, agym.Rollout[Floats, Ints])


async def without_types(envs: agym.AsyncEnvs) -> agym.Rollout:
    async for rollout in agym.rollout(envs, lambda observations: observations > 0, 128):
        return rollout
    raise AssertionError


async def only_the_policy_is_typed(envs: agym.AsyncEnvs) -> None:
    async for rollout in agym.rollout(envs, ask, 128):
        actions: Ints = rollout.actions
        print(actions)


def name(rollout: agym.Rollout[Floats, Ints]) -> dict[str, Any]:
    return rollout._asdict()


async def mistakes(envs: agym.AsyncEnvs[Floats, Ints]) -> None:
    agym.rollout(envs, read, 128)  # type: ignore[arg-type]
    agym.rollout(envs, lean)  # type: ignore[call-overload]
    agym.rollout(agym.make("CartPole-v1"), lean, 128)  # type: ignore[call-overload]
    await agym.rollout(envs, lean, 128)  # type: ignore[misc]
