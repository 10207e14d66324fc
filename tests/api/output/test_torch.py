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
from agym.api.output import FORMS, OutputFormat, Tensors, make_output_format
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.table import SlotTable
from agym.errors import MissingExtraError, UsageError
from tests.support.core_selection import examples
from tests.support.drivers import APIS, SETUPS, opened
from tests.support.envs.plain_envs import Echo, Nested, Tally
from tests.support.equality import same_values
from tests.support.insides import engine_of
from tests.support.patience import patience
from tests.support.scripts import install_command
from tests.support.spaces import any_space, samples, seeds

torch = pytest.importorskip("torch", reason="the extra `torch`")

THREE_SETUPS = [*SETUPS, pytest.param({"backend": "thread"}, id="thread")]


def as_numpy(value: Any) -> Any:
    """The same value with arrays for tensors; other arrays must not occur."""
    if isinstance(value, dict):
        return {key: as_numpy(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(as_numpy(child) for child in value)
    assert isinstance(value, torch.Tensor)
    return value.numpy()


def attached(space: spaces.Space[Any]) -> OutputFormat:
    """The form of tensors for environments with such observations."""
    form = make_output_format("torch")
    form.attach(SlotTable(Layout(space), Layout(spaces.Discrete(2)), 3, final=False))
    return form


@pytest.mark.parametrize("setup", THREE_SETUPS)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("copy", [True, False])
def test_tensors_say_what_arrays_say(api: str, setup: dict[str, Any], copy: bool) -> None:
    options = {"copy": copy, "autoreset": "same_step", **setup}
    with (
        opened(api, Nested, 3, output="torch", **options) as ours,
        opened(api, Nested, 3, output="array", **options) as theirs,
    ):
        assert ours.observation_space == theirs.observation_space
        observations, infos = ours.reset(seed=7)
        expected = theirs.reset(seed=7)
        assert same_values(as_numpy(observations), expected.observations)
        assert same_values(infos, expected.infos)
        ours.action_space.seed(1)
        for _ in range(20):
            actions = ours.action_space.sample()
            *result, infos = ours.step(actions)
            *expected, expected_infos = theirs.step(actions)
            assert same_values([as_numpy(part) for part in result], expected)
            assert same_values(infos, expected_infos)


@pytest.mark.parametrize("setup", THREE_SETUPS)
def test_parts_of_all_environments(setup: dict[str, Any]) -> None:
    """First-k batches and some ids; ids may be given back as the tensors they came as."""
    with agym.make(Tally, 4, output="torch", **setup) as envs:
        envs.reset()
        envs.send(torch.arange(4))
        batch = envs.recv(4)
        assert batch.env_ids.dtype == torch.int64
        assert batch.observations[:, 2].tolist() == batch.env_ids.tolist()
        envs.send(batch.env_ids + 4, batch.env_ids)
        batch = envs.recv(4)
        assert (batch.observations[:, 2] == batch.env_ids + 4).all()
        result = envs.step(torch.tensor([5, 6]), env_ids=torch.tensor([1, 3]))
        assert result.observations[:, 2].tolist() == [5, 6]
        assert result.terminated.dtype == torch.bool
        # Who is over may be named by the flags as they came.
        mask = torch.tensor([False, True, False, True])
        observations, _ = envs.reset(options={"reset_mask": mask})
        assert observations[:, 0].tolist() == [1, 2, 1, 2]


async def test_parts_of_all_environments_for_async_code() -> None:
    async with agym.make_async(Nested, 4, output="torch") as envs:
        await envs.reset(seed=0)
        envs.send(envs.action_space.sample())
        async for batch in envs.as_completed(min_envs=2, max_envs=2):
            assert batch.env_ids.dtype == torch.int64
            assert batch.observations["position"].shape == (2, 3)
            assert batch.rewards.dtype == torch.float64
        observation, _ = await envs[1].reset(seed=3)
        assert envs.single_observation_space.contains(with_numbers(observation))
        actions = {"force": torch.ones(3), "gear": torch.tensor(2)}
        observation, *rest, _ = await envs[1].step(actions)
        assert envs.single_observation_space.contains(with_numbers(observation))
        assert [type(value) for value in rest] == [float, bool, bool]


def test_groups_have_the_form_of_the_whole() -> None:
    with agym.make(Tally, 4, output="torch") as envs:
        for group in envs.split(2):
            group.reset()
            group.send(torch.tensor([3, 4]))
            batch = group.recv(2)
            assert batch.env_ids.tolist() == [0, 1]
            assert batch.observations[:, 2].tolist() == [3, 4]


def test_a_handle_gives_a_tensor_and_numbers() -> None:
    """As Gymnasium's wrapper ``NumpyToTorch`` does for a single environment."""
    with agym.make(Nested, 2, output="torch") as envs:
        observation, _ = envs[1].reset(seed=3)
        assert envs.single_observation_space.contains(with_numbers(observation))
        actions = {"force": torch.ones(3, requires_grad=True), "gear": torch.tensor(2)}
        observation, *rest, _ = envs[1].step(actions)
        assert envs.single_observation_space.contains(with_numbers(observation))
        assert [type(value) for value in rest] == [float, bool, bool]


def with_numbers(observation: Any) -> Any:
    """An observation of ``Nested`` in tensors as its space has it."""
    values = as_numpy(observation)
    return {**values, "inner": {**values["inner"], "level": values["inner"]["level"][()]}}


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


def test_a_tensor_shares_the_memory_of_the_array_it_is_made_of() -> None:
    form = attached(spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(5)}))
    arrays = {"a": np.zeros((3, 2), np.float32), "b": np.arange(3)}
    tensors = form.observations(arrays, 3)
    for key, array in arrays.items():
        assert tensors[key].data_ptr() == array.ctypes.data
    arrays["a"][:] = 5
    assert tensors["a"].tolist() == [[5, 5]] * 3


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


