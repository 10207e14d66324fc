"""How to copy the state of what cannot be pickled with its state: simulators, above all.

This module is ``agym.snapshots``.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from agym._system.pickling import dumps_by_value
from agym.errors import UsageTypeError


class Codec(NamedTuple):
    """Copies the state of objects of one type.

    Attributes:
        take: Returns the state of an object, as something that can be pickled.
        put: Sets the state of an object: ``put(object, state)``.
    """

    take: Callable[[Any], Any]
    put: Callable[[Any, Any], object]


class Registered(NamedTuple):
    """What the caller registered.

    Attributes:
        version: How often it did.
        codecs: The codecs by class.
    """

    version: int
    codecs: dict[type, Codec]


_here = Registered(0, {})


def register(kind: type, take: Callable[[Any], Any], put: Callable[[Any, Any], object]) -> None:
    """Say how snapshots copy the state of an environment, a wrapper, or a simulator inside one.

    Example:
        >>> import agym
        >>> class Simulator:  # cannot be pickled, but has functions for it
        ...     def save_state(self): ...
        ...     def load_state(self, state): ...
        >>> agym.snapshots.register(Simulator, Simulator.save_state, Simulator.load_state)

    It applies to objects of this class and its subclasses that are an environment or a wrapper, or
    an attribute of one. All other attributes are copied as usual, unless the object is itself the
    environment or wrapper. Workers learn of it with the snapshot.

    Args:
        kind: The class.
        take: Returns the state of an object; anything that can be pickled.
        put: Sets it: ``put(object, state)``.

    Raises:
        UsageTypeError: An argument is of the wrong type.
    """
    if not isinstance(kind, type):
        raise UsageTypeError(f"register({kind!r}, ...): the first argument must be a class")
    for name, function in (("take", take), ("put", put)):
        if not callable(function):
            raise UsageTypeError(f"register({kind.__name__}): {name}={function!r} is no function")
    codec = Codec(partial(_take_pickled, take), partial(_put_pickled, put))
    learn(Registered(_here.version + 1, {**_here.codecs, kind: codec}))


def _take_pickled(take: Callable[[Any], Any], value: Any) -> bytes:
    """Pickle what a caller's function returns, since that may be a part of the object."""
    return dumps_by_value(take(value))


def _put_pickled(put: Callable[[Any, Any], object], value: Any, state: bytes) -> None:
    put(value, pickle.loads(state))


def registered() -> Registered:
    """Return what was registered in this process, or learned from another."""
    return _here


def learn(other: Registered) -> None:
    """Take over what the caller's process has registered, unless it is known already."""
    global _here
    if other.version > _here.version:
        _here = other
        codec_of.cache_clear()


@cache
def codec_of(kind: Any) -> Codec | None:
    """Return the codec of a class: the caller's own, else agym's, else ``None``."""
    for parent in kind.__mro__:
        codec = _here.codecs.get(parent) or _KNOWN.get(f"{parent.__module__}.{parent.__qualname__}")
        if codec is not None:
            return codec
    return None


# ---------------------------------------------------------------- simulators


def _take_ale(ale: Any) -> Any:
    """Copy an emulator with its random numbers, which sticky actions draw."""
    return ale.cloneState(include_rng=True)


def _put_ale(ale: Any, state: Any) -> None:
    ale.restoreState(state)


def _take_mujoco(data: Any) -> tuple[Any, bytes]:
    """Copy what determines the next step, and what follows from it, which rewards may read."""
    mujoco = sys.modules["mujoco"]
    integration = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(data.model, integration))
    mujoco.mj_getState(data.model, data, state, integration)
    return state, ctypes.string_at(mujoco_block(data), data.nbuffer)


def _put_mujoco(data: Any, state: tuple[Any, bytes]) -> None:
    mujoco = sys.modules["mujoco"]
    vector, arrays = state
    mujoco.mj_setState(data.model, data, vector, mujoco.mjtState.mjSTATE_INTEGRATION)
    block = mujoco_block(data)
    if len(arrays) != data.nbuffer:
        raise ValueError(f"a state of {len(arrays)} bytes, where MuJoCo has {data.nbuffer}")
    ctypes.memmove(block, arrays, len(arrays))


def mujoco_block(data: Any) -> int:
    """Return the address of the memory with all arrays of fixed size of an ``MjData``.

    ``mj_makeData`` allocates them in one block of ``nbuffer`` bytes, and ``qpos`` is the first
    (https://github.com/google-deepmind/mujoco/blob/main/src/engine/engine_io.c). Positions in the
    world, forces and velocities of bodies are among them. They lag behind ``qpos`` by a part of a
    step, so that ``mj_forward`` does not restore them, and rewards of Ant and Humanoid read them.

    Raises:
        ValueError: A plugin has state of its own elsewhere, or MuJoCo has another layout.
    """
    begin, size = ctypes.addressof(ctypes.c_char.from_buffer(data.qpos)), data.nbuffer
    if size not in _checked:
        if data.nplugin:
            raise ValueError("a plugin of MuJoCo keeps state of its own")
        for array in (data.qvel, data.xpos, data.cvel, data.qfrc_actuator):
            if array.size and not begin <= array.ctypes.data <= begin + size - array.nbytes:
                raise ValueError("the arrays of this MuJoCo's MjData are not one block")
        _checked.add(size)
    return begin


# Sizes of blocks whose layout was checked; those of one model are alike.
_checked: set[int] = set()


# By their full names, since none of these libraries need be there.
_KNOWN = {
    "ale_py._ale_py.ALEInterface": Codec(_take_ale, _put_ale),
    "mujoco._structs.MjData": Codec(_take_mujoco, _put_mujoco),
}
