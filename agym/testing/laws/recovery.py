"""``on_fault=``: environments that fail are replaced, and all others go on unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from agym import FaultPolicy
from agym.errors import CrashLoopError
from agym.testing.laws.law import assert_same, law, play
from agym.testing.worlds import World

AT = 4  # the step in which the fault happens


def _fault(world: World) -> str:
    return "kill" if "processes" in world.has else "raise"


def _changed(ours: list[Any], theirs: list[Any], env_id: int) -> bool:
    """Whether two runs differ for an environment."""
    return any(
        (one.observations[env_id] != other.observations[env_id]).any()
        for one, other in zip(ours, theirs, strict=True)
    )


@law("single")
def a_fault_ends_one_episode(world: World) -> None:
    """The episode is truncated with ``info["fault"]`` and no invented reward; others go on."""
    replaying = world.with_options(workers=2, on_fault=FaultPolicy("replay"))
    with replaying.open(4, length=7) as ours, world.serial.open(4, length=7) as theirs:
        ours.script.set(1, "step", _fault(world), after=AT)
        results, expected = play(ours), play(theirs)
        row = results[1 + AT]
        fault = row.infos[1]["fault"]
        assert (fault.env_id, fault.operation) == (1, "step")
        assert (row.rewards[1], row.terminated[1], row.truncated[1]) == (0.0, False, True)
        last = row.infos[1].get("final_obs", row.observations[1])
        assert_same(last, results[AT].observations[1])
        assert [_changed(results, expected, i) for i in range(4)] == [False, True, False, False]


@law("single")
def a_replaced_environment_goes_on(world: World) -> None:
    """After the fault, the environment plays complete episodes again."""
    restarting = world.with_options(workers=2, on_fault="restart")
    with restarting.open(2, length=100) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step([0, 0])
        envs.script.set(0, "step", _fault(world))
        assert "fault" in envs.step([0, 0]).infos[0]
        if world.autoreset != "same_step":
            envs.reset(env_ids=[0])
        steps = [envs.step([0, 0]).observations[0, 2] for _ in range(4)]
        assert steps == [1, 2, 3, 4]


@law("single")
def a_fault_in_a_reset_is_repeated_by_the_replacement(world: World) -> None:
    """The reset returns the replacement's result, with ``info["fault"]``."""
    with world.with_options(on_fault="restart").open(2) as envs:
        envs.script.set(1, "reset", _fault(world))
        observations, infos = envs.reset(seed=4)
        assert "fault" in infos[1]
        assert infos[1]["seed"] == 5
        assert observations[:, 2:].tolist() == [[0, -1]] * 2
        envs.step([0, 0])


@law("single")
def an_environment_that_always_fails_is_given_up(world: World) -> None:
    """After ``max_restarts``, an error is raised that names the environment."""
    policy = FaultPolicy("restart", max_restarts=2)
    with world.with_options(workers=2, on_fault=policy).open(2) as envs:
        envs.reset()
        envs.script.set(0, "step", "raise", always=True)

        def step_again_and_again() -> None:
            for _ in range(9):
                envs.step([0, 0])
                if world.autoreset == "disabled":
                    envs.reset()

        with pytest.raises(CrashLoopError) as caught:
            step_again_and_again()
        assert caught.value.env_ids == (0,)
        assert len(caught.value.faults) == 3
