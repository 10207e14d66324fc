"""``output="torch"``: tensors over the memory of the arrays that the engine gave."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import weakref
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given

import agym
from agym.api.output import FORMS, Tensors
from agym.core.protocol.space_layout import Layout
from agym.errors import MissingExtraError, UsageError
from tests.api.output.suite import OutputSuite
from tests.support.backends import FORK
from tests.support.core_selection import examples
from tests.support.drivers import SETUPS
from tests.support.envs.plain_envs import Echo, Nested, Tally
from tests.support.equality import same_values
from tests.support.insides import engine_of
from tests.support.patience import patience
from tests.support.scripts import install_command
from tests.support.spaces import any_space, samples, seeds

torch = pytest.importorskip("torch", reason="the extra `torch`")


class TestTorch(OutputSuite):
    output = "torch"
    array = torch.Tensor
    process = FORK

    def convert(self, array: Any) -> Any:
        return torch.from_numpy(array)


def test_a_handle_gives_a_tensor_and_numbers() -> None:
    """As Gymnasium's wrapper ``NumpyToTorch`` does for a single environment."""
    with agym.make(Nested, 2, output="torch") as envs:
        layout = Layout(envs.single_observation_space)
        reset = envs[1].reset(seed=3)
        actions = {"force": torch.ones(3, requires_grad=True), "gear": torch.tensor(2)}
        for observation, *_ in (reset, envs[1].step(actions)):
            leaves = [leaf.numpy() for leaf in layout.flatten(observation)]
            for leaf, wanted in zip(leaves, layout.leaves, strict=True):
                assert (leaf.dtype, leaf.shape) == (wanted.dtype, wanted.shape)


@pytest.mark.parametrize("setup", SETUPS)
def test_a_view_is_a_tensor_over_the_table(setup: dict[str, Any]) -> None:
    """With ``copy=False`` nothing is copied between what a worker writes and a tensor."""
    with agym.make(Nested, 3, output="torch", copy=False, **setup) as envs:
        envs.reset(seed=0)
        result = envs.step(envs.action_space.sample())
        planes = engine_of(envs).life.table.planes.values()
        table = {
            array.ctypes.data
            for plane in planes
            for array in (*plane.observations, plane.rewards, plane.terminated, plane.truncated)
        }
        leaves = Layout(envs.single_observation_space).flatten(result.observations)
        for tensor in (*leaves, result.rewards):  # flags are copied
            assert tensor.data_ptr() in table


def test_a_tensor_keeps_what_its_array_stands_on() -> None:
    class Lease:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array
            self.__array_interface__ = array.__array_interface__

    lease = Lease(np.arange(6.0))
    gone = weakref.ref(lease)
    tensor = Tensors().column(np.asarray(lease))[2:4]
    del lease
    gc.collect()
    assert gone() is not None
    assert tensor.tolist() == [2, 3]
    del tensor
    gc.collect()
    assert gone() is None


def test_a_tensor_shares_the_memory_of_an_array_that_can_be_written() -> None:
    """A read-only array is copied; torch would warn."""
    array = np.arange(3.0)
    assert Tensors().column(array).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    tensor = Tensors().column(array)
    tensor += 1
    assert array.tolist() == [0, 1, 2]
    assert tensor.tolist() == [1, 2, 3]


@given(any_space(), seeds)
@examples(60)
def test_any_space(space: Any, seed: int) -> None:
    """Leaves of a fixed size become tensors, the others stay what environments gave."""
    env = partial(Echo, space, samples(space, seed, 3))
    layout = Layout(space)
    with agym.make(env, 2, output="torch") as ours, agym.make(env, 2, output="array") as theirs:
        for tensors, arrays in (
            (ours.reset().observations, theirs.reset().observations),
            (ours.step([0, 1]).observations, theirs.step([0, 1]).observations),
        ):
            flat = layout.leaves, layout.flatten(tensors), layout.flatten(arrays)
            for leaf, tensor, array in zip(*flat, strict=True):
                assert same_values(tensor if leaf.dtype is None else tensor.numpy(), array)


def test_an_order_of_bytes_that_torch_lacks_is_refused_when_made() -> None:
    space = spaces.Box(0, 1, (2,), np.dtype(">f4"))
    with pytest.raises(UsageError, match="of dtype >f4"):
        agym.make(partial(Echo, space, [None]), 2, output="torch")


def test_actions_with_a_gradient() -> None:
    """What a policy gave outside ``no_grad``; the environments take its values."""
    force = torch.full((2, 3), 0.5, requires_grad=True) * 1
    gear = torch.tensor([[0, 7], [1, 7]])[:, 0]  # its memory is not contiguous
    forms: list[Any] = [
        {"force": force, "gear": gear},
        {"force": list(force), "gear": list(gear)},
        [{"force": f, "gear": g} for f, g in zip(force, gear, strict=True)],
    ]
    with agym.make(Nested, 2, output="torch") as envs:
        for actions in forms:
            before = envs.reset(seed=0).observations["position"]
            after = envs.step(actions).observations["position"]
            torch.testing.assert_close(after - before, torch.tensor([[0.5] * 3, [1.0] * 3]))
        assert force.requires_grad


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (torch.tensor([1, 2]), "needs 3 actions"),
        (torch.tensor(1), "not a single Tensor"),
        (torch.zeros(3, dtype=torch.bfloat16), "cannot be converted to an array.*BFloat16"),
        (torch.zeros(3, device="meta"), "cannot be converted to an array"),
    ],
    ids=["too-few", "one", "bfloat16", "no-memory"],
)
def test_tensors_that_are_not_actions(actions: Any, message: str) -> None:
    with agym.make(Tally, 3, output="torch") as envs:
        envs.reset()
        with pytest.raises(UsageError, match=message):
            envs.step(actions)
        assert envs.step(torch.tensor([1, 2, 3])).observations[:, 2].tolist() == [1, 2, 3]


def test_which_outputs_there_are() -> None:
    assert [*FORMS] == ["list", "array", "torch", "jax"]
    with pytest.raises(UsageError, match=r"output='tensor' is unknown: use one of list, array"):
        agym.make(Tally, output="tensor")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="make_vec returns arrays"):
        agym.make_vec("CartPole-v1", 2, output="torch")


def test_torch_is_imported_when_it_is_asked_for() -> None:
    script = """
import sys, agym
for output in ("array", "torch"):
    with agym.make("CartPole-v1", 2, output=output) as envs:
        envs.reset()
        envs.step([0, 1])
    assert ("torch" in sys.modules) == (output == "torch")
    assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=patience(6))


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("make", [agym.make, agym.make_async])
def test_a_missing_library_is_told_by_its_extra(
    library: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    made: list[gym.Env[Any, Any]] = []
    with pytest.raises(MissingExtraError, match=re.escape(install_command(library))):
        make(lambda: made.append(Tally()) or made[0], 2, output=library)
    assert not made
