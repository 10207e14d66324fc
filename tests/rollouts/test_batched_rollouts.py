"""Rollouts of batched policies, and what they raise."""

from __future__ import annotations

import asyncio
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing import assert_same
from tests.rollouts.policies import PolicyBroke, later


async def test_rollouts_of_a_batched_policy_play_each_environment_by_itself() -> None:
    def lean(observations: np.ndarray[Any, Any]) -> Any:
        return (observations[:, 2] > 0).astype(np.int64)

    async def two(policy: Any, groups: int) -> list[agym.Rollout]:
        async with agym.make_async("CartPole-v1", 5, backend="thread") as envs:
            found = []
            async for rollout in agym.rollout(envs, policy, 60, groups=groups, seed=3):
                found.append(rollout)
                if len(found) == 2:
                    break
            return found

    plain = await two(lean, 1)
    assert_same(await two(later(lean), 1), plain)  # a policy may be a coroutine function
    async with agym.batched(lean) as policy:
        ours = await two(policy, 2)
        assert max(policy.stats().batch_sizes) > 1
    for rollout, wanted in zip(ours, plain, strict=True):
        for name in {*agym.Rollout._fields} - {"groups"}:
            if name.startswith("episode"):  # these end in another order within a step
                assert sorted(getattr(rollout, name)) == sorted(getattr(wanted, name))
            else:
                assert_same(getattr(rollout, name), getattr(wanted, name))


class Mixed(gymnasium.Env[Any, Any]):
    """Observes and takes what has parts."""

    observation_space = spaces.Dict(
        {"text": spaces.Text(9), "pair": spaces.Tuple([spaces.Discrete(9), spaces.Box(0, 9, (2,))])}
    )
    action_space = spaces.Dict(
        {"n": spaces.Discrete(9), "v": spaces.Tuple([spaces.Box(0, 9, (2,))])}
    )

    def _observe(self) -> Any:
        return {"text": "abc"[: self.steps], "pair": (self.steps, np.ones(2, np.float32))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert action["n"] == self.steps
        assert_same(action["v"], (np.full(2, self.steps, np.float32),))
        self.steps += 1
        return self._observe(), 1.0, False, False, {}


async def test_rollouts_of_spaces_with_parts() -> None:
    def act(observations: Any) -> Any:
        steps = observations["pair"][0]
        assert [*observations["text"]] == ["abc"[:n] for n in steps.tolist()]
        return {"n": steps, "v": (np.stack([steps, steps], 1).astype(np.float32),)}

    async with agym.make_async(Mixed, 3) as envs, agym.batched(act) as policy:
        for one, groups in ((policy, 1), (act, 1), (policy, 3)):
            rollout = await anext(agym.rollout(envs, one, 4, groups=groups))
            assert rollout.valid.all()
            assert rollout.actions["n"].tolist() == [[t] * 3 for t in range(4)]
            assert rollout.observations["pair"][1].shape == (4, 3, 2)
            assert rollout.observations["text"][2] == ["ab"] * 3
            assert rollout.last_observations["text"] == ["abc"] * 3


@pytest.mark.parametrize("groups", [1, 2])
async def test_a_rollout_raises_that_its_policy_was_cancelled(groups: int) -> None:
    async def cancelled(observations: Any) -> Any:
        raise asyncio.CancelledError

    async with agym.make_async("CartPole-v1", 2) as envs:
        rollouts = agym.rollout(envs, cancelled, 4, groups=groups)
        with pytest.raises(asyncio.CancelledError):
            await anext(rollouts)


async def test_a_rollout_raises_what_the_policy_raises() -> None:
    def raises(observations: Any) -> Any:
        raise PolicyBroke(1)

    async with agym.make_async("CartPole-v1", 3) as envs, agym.batched(raises) as policy:
        with pytest.raises(PolicyBroke):
            async for _ in agym.rollout(envs, policy, 4):
                pass
        await envs.reset()  # nothing is left in flight that would hinder it
