"""``output="list"``: lists of Python's numbers, which name the option that gives arrays."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import agym


@pytest.mark.parametrize("name", ["shape", "sum", "mean", "dtype"])
def test_a_list_that_is_asked_for_an_array_says_how_to_get_one(name: str) -> None:
    with agym.make("CartPole-v1", 2) as envs:
        envs.reset(seed=0)
        result = envs.step([0, 1])
    values: Any
    for values in result[:4]:
        assert isinstance(values, list)
        with pytest.raises(AttributeError, match=f"output='array'.*{name}"):
            getattr(values, name)
        with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
            _ = values.nothing
        assert type(copy.deepcopy(values)) is type(pickle.loads(pickle.dumps(values))) is list
    np.testing.assert_array_equal(np.asarray(result.rewards), [1.0, 1.0])


def test_such_a_list_is_a_list_otherwise() -> None:
    with agym.make("CartPole-v1", 3) as envs:
        envs.reset(seed=0)
        rewards = envs.step([0, 1, 0]).rewards
    assert rewards == [1.0, 1.0, 1.0]
    assert repr(rewards) == "[1.0, 1.0, 1.0]"
    assert type(rewards[:2]) is type(rewards * 2) is type(rewards.copy()) is list
    rewards.append(2.0)
    assert sum(rewards) == 5.0
    with pytest.raises(AttributeError):
        rewards.note = "as of a list"  # type: ignore[attr-defined]
