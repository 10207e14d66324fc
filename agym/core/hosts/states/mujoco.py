"""Snapshots of MuJoCo: its integration state, and derived values that lag behind it."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np


def take_mujoco(data: Any) -> tuple[Any, bytes]:
    """Copy the state that determines the next step, and derived values that rewards may read."""
    mujoco = sys.modules["mujoco"]
    integration = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(data.model, integration))
    mujoco.mj_getState(data.model, data, state, integration)
    return state, ctypes.string_at(_block_of(data), data.nbuffer)


def put_mujoco(data: Any, state: tuple[Any, bytes]) -> None:
    """Set the state of a simulation.

    Raises:
        ValueError: The state is of another model.
    """
    mujoco = sys.modules["mujoco"]
    vector, arrays = state
    block = _block_of(data)
    if len(arrays) != data.nbuffer:
        raise ValueError(f"a state of {len(arrays)} bytes, but MuJoCo needs {data.nbuffer}")
    mujoco.mj_setState(data.model, data, vector, mujoco.mjtState.mjSTATE_INTEGRATION)
    ctypes.memmove(block, arrays, len(arrays))


def _block_of(data: Any) -> int:
    """Return the address of the memory with all arrays of fixed size of an ``MjData``.

    ``mj_makeData`` allocates them in one block of ``nbuffer`` bytes, and ``qpos`` is the first
    (https://github.com/google-deepmind/mujoco/blob/main/src/engine/engine_io.c). The block includes
    the world positions, forces and velocities of bodies. They lag behind ``qpos`` by part of a
    step, so that ``mj_forward`` does not restore them, and rewards of Ant and Humanoid read them.

    Raises:
        ValueError: A plugin stores state elsewhere, or this MuJoCo has another layout.
    """
    begin, size = ctypes.addressof(ctypes.c_char.from_buffer(data.qpos)), data.nbuffer
    if data.nplugin:
        raise ValueError("a plugin of MuJoCo stores state outside the simulation's data")
    if size not in _checked:
        for array in (data.qvel, data.xpos, data.cvel, data.qfrc_actuator):
            if array.size and not begin <= array.ctypes.data <= begin + size - array.nbytes:
                raise ValueError("the arrays of this MuJoCo's MjData are not one block")
        _checked.add(size)
    return begin


# Sizes of blocks whose layout was checked; blocks of one model have the same size.
_checked: set[int] = set()
