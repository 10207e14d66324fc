"""A vector environment through agym's Gymnasium API is the vector environment again."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

import agym
from tests.support.envs.vector_envs import Tally


@pytest.mark.parametrize("cls", [CartPoleVectorEnv, Tally])
def test_the_same_batches_and_infos(cls: type) -> None:
    plain, ours = cls(num_envs=4), agym.make_vec(cls, 4, backend="vector")
    assert ours.metadata["autoreset_mode"] is plain.metadata["autoreset_mode"]
    assert ours.single_observation_space == plain.single_observation_space
    assert ours.single_action_space == plain.single_action_space
    np.testing.assert_array_equal(ours.reset(seed=3)[0], plain.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.integers(2, size=4)
        mine, theirs = ours.step(actions), plain.step(actions)
        for one, other in zip(mine[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        told = theirs[4].get("_twice", np.zeros(4, bool))
        if told.any():
            np.testing.assert_array_equal(mine[4]["_twice"], told)
            np.testing.assert_array_equal(mine[4]["twice"][told], theirs[4]["twice"][told])
    plain.close()
    ours.close()
