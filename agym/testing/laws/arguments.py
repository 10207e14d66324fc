"""Invalid arguments are refused before anything is sent."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from agym.errors import NothingSentError, ResetNeededError, UsageError, UsageTypeError
from agym.testing.law import law, steps_of
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
            envs.reset(env_ids=[0])
            with pytest.raises(ResetNeededError, match=r"environment 1 .*environments \[1\]"):
                envs.step([0, 0])
            assert len(envs.step([0], env_ids=[0]).rewards) == 1
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
    bad: list[Any] = [[3], [-1], [0, 0], 1, "01", [0.5], ["0"], [math.inf], np.array([True])]
    bad += [[None], [True, False], [[1]], [math.nan]]
    with world.open(3) as envs:
        envs.reset()
        for ids in bad:
            for call in (envs.reset, envs.render, envs.snapshot, partial(envs.step, [0])):
                with pytest.raises(UsageError, match=r"0 to 2|at most once|env_ids|actions"):
                    call(env_ids=ids)
            with pytest.raises(UsageError):
                envs.send([0], ids)
        with pytest.raises(UsageError, match="ascending"):
            envs.step([0, 0], env_ids=[1, 0])
        for index in (3, -4):
            with pytest.raises(IndexError, match="envs has 3"):
                envs[index]
        wrong: list[Any] = [slice(0, 2), "0", None, 1.0, (0, 1), [0]]
        for index in wrong:
            with pytest.raises(UsageTypeError, match=r"split.*env_ids=|integer"):
                envs[index]
        assert envs.render() == ["1:0"] * 3


@law("single")
def bad_seeds_and_masks_are_refused(world: World) -> None:
    """A call that is refused resets nothing."""
    seeds: list[Any] = [-1, 0.5, True, "abc", [1, 2], [1] * 4, [1, -2, 3], [0.5] * 3, ["a"] * 3]
    seeds += [{1, 2, 3}, [True] * 3]
    masks = [[True] * 3, np.ones(3, int), np.ones(2, bool), np.ones(4, bool), np.zeros(3, bool)]
    with world.open(3) as envs:
        envs.reset()
        bad: list[Any] = [{"seed": seed} for seed in [*seeds, np.zeros((3, 2), int)]]
        bad += [{"seed": [1, 2, 3], "env_ids": [0, 1]}]
        bad += [{"options": {"reset_mask": mask}} for mask in masks]
        bad += [{"options": {"reset_mask": np.ones(3, bool)}, "env_ids": [0]}]
        for arguments in bad:
            with pytest.raises(UsageError, match=r"seed|reset_mask"):
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
