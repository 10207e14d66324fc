"""Attributes and methods of environments."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from agym import FaultPolicy
from agym.errors import AgymError, UsageError
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


@law("sync", "single")
def attributes_of_environments_are_attributes_of_envs(world: World) -> None:
    """They are read, assigned and called as attributes of all, of a group, and of a handle."""
    with world.open(4) as player:
        envs = player.envs
        envs.value = 2.5
        assert envs.value == envs.unwrapped.value == [2.5] * 4
        envs.unwrapped.value = (1, 2, 3, 4)
        envs.value = [2 * value for value in envs.value]
        assert envs.add(1) == envs.unwrapped.add(number=1) == [3, 5, 7, 9]
        assert [add(1) for add in envs.get_attr("add")] == [3, 5, 7, 9]
        with pytest.raises(UsageError, match="2 values for 4 environments"):
            envs.value = [1, 2]
        one, other = envs.split(2)
        one.value = 1
        other.unwrapped.value = [2, 3]
        one[0].value = 7
        other[1].unwrapped.value = 8
        assert (one.value, other.value, one[0].value) == ([7, 1], [2, 8], 7)
        assert (one[0].add(1), one[0].unwrapped.add(number=1)) == (8, 8)
        assert [add(1) for add in one.get_attr("add")] == [8, 2]
        assert sorted(envs.value) == [1, 2, 7, 8]
        envs.set_attr("backend", "a name that agym uses itself")
        assert envs.backend != envs.get_attr("backend")[0] == "a name that agym uses itself"


@law("sync", "single")
def a_new_attribute_is_not_assigned(world: World) -> None:
    """An assignment with a typing error raises; ``set_attr`` sets a new attribute."""
    with world.open(2) as player:
        envs = player.envs
        for target in (envs, envs.unwrapped, envs[1], envs[1].unwrapped):
            with pytest.raises(AttributeError, match=r"environments? .*1 .*valeu.*set_attr"):
                target.valeu = 1
            for name in ("valeu", "_private"):
                assert not hasattr(target, name)
        with pytest.raises(AttributeError, match="environment 1 has no attribute 'valeu'"):
            _ = envs[1].valeu
        envs[1].set_attr("valeu", 1)
        assert (envs[1].valeu, hasattr(envs[0], "valeu")) == (1, False)
        envs.set_attr("valeu", 1)
        envs.valeu = 2
        assert envs.valeu == [2, 2]


@law("async", "single")
def an_assignment_cannot_be_awaited(world: World) -> None:
    """Reading or assigning an attribute raises, and the error shows the call for it."""
    with world.open(2) as player:
        envs = player.envs
        for name, target in (("envs", envs), ("env", envs[0])):
            with pytest.raises(AttributeError, match=rf"`await {name}.set_attr\('value', value\)`"):
                target.value = 1.6
            with pytest.raises(AttributeError, match=rf"await {name}.get_attr\('value'\)"):
                _ = target.value
        player[0].set_attr("value", 2.5)
        player.run(envs[0].unwrapped.set_attr("length", 9))
        assert player.run(envs[0].unwrapped.get_attr("length")) == 9
        assert player.run(envs[0].unwrapped.call("add", 1.0)) == 3.5

        async def add(player: Any) -> Any:
            return await (await player.envs[0].get_attr("add"))(1)

        assert player.run(add(player)) == 3.5


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
