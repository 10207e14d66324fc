"""The state of an environment as the attributes of its layers: of each wrapper, and of itself.

All layers are pickled together, so that what they share stays shared, and restored in place: the
layers of the other environment stay, and get these attributes. What cannot have state, or is the
same in every environment of a kind, stays as it is (``_KEPT``). Objects with a codec are copied by
it. So are layers that have a protocol of their own: ``get_state`` and ``set_state``, or
``__getstate__`` and ``__setstate__``.
"""

from __future__ import annotations

import io
import logging
import pickle
import threading
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle
from gymnasium.wrappers import PassiveEnvChecker

from agym._system.pickling import dumps_by_value, is_importable
from agym.errors import SnapshotError
from agym.hosts.snapshots.codecs import Codec, codec_of

# What stays in its environment: constants, code, and what only draws.
_KEPT = (
    Space, EnvSpec, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
    types.ModuleType, logging.Logger,
)  # fmt: skip
_KEPT_NAMES = (
    "mujoco._structs.MjModel",
    "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer",
)
_KEPT_MODULES = ("pygame", "pyglet")

# What most attributes are, and has no codec.
_PLAIN = frozenset({int, float, bool, str, type(None), tuple, list, dict, np.ndarray})

# The layers of the environment that is being restored, in its thread.
_restoring = threading.local()


def layers(env: Any) -> Iterator[Any]:
    """Yield the wrappers from the outermost in, then the environment.

    Gymnasium's checker is left out: it is around the first environment alone, and has no state that
    matters.
    """
    return (layer for layer in _chain(env) if not isinstance(layer, PassiveEnvChecker))


