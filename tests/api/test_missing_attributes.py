"""To ask for an attribute that no environment has is no fault of an environment."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agym
from tests.support.backends import FORK
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Tally
from tests.support.envs.vector_envs import Tally as VectorTally

PROCESS = {"backend": FORK, "workers": 2}
SETUPS = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": "thread", "workers": 2}, id="thread"),
    pytest.param(PROCESS, id="process"),
]
CartPole = partial(gymnasium.make, "CartPole-v1")


class Poorly(Tally):
    """Has a method and a property of its own that fail for want of an attribute."""

    def method(self) -> None:
        raise AttributeError("this is the environment's own doing")


def probe(envs: Any) -> None:
    """Ask in every way that there is for what is not there."""
    assert not hasattr(envs, "nothing")
    assert getattr(envs, "nothing", 5) == 5
    assert not hasattr(envs.unwrapped, "nothing")
    assert not hasattr(envs[0], "nothing")
    with pytest.raises(AttributeError):
        envs.get_attr("nothing")
    for ask in (envs.call, envs[0].call):
        for name in ("nothing", "unwrapped.nothing", "nothing.more"):
            with pytest.raises(agym.AgymError, match=r"AttributeError: .*nothing"):
                ask(name)
    with pytest.raises(agym.AgymError, match="AttributeError"):
        envs.set_attr("nothing.more", 5)


def is_fine(envs: Any, folder: Path) -> None:
    stats = envs.stats()
    assert [env.faults for env in stats.envs] == [0, 0]
    assert not list(folder.iterdir())


@pytest.mark.parametrize("on_fault", ["raise", "restart"])
@pytest.mark.parametrize("setup", SETUPS)
def test_probing(setup: dict[str, Any], on_fault: str, tmp_path: Path) -> None:
    policy = agym.FaultPolicy(on_fault, capsule_dir=tmp_path)
    with agym.make(CartPole, 2, on_fault=policy, **setup) as envs:
        probe(envs)
        envs.reset()
        probe(envs)
        envs.step([0, 0])
        is_fine(envs, tmp_path)


@pytest.mark.parametrize("setup", [{"backend": "asyncio"}, PROCESS], ids=["asyncio", "process"])
async def test_coroutines(setup: dict[str, Any], tmp_path: Path) -> None:
    policy = agym.FaultPolicy(capsule_dir=tmp_path)
    async with agym.make_async(AsyncTally, 2, on_fault=policy, **setup) as envs:
        await envs.reset()
        for name in ("nothing", "unwrapped.nothing"):
            with pytest.raises(agym.AgymError, match=r"AttributeError: .*nothing"):
                await envs.call(name)
            with pytest.raises(agym.AgymError):
                await envs[1].call(name)
            with pytest.raises(AttributeError):
                await envs.get_attr(name)
        is_fine(envs, tmp_path)


def test_programs(tmp_path: Path) -> None:
    with agym.make(VectorTally, 2, backend="vector") as envs:
        envs.reset()
        probe(envs)
        is_fine(envs, tmp_path)


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium's own words
@pytest.mark.parametrize("setup", SETUPS)
def test_gymnasium(setup: dict[str, Any], tmp_path: Path) -> None:
    policy = agym.FaultPolicy(capsule_dir=tmp_path)
    envs = agym.AgymVectorEnv([CartPole] * 2, on_fault=policy, **setup)
    try:
        envs.reset()
        for ask in (envs.get_attr, envs.call):
            with pytest.raises(AttributeError, match="nothing"):
                ask("nothing")
        assert not hasattr(envs, "nothing")
        is_fine(envs.runner, tmp_path)
    finally:
        envs.close()


@pytest.mark.parametrize("setup", SETUPS)
def test_stable_baselines3(setup: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    policy = agym.FaultPolicy(capsule_dir=tmp_path)
    envs = agym.sb3.AgymVecEnv([CartPole] * 2, on_fault=policy, **setup)
    try:
        envs.reset()
        assert not envs.has_attr("nothing")
        for ask in (envs.get_attr, envs.env_method):
            with pytest.raises(AttributeError, match="nothing"):
                ask("nothing")
        is_fine(envs.runner, tmp_path)
    finally:
        envs.close()


@pytest.mark.parametrize("setup", SETUPS)
def test_a_method_that_wants_an_attribute_is_a_fault(setup: dict[str, Any], tmp_path: Path) -> None:
    policy = agym.FaultPolicy(capsule_dir=tmp_path)
    with agym.make(Poorly, 2, on_fault=policy, **setup) as envs:
        envs.reset()
        with pytest.raises(agym.AgymError, match=r"own doing.*agym rerun"):
            envs.call("method")
        assert [env.faults for env in envs.stats().envs] == [1, 1]
        assert len(list(tmp_path.iterdir())) == 2
