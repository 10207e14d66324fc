"""An environment that is packed in the midst of its life goes on elsewhere just as it was."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode

from agym.envs.probes import RandomEnv
from agym.hosts.base import OneShotFactory
from agym.hosts.gym import EnvHost
from agym.hosts.snapshot import pack_env, unpack_env
from agym.protocol.messages.operations import Operation, Pack, Reset, Step, Unpack
from agym.protocol.space_layout import Layout
from agym.protocol.table import SlotTable
from agym.testing import assert_same

FACTORIES = {
    "random": partial(RandomEnv, spaces.Box(-1, 1, (3,)), spaces.Discrete(3)),
    "cartpole": partial(gymnasium.make, "CartPole-v1"),
}


def hosted(factories: list[Any], mode: AutoresetMode) -> tuple[EnvHost, SlotTable]:
    host = EnvHost(factories, 0, mode)
    described, failures = host.make()
    assert not failures
    spaces_ = described[0].observation_space, described[0].action_space
    final = mode is AutoresetMode.SAME_STEP
    table = SlotTable(*(Layout(space) for space in spaces_), len(factories), final=final)
    host.attach(table)
    return host, table


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("steps", [0, 1, 7, 12])
def test_it_goes_on_in_another_host(name: str, mode: AutoresetMode, steps: int) -> None:
    factories = [FACTORIES[name]] * 3
    (stays, right), (leaves, _) = hosted(factories, mode), hosted(factories, mode)
    for host in (stays, leaves):
        host.run(Operation(1, 0, 3, Reset(0, [5, 6, 7])))
        for number in range(steps):
            host.run(Operation(2 + number, 0, 3, Step(0)))
    packed = leaves.run(Operation(50, 0, 3, Pack())).payload
    assert packed is not None
    luggage = [packed.values[i] for i in range(3)]
    arrives = [OneShotFactory(partial(unpack_env, one.env), FACTORIES[name]) for one in luggage]
    goes_on, table = hosted(arrives, mode)
    goes_on.run(Operation(51, 0, 3, Unpack(luggage)))
    for number in range(60, 90):
        for host in (stays, goes_on):
            host.run(Operation(number, 0, 3, Step(0)))
        here, there = right.planes[0], table.planes[0]
        for one, other in zip(here.observations, there.observations, strict=True):
            assert_same(one, other)
        assert_same(here.rewards, there.rewards)
        assert_same(here.terminated, there.terminated)
        assert_same(here.truncated, there.truncated)


def test_what_leaves_its_state_behind_stays() -> None:
    """Gymnasium's ``EzPickle`` is pickled by the arguments of its constructor alone."""
    with pytest.raises(Exception, match="not pickled with its state"):
        pack_env(EzPickle())
