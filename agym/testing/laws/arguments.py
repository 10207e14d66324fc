"""Invalid arguments are refused before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agym.errors import AgymError, NothingSentError, ResetNeededError, UsageError
from agym.testing.laws.law import law, steps_of
from agym.testing.worlds import World


@law()
def a_step_before_the_first_reset_is_refused(world: World) -> None:
    """The error says that a reset is needed."""
    with world.open(2) as envs:
        with pytest.raises(ResetNeededError):
            envs.step([0, 0])
        if "single" in world.has:
            with pytest.raises(ResetNeededError):
                envs.send([0, 0])
            with pytest.raises(ResetNeededError, match="environment 1"):
                envs[1].step(0)
        envs.reset()
        envs.step([0, 0])


@law()
def bad_actions_are_refused(world: World) -> None:
    """Actions of a wrong number, shape or dtype raise, and no environment steps."""
    bad: list[Any] = [[0, 0], [0, 0, 0, 0], [0.5, 0.5, 0.5], [[0], [0], [0]], 0, "abc", None]
    with world.open(3) as envs:
        envs.reset()
        for actions in bad:
            with pytest.raises(UsageError, match="action"):
                envs.step(actions)
            if "single" in world.has:
                with pytest.raises(UsageError):
                    envs.send(actions)
                with pytest.raises(NothingSentError):
                    envs.recv()
        assert steps_of(envs) == [0, 0, 0]
        envs.step(np.zeros(3, np.int64))
        assert steps_of(envs) == [1, 1, 1]


@law("single")
def bad_ids_are_refused(world: World) -> None:
    """Ids raise that are out of range, repeated, unsorted for a step, or of another type."""
    with world.open(3) as envs:
        envs.reset()
        for ids in ([3], [-1], [0, 0], [1, 0], [0.5], ["0"]):
            with pytest.raises(UsageError):
                envs.step([0] * len(ids), env_ids=ids)
        for ids in ([3], [-1], [0, 0]):
            with pytest.raises(UsageError):
                envs.send([0] * len(ids), ids)
            with pytest.raises(UsageError):
                envs.reset(env_ids=ids)
        for index in (3, -4):
            with pytest.raises(IndexError):
                envs[index]
        assert steps_of(envs) == [0, 0, 0]


@law("single")
def bad_seeds_and_masks_are_refused(world: World) -> None:
    """A call that is refused resets nothing."""
    with world.open(3) as envs:
        envs.reset()
        bad: list[dict[str, Any]] = [
            {"seed": -1}, {"seed": 0.5}, {"seed": [1, 2]}, {"seed": "1"},
            {"options": {"reset_mask": np.ones(2, bool)}},
            {"options": {"reset_mask": [True, False, True], "more": 1}, "env_ids": [0]},
        ]  # fmt: skip
        for arguments in bad:
            with pytest.raises(AgymError):
                envs.reset(**arguments)
        assert envs.render() == ["1:0"] * 3


@law("single")
def bad_arguments_of_a_receipt_are_refused(world: World) -> None:
    """The results can be received afterwards."""
    with world.open(3) as envs:
        envs.reset()
        envs.send([5, 6], [0, 2])
        for arguments in ({"min_envs": 0}, {"min_envs": 2, "max_envs": 1}, {"timeout": -1}):
            with pytest.raises(UsageError):
                envs.recv(**arguments)
        assert sorted(envs.recv(min_envs=3).env_ids.tolist()) == [0, 2]
