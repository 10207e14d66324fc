"""Snapshots of MuJoCo: its own integration state, and what lags behind it."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np


def take_mujoco(data: Any) -> tuple[Any, bytes]:
    """Copy what determines the next step, and what follows from it, which rewards may read."""
    mujoco = sys.modules["mujoco"]
    integration = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(data.model, integration))
    mujoco.mj_getState(data.model, data, state, integration)
    return state, ctypes.string_at(_block_of(data), data.nbuffer)


def put_mujoco(data: Any, state: tuple[Any, bytes]) -> None:
    """Set the state of a simulation.

    Raises:
        ValueError: It is of another model.
    """
    mujoco = sys.modules["mujoco"]
    vector, arrays = state
    block = _block_of(data)
    if len(arrays) != data.nbuffer:
        raise ValueError(f"a state of {len(arrays)} bytes, where MuJoCo has {data.nbuffer}")
    mujoco.mj_setState(data.model, data, vector, mujoco.mjtState.mjSTATE_INTEGRATION)
    ctypes.memmove(block, arrays, len(arrays))


def _block_of(data: Any) -> int:
    """Return the address of the memory with all arrays of fixed size of an ``MjData``.

    ``mj_makeData`` allocates them in one block of ``nbuffer`` bytes, and ``qpos`` is the first
    (https://github.com/google-deepmind/mujoco/blob/main/src/engine/engine_io.c). Positions in the
    world, forces and velocities of bodies are among them. They lag behind ``qpos`` by a part of a
    step, so that ``mj_forward`` does not restore them, and rewards of Ant and Humanoid read them.

    Raises:
        ValueError: A plugin has state of its own elsewhere, or MuJoCo has another layout.
    """
    begin, size = ctypes.addressof(ctypes.c_char.from_buffer(data.qpos)), data.nbuffer
    if data.nplugin:
        raise ValueError("a plugin of MuJoCo keeps state of its own")
    if size not in _checked:
        for array in (data.qvel, data.xpos, data.cvel, data.qfrc_actuator):
            if array.size and not begin <= array.ctypes.data <= begin + size - array.nbytes:
                raise ValueError("the arrays of this MuJoCo's MjData are not one block")
        _checked.add(size)
    return begin


# Sizes of blocks whose layout was checked; those of one model are alike.
_checked: set[int] = set()
