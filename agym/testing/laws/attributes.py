"""Attributes and methods of environments."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from agym import FaultPolicy
from agym.errors import AgymError
from agym.testing.laws.law import law
from agym.testing.worlds import World


@law("single")
def attributes_are_read_and_set(world: World) -> None:
    """A list has a value for each environment; any other value is for all."""
    with world.open(3) as envs:
        assert envs.get_attr("value") == [1.0] * 3
        envs.set_attr("value", [1.0, 2.0, 3.0])
        assert envs.get_attr("value") == [1.0, 2.0, 3.0]
        envs.set_attr("value", 5.0)
        assert envs.call("add", 1.0) == [6.0] * 3
        assert envs[1].get_attr("value") == 5.0


@law("single")
def a_missing_attribute_is_no_fault(world: World) -> None:
    """It raises ``AttributeError``, or an error of the call; nothing is counted or recorded."""
    with tempfile.TemporaryDirectory() as folder:
        policy = FaultPolicy("restart", capsule_dir=folder)
        with world.with_options(on_fault=policy).open(3) as envs:
            envs.reset()
            assert not hasattr(envs[0].unwrapped, "no_such_thing")
            for one in (envs, envs[0]):
                assert getattr(one, "no_such_thing", 5) == 5
                with pytest.raises(AttributeError, match="no_such_thing"):
                    one.get_attr("no_such_thing")
            for call in (envs.call, envs[0].call):
                for name in ("no_such_thing", "unwrapped.no_such_thing", "no_such_thing.more"):
                    with pytest.raises(AgymError, match=r"AttributeError: .*no_such_thing"):
                        call(name)
            with pytest.raises(AgymError, match="AttributeError"):
                envs.set_attr("no_such_thing.more", 5)
            envs.step([0, 0, 0])
            assert [env.faults for env in envs.stats().envs] == [0] * 3
            assert not [*Path(folder).iterdir()]


@law("single")
def a_handle_is_one_environment(world: World) -> None:
    """A handle's calls return the environment's results, without a batch."""
    with world.open(3) as envs:
        envs.reset(seed=0)
        observation, info = envs[2].reset(seed=9, options={"length": 2})
        assert (info["seed"], info["options"]) == (9, {"length": 2})
        observation, reward, terminated, truncated, info = envs[2].step(5)
        assert observation[1:].tolist() == [2, 1, 5]
        assert (reward, terminated, truncated) == (observation[0] + 1 / 16, False, False)
        assert [type(value) for value in (reward, terminated)] == [float, bool]
        assert info == {"now": 1, "action": 5}
        assert (envs[-1].index, envs[2].index) == (2, 2)
        assert envs[2].action_space == envs.single_action_space
        assert envs[2].call("value") == 1.0
        assert envs[2].render() == "2:1"
        assert envs[2].call("add", 1.0) == 2.0
        assert envs.render() == ["1:0", "1:0", "2:1"]
        if world.autoreset != "same_step":
            assert envs[2].step(6)[2] is True


@law()
def frames_come_in_the_order_of_environments(world: World) -> None:
    """``render`` returns one frame for each environment."""
    with world.open(4) as envs:
        envs.reset()
        envs.step([0] * 4)
        assert list(envs.render()) == ["1:1"] * 4
        if "single" in world.has:
            envs[1].step(0)
            assert envs.render([1, 0]) == ["1:1", "1:2"]