def test_no_tensor_writes_to_a_read_only_array() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    tensor = Tensors().column(array)  # torch would warn
    tensor += 1
    assert array.tolist() == [0, 1, 2]
    assert tensor.tolist() == [1, 2, 3]


@given(any_space(), seeds)
@examples(60)
def test_any_space(space: Any, seed: int) -> None:
    """Leaves of a fixed size become tensors, the others stay what environments gave."""
    values = samples(space, seed, 3)
    env = partial(Echo, space, values)
    with agym.make(env, 2, output="torch") as ours, agym.make(env, 2, output="array") as theirs:
        layout = Layout(space)
        for tensors, arrays in (
            (ours.reset().observations, theirs.reset().observations),
            (ours.step([0, 1]).observations, theirs.step([0, 1]).observations),
        ):
            pairs = zip(layout.flatten(tensors), layout.flatten(arrays), strict=True)
            for leaf, (tensor, array) in zip(layout.leaves, pairs, strict=True):
                if leaf.dtype is None:
                    assert same_values(tensor, array)
                else:
                    assert same_values(tensor.numpy(), array)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            spaces.Dict({"x": spaces.Box(0, 1, (2,), np.longdouble)}),
            r"output='torch' has no dtype for observations\['x'\] of dtype float128.*'array'",
        ),
        (spaces.Box(0, 1, (2,), np.dtype(">f4")), "of dtype >f4"),
    ],
    ids=["longdouble", "big-endian"],
)
def test_a_dtype_that_torch_lacks_is_refused_when_made(api: str, space: Any, message: str) -> None:
    with (
        pytest.raises(UsageError, match=message),
        opened(api, partial(Echo, space, [None]), 2, output="torch"),
    ):
        pass


@pytest.mark.parametrize(
    "actions",
    [
        torch.tensor([4, 5, 6]),
        torch.tensor([4, 5, 6], dtype=torch.int32),
        [torch.tensor(4), torch.tensor(5), torch.tensor(6)],
        (torch.tensor(4), 5, np.int64(6)),
        torch.tensor([[4, 0], [5, 0], [6, 0]])[:, 0],
    ],
    ids=["same-dtype", "narrower", "list", "mixed", "strided"],
)
def test_actions_as_tensors(actions: Any) -> None:
    """Whatever the form of results, and wherever the environments are."""
    with agym.make(Tally, 3, output="array") as envs:
        envs.reset()
        assert envs.step(actions).observations[:, 2].tolist() == [4, 5, 6]


@pytest.mark.parametrize("form", ["batch", "list", "list-of-dicts"])
def test_actions_with_a_gradient(form: str) -> None:
    """What a policy gave outside ``no_grad``; the environments take its values."""
    force = torch.full((2, 3), 0.5, requires_grad=True) * 1
    gear = torch.tensor([0, 1])
    actions: Any = {"force": force, "gear": gear}
    if form == "list":
        actions = {"force": list(force), "gear": list(gear)}
    if form == "list-of-dicts":
        actions = [{"force": f, "gear": g} for f, g in zip(force, gear, strict=True)]
    with agym.make(Nested, 2, output="torch") as envs:
        before = envs.reset(seed=0).observations["position"]
        after = envs.step(actions).observations["position"]
        torch.testing.assert_close(after - before, torch.tensor([[0.5] * 3, [1.0] * 3]))
        assert force.requires_grad


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (torch.tensor([1, 2]), "needs 3 actions"),
        (torch.tensor(1), "not a single Tensor"),
        (torch.tensor([0.5, 1, 1]), "of dtype float32 cannot be converted to int64"),
        (torch.zeros(3, 2, dtype=torch.int64), "has shape"),
        (torch.zeros(3, dtype=torch.bfloat16), "cannot be converted to an array.*BFloat16"),
        (torch.zeros(3, device="meta"), "cannot be converted to an array"),
    ],
    ids=["too-few", "one", "float", "shape", "bfloat16", "no-memory"],
)
def test_tensors_that_are_no_actions(actions: Any, message: str) -> None:
    with agym.make(Tally, 3, output="torch") as envs:
        envs.reset()
        with pytest.raises(UsageError, match=message):
            envs.step(actions)
        assert envs.step(torch.tensor([1, 2, 3])).observations[:, 2].tolist() == [1, 2, 3]


def test_forms_are_those_of_the_type() -> None:
    assert [*FORMS] == ["list", "array", "torch", "jax"]
    with pytest.raises(UsageError, match=r"output='tensor' is unknown: use one of list, array"):
        agym.make(Tally, output="tensor")  # type: ignore[arg-type]


def test_gymnasiums_api_gives_arrays() -> None:
    with pytest.raises(UsageError, match="make_vec returns arrays"):
        agym.make_vec("CartPole-v1", 2, output="torch")


def test_torch_is_imported_when_it_is_asked_for() -> None:
    script = """
import sys, agym
assert "torch" not in sys.modules and "jax" not in sys.modules
with agym.make("CartPole-v1", 2, output="array") as envs:
    envs.reset()
    envs.step([0, 1])
assert "torch" not in sys.modules and "jax" not in sys.modules
with agym.make("CartPole-v1", 2, output="torch") as envs:
    assert "torch" in sys.modules and "jax" not in sys.modules
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
