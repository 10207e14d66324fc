"""``output="jax"``: arrays of JAX. Run by ``test_jax.py`` in a process of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.api.output import JaxArrays
from agym.core.protocol.memory import Arena
from agym.core.protocol.space_layout import Layout
from agym.errors import UsageError
from tests.support.drivers import APIS, opened
from tests.support.envs.plain_envs import Echo, Nested, Tally
from tests.support.equality import same_values

# Workers are spawned: JAX warns of every fork.
THREE_SETUPS = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": "process", "workers": 2}, id="process"),
    pytest.param({"backend": "thread"}, id="thread"),
]


def as_jax_has_it(array: Any) -> Any:
    """A NumPy array in the dtype that JAX gives it without ``jax_enable_x64``."""
    return np.asarray(jnp.asarray(array))


@pytest.mark.parametrize("setup", THREE_SETUPS)
@pytest.mark.parametrize("api", APIS)
def test_they_say_what_arrays_say(api: str, setup: dict[str, Any]) -> None:
    options = {"autoreset": "same_step", **setup}
    with (
        opened(api, Nested, 3, output="jax", **options) as ours,
        opened(api, Nested, 3, output="array", **options) as theirs,
    ):
        assert ours.observation_space == theirs.observation_space
        layout = Layout(ours.single_observation_space)
        pairs = [(ours.reset(seed=7), theirs.reset(seed=7))]
        ours.action_space.seed(1)
        for _ in range(20):
            actions = ours.action_space.sample()
            pairs.append((ours.step(actions), theirs.step(actions)))
        # At the end: no array may have changed since.
        for result, expected in pairs:
            assert same_values(result.infos, expected.infos)
            leaves = [*layout.flatten(result[0]), *result[1:-1]]
            for ours_, theirs_ in zip(
                leaves, [*layout.flatten(expected[0]), *expected[1:-1]], strict=True
            ):
                assert isinstance(ours_, jax.Array)
                assert same_values(np.asarray(ours_), as_jax_has_it(theirs_))


@pytest.mark.parametrize("setup", THREE_SETUPS)
def test_actions_and_ids(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 4, output="jax", **setup) as envs:
        envs.reset()
        for actions in (jnp.arange(4), [*jnp.arange(4)]):
            assert envs.step(actions).observations[:, 2].tolist() == [0, 1, 2, 3]
        envs.reset()
        envs.send(jnp.arange(4))
        batch = envs.recv(4)
        assert batch.observations[:, 2].tolist() == batch.env_ids.tolist()
        envs.send(batch.env_ids + 4, batch.env_ids)
        batch = envs.recv(4)
        assert (batch.observations[:, 2] == batch.env_ids + 4).all()
        observations, _ = envs.reset(options={"reset_mask": batch.env_ids < 0.5})
        assert observations[:, 0].max() == 3
        observation, reward, terminated, truncated, _ = envs[1].step(jnp.int32(7))
        assert observation.tolist()[2] == 7
        assert [type(reward), type(terminated), type(truncated)] == [float, bool, bool]


def test_memory_that_is_aligned_is_shared() -> None:
    """Planes of the table begin on cache lines, as JAX wants it; other memory is copied."""
    arena = Arena({"a": (np.dtype(np.float32), (8, 4)), "b": (np.dtype(np.bool_), (8,))})
    for array in arena.arrays.values():
        assert JaxArrays().column(array).unsafe_buffer_pointer() == array.ctypes.data
    off = arena.arrays["a"][1:]  # 16 bytes on
    off[:] = 3
    copied = JaxArrays().column(off)
    off[:] = 4
    assert copied.tolist() == [[3] * 4] * 7


def test_a_computation_is_free_to_go_where_its_other_arrays_are() -> None:
    with agym.make(Tally, 2, output="jax") as envs:
        observations, _ = envs.reset()
        assert not observations.committed
        assert jax.jit(lambda x: x.sum())(observations) == observations.sum()


def test_object_leaves_stay_as_they_are() -> None:
    space = spaces.Dict({"text": spaces.Text(5), "box": spaces.Box(-1, 1, (2,))})
    value = {"text": "hello", "box": np.ones(2, np.float32)}
    with agym.make(partial(Echo, space, [value]), 2, output="jax") as envs:
        observations, _ = envs.reset()
        assert observations["text"] == ("hello", "hello")
        assert isinstance(observations["box"], jax.Array)
        observation, _ = envs[0].reset()
        assert observation["text"] == "hello"
        assert observation["box"].shape == (2,)


def test_views_that_change_are_refused() -> None:
    for make in (agym.make, agym.make_async):
        with pytest.raises(UsageError, match="copy=False returns views that change"):
            make(Tally, 2, output="jax", copy=False)


def test_a_dtype_that_jax_lacks_is_refused_when_made() -> None:
    space = spaces.Box(0, 1, (2,), np.longdouble)
    with pytest.raises(UsageError, match=r"output='jax' has no dtype for .*float128"):
        agym.make(partial(Echo, space, [None]), 2, output="jax")