def _chain(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = getattr(env, "__dict__", {}).get("env")


def take(env: Any, *, ask: bool = False) -> bytes:
    """Return the state of an environment with its wrappers.

    Args:
        env: The environment.
        ask: Whether layers that have a protocol of their own are asked for their state.

    Raises:
        Exception: Something in it cannot be copied.
    """
    own: list[Any] = []
    simulators: list[tuple[int, str, Any]] = []
    places: dict[int, tuple[int, str]] = {}
    for k, layer in enumerate(layers(env)):
        places[id(layer)] = k, ""
        protocol = _protocol_of(type(layer), ask=ask)
        if protocol is not None:
            own.append(protocol.take(layer))
            continue
        state = {}
        for name, value in vars(layer).items():
            kind: Any = type(value)
            if kind in _PLAIN:
                state[name] = value
                continue
            if name == "env" or is_kept(kind):
                continue
            codec = codec_of(kind)
            if codec is None:
                state[name] = value
            else:
                places[id(value)] = k, name
                simulators.append((k, name, codec.take(value)))
        own.append(state)
    try:
        return _dumps((own, simulators), places)
    except Exception as error:
        raise TypeError(_culprit(env, places) or str(error)) from error


def _dumps(value: Any, places: dict[int, tuple[int, str]]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, places).dump(value)
    return file.getvalue()


def put(env: Any, state: bytes, *, ask: bool = False) -> None:
    """Set the state of an environment with its wrappers; the arguments are those of :func:`take`.

    Raises:
        Exception: The state does not fit.
    """
    _restoring.layers = found = [*layers(env)]
    try:
        own, simulators = pickle.loads(state)
    finally:
        del _restoring.layers
    if len(own) != len(found):
        raise SnapshotError(f"it is of {len(own)} layers, and {env} has {len(found)}")
    for layer, part in zip(found, own, strict=True):
        protocol = _protocol_of(type(layer), ask=ask)
        if protocol is not None:
            protocol.put(layer, part)
            continue
        attributes = vars(layer)
        for name in attributes.keys() - part.keys() - {"env"}:
            kind: Any = type(attributes[name])
            if not is_kept(kind) and codec_of(kind) is None:
                del attributes[name]
        attributes.update(part)
    for layer in _chain(env):
        if isinstance(layer, PassiveEnvChecker) and not layer.checked_reset:
            # It would compare the first step with the reset that has not been.
            layer.checked_step = layer.checked_data_reuse = True
    for k, name, simulator in simulators:
        value = _at(found, k, name)
        kind = type(value)
        codec = codec_of(kind)
        assert codec is not None
        codec.put(value, simulator)


def simulators_of(env: Any) -> list[str]:
    """Return the names of the types with a codec that an environment has, or is."""
    kinds: set[Any] = {type(value) for layer in layers(env) for value in vars(layer).values()}
    kinds.update(map(type, layers(env)))
    return sorted(kind.__name__ for kind in kinds if codec_of(kind) is not None)


def with_protocol(env: Any) -> list[str]:
    """Return the names of the layers that have a protocol of their own."""
    found: Any = map(type, layers(env))
    return [kind.__name__ for kind in found if _own_protocol(kind) is not None]


@cache
def is_kept(kind: Any) -> bool:
    """Return whether objects of a type stay in their environment."""
    if issubclass(kind, _KEPT) or kind.__module__.partition(".")[0] in _KEPT_MODULES:
        return True
    return f"{kind.__module__}.{kind.__qualname__}" in _KEPT_NAMES


def _protocol_of(kind: Any, *, ask: bool) -> Codec | None:
    """Return the protocol of a layer: a registered one, or its own."""
    return codec_of(kind) or (_own_protocol(kind) if ask else None)


@cache
def _own_protocol(kind: Any) -> Codec | None:
    if callable(getattr(kind, "get_state", None)) and callable(getattr(kind, "set_state", None)):
        return Codec(_get_state, _set_state)
    inherited: tuple[Any, ...] = (object.__getstate__, EzPickle.__getstate__)
    if kind.__getstate__ not in inherited and hasattr(kind, "__setstate__"):
        return Codec(_getstate, _setstate)
    return None


def _get_state(layer: Any) -> Any:
    return layer.get_state()


def _set_state(layer: Any, state: Any) -> None:
    layer.set_state(state)


def _getstate(layer: Any) -> Any:
    return layer.__getstate__()


def _setstate(layer: Any, state: Any) -> None:
    layer.__setstate__(state)


class _Pickler(pickle.Pickler):
    """Pickles layers, and objects with a codec, as the places where they are found.

    It is four times as fast as ``ByValuePickler``, and knows the same things.
    """

    def __init__(self, file: io.BytesIO, places: dict[int, tuple[int, str]]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.places = places

    def reducer_override(self, obj: Any) -> Any:
        place = self.places.get(id(obj))
        if place is not None:
            return _restored, place
        kind = type(obj)
        if kind is np.random.Generator:
            bits = obj.bit_generator
            return _generator, (type(bits).__name__, bits.state)
        if issubclass(kind, EzPickle):  # unpickled from the arguments of its constructor
            raise pickle.PicklingError(f"{kind.__name__} is not pickled with its state")
        if issubclass(kind, type | types.FunctionType | types.ModuleType):
            name = obj.__name__ if kind is types.ModuleType else obj.__module__
            if kind is types.ModuleType or "<" in obj.__qualname__ or not _is_importable(name):
                return pickle.loads, (dumps_by_value(obj),)
        return NotImplemented


_is_importable = cache(is_importable)


def _generator(kind: str, state: dict[str, Any]) -> np.random.Generator:
    """Return a generator of random numbers, in half the time that NumPy's own unpickling takes."""
    bits = getattr(np.random, kind)(0)
    bits.state = state
    return np.random.Generator(bits)


def _restored(k: int, name: str) -> Any:
    """Return a layer, or an attribute of it, of the environment that is being restored."""
    return _at(_restoring.layers, k, name)


def _at(found: list[Any], k: int, name: str) -> Any:
    return vars(found[k])[name] if name else found[k]


def _culprit(env: Any, places: dict[int, tuple[int, str]]) -> str:
    """Name the attribute that cannot be pickled."""
    for layer in layers(env):
        for name, value in vars(layer).items():
            kind: Any = type(value)
            try:
                if name != "env" and not is_kept(kind):
                    _dumps(value, places)
            except Exception as error:
                what = f"{type(layer).__name__}.{name}, a {kind.__name__}"
                return f"{what}, cannot be pickled: {error}"
    return ""
