"""``output="jax"``: arrays of JAX. Run by ``test_jax.py`` in a process of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import agym
from agym.api.output import JaxArrays
from agym.core.protocol.memory import Arena
from agym.errors import UsageError
from tests.api.output.suite import OutputSuite
from tests.support.envs.plain_envs import Tally


class TestJax(OutputSuite):
    output = "jax"  # its workers are spawned: JAX warns of every fork
    array = jax.Array

    def convert(self, array: Any) -> Any:
        return jnp.asarray(array)


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


def test_views_that_change_are_refused() -> None:
    for make in (agym.make, agym.make_async):
        with pytest.raises(UsageError, match="copy=False returns views that change"):
            make(Tally, 2, output="jax", copy=False)
