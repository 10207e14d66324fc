"""The state of an environment as the attributes of its layers: each wrapper, and the environment.

::

    layers ── attributes ── plain values ............. copied (``values.py``)
                         └─ anything else among them .. all pickled together (``values.py``)
           ── simulators, and layers with a protocol .. by their codec (``codecs.py``)
           ── constants, and objects that only draw .......... stay where they are (``_stays``)

All layers are copied together, so that shared objects stay shared, and are restored in place: the
layers of the other environment stay, and get these attributes. A layer may have a protocol for its
state: ``get_state`` and ``set_state``, or ``__getstate__`` and ``__setstate__``.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import Any, NamedTuple

from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle
from gymnasium.wrappers import PassiveEnvChecker

from agym.core.hosts.states.codecs import Codec, codec_of
from agym.core.hosts.states.values import (
    ATOMS,
    Memo,
    NotPlainError,
    Place,
    copy_plain,
    dumps,
    is_plain_kind,
    loads,
)
from agym.errors import SnapshotError

# Types of values that stay in their environment: constants, and objects that only draw.
_KEPT = (Space, EnvSpec, logging.Logger)
_KEPT_NAMES = ("mujoco._structs.MjModel", "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer")
_KEPT_MODULES = ("pygame", "pyglet")

# Attributes of Gymnasium that stay: unchanging values, the arguments of constructors, and spaces
# from which the caller draws.
_KEPT_ATTRIBUTES = frozenset({
    "metadata", "render_mode", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs",
    "action_space", "_action_space",
})  # fmt: skip

# The attributes in which wrappers keep the wrapped environment.
_WRAPPED = ("env", "aec_env")


class LayerState(NamedTuple):
    """The attributes of one layer.

    Attributes:
        names: The names of all of its attributes.
        values: The values of the attributes that have state.
        deep: The names of attributes whose values are mutable.
    """

    names: tuple[str, ...]
    values: dict[str, Any]
    deep: list[str]


class State(NamedTuple):
    """The state of an environment.

    Attributes:
        kinds: The classes of its layers.
        layers: For each layer, its ``LayerState``, or the state from its protocol. A pickle of this
            list if it is not plain.
        simulators: The states from codecs, with the layer and name of each attribute.
    """

    kinds: tuple[str, ...]
    layers: list[Any] | bytes
    simulators: list[tuple[int, str, Any]]


def layers(env: Any) -> list[Any]:
    """Return the wrappers from the outermost inwards, then the environment.

    Gymnasium's checker is left out: only the first environment has it, and it has no state that
    matters.
    """
    return [layer for layer in _chain(env) if type(layer) is not PassiveEnvChecker]


def _chain(env: Any) -> list[Any]:
    chain = {id(env): env}
    while True:
        attributes = getattr(env, "__dict__", {})
        env = next((attributes[n] for n in _WRAPPED if _is_layer(n, attributes.get(n))), None)
        if env is None or id(env) in chain:
            return [*chain.values()]
        chain[id(env)] = env


def _is_layer(name: str, value: Any) -> bool:
    """Whether an attribute is the wrapped environment, of Gymnasium or PettingZoo."""
    return name in _WRAPPED and hasattr(type(value), "unwrapped")


def _attributes_of(layer: Any) -> dict[str, Any]:
    """Return the attributes of a layer by name, including its ``__slots__``."""
    kind: Any = type(layer)
    if not _has_slots(kind):
        return getattr(layer, "__dict__", {})
    state: Any = object.__getstate__(layer)
    if isinstance(state, tuple):  # its ``__dict__``, and its slots
        return {**(state[0] or {}), **state[1]}
    return state or {}


@cache
def _has_slots(kind: Any) -> bool:
    return any(getattr(parent, "__slots__", ()) for parent in kind.__mro__)


def take(env: Any, *, use_protocols: bool = False) -> State:
    """Return the state of an environment with its wrappers.

    Args:
        env: The environment.
        use_protocols: Whether to use the protocols of layers that have one.

    Raises:
        Exception: A part of it cannot be copied.
    """
    chain = layers(env)
    places: dict[int, Place] = {}
    parts: list[Any] = []
    simulators: list[tuple[int, str, Any, Codec]] = []
    plain = True
    for k, layer in enumerate(chain):
        places[id(layer)] = k, ""
        protocol = _protocol_of(type(layer), use_protocols=use_protocols)
        if protocol is not None:
            parts.append(protocol.take(layer))
            plain = False
            continue
        attributes = _attributes_of(layer)
        values, deep = {}, []
        for name, value in attributes.items():
            # Does the same as ``_attribute_stays``, whose call takes longer.
            if name in _KEPT_ATTRIBUTES or _is_layer(name, value):
                continue
            kind: Any = type(value)
            if kind in ATOMS:
                values[name] = value
            elif _stays(value):
                continue
            elif (codec := codec_of(kind)) is not None:
                places[id(value)] = k, name
                simulators.append((k, name, value, codec))
            else:
                values[name] = value
                deep.append(name)
                plain = plain and is_plain_kind(kind)
        parts.append(LayerState(tuple(attributes), values, deep))
    # Simulators come last, because taking their state may change attributes that show it.
    return State(
        tuple(map(_name_of, map(type, chain))),
        _copied(chain, parts, places, plain=plain),
        [(k, name, codec.take(value)) for k, name, value, codec in simulators],
    )


def _copied(
    chain: list[Any], parts: list[Any], places: dict[int, Place], *, plain: bool
) -> list[Any] | bytes:
    """Return a copy of the states of layers, or a pickle of them."""
    try:
        if plain:
            return _copy_parts(parts, Memo(taking=True))
    except (NotPlainError, RecursionError):
        pass
    try:
        return dumps(parts, places)
    except Exception as error:
        raise TypeError(_culprit(chain, places) or str(error)) from error


def _copy_parts(parts: list[LayerState], memo: Memo) -> list[LayerState]:
    copied = []
    for names, values, deep in parts:
        values = values.copy()
        for name in deep:
            values[name] = copy_plain(values[name], memo)
        copied.append(LayerState(names, values, deep))
    return copied


def _culprit(chain: list[Any], places: dict[int, Place]) -> str:
    """Name the attribute that can't be pickled."""
    for layer in chain:
        for name, value in _attributes_of(layer).items():
            try:
                if not _attribute_stays(name, value):
                    dumps(value, places)
            except Exception as error:
                what = f"{type(layer).__name__}.{name}, a {type(value).__name__}"
                return f"{what}, can't be pickled: {error}"
    return ""


def put(env: Any, state: State) -> None:
    """Set the state of an environment with its wrappers.

    The environment is reset if it lacks objects that only a reset makes, such as a simulator.

    Raises:
        SnapshotError: The state has other layers, or the environment lacks an attribute for it.
        Exception: A part does not fit.
    """
    chain = layers(env)
    kinds = tuple(map(_name_of, map(type, chain)))
    if kinds != state.kinds:
        saved, present = " around ".join(state.kinds), " around ".join(kinds)
        raise SnapshotError(f"it was taken from {saved}, not from {present}")
    parts, missing = _fitting(state, chain)
    if missing:
        env.reset()
        parts, missing = _fitting(state, chain)
    if missing:
        raise SnapshotError(f"this environment has no {missing[0]!r}, nor has the snapshot")
    for layer, part in zip(chain, parts, strict=True):
        if isinstance(part, LayerState):
            _set_attributes(layer, part)
        else:
            protocol = _protocol_of(type(layer), use_protocols=True)
            assert protocol is not None
            protocol.put(layer, part)
    _silence_checker(env)
    for k, name, simulator in state.simulators:
        value = _at(chain, k, name)
        codec = _codec_for(value)
        assert codec is not None
        codec.put(value, simulator)
        if codec.draw is not None and _attributes_of(chain[k]).get("render_mode") is not None:
            codec.draw(value, simulator)


def _fitting(state: State, chain: list[Any]) -> tuple[list[Any], list[str]]:
    """Return copies of the states of layers, or the names of attributes that the layers lack."""
    missing = [name for k, name, _ in state.simulators if not _codec_for(_at(chain, k, name))]
    if missing:  # a pickle may refer to them
        return [], missing
    if isinstance(state.layers, bytes):
        parts = loads(state.layers, partial(_at, chain))
    else:
        parts = _copy_parts(state.layers, Memo(taking=False))
    for layer, part in zip(chain, parts, strict=True):
        attributes = _attributes_of(layer)
        if isinstance(part, LayerState) and tuple(attributes) != part.names:
            missing += [n for n in part.names if n not in attributes and n not in part.values]
    return parts, missing


def _set_attributes(layer: Any, part: LayerState) -> None:
    """Set attributes, and delete attributes that were added later."""
    attributes, values = _attributes_of(layer), part.values
    if tuple(attributes) != part.names:
        for name in attributes.keys() - {*part.names}:
            if not _attribute_stays(name, attributes[name]) and not _codec_for(attributes[name]):
                object.__delattr__(layer, name)
    if attributes.get("render_mode") is not None:  # keep its drawing objects open
        values = {
            name: value
            for name, value in values.items()
            if value is not None or not _stays(attributes.get(name))
        }
    if attributes is getattr(layer, "__dict__", None):
        attributes.update(values)
    else:
        for name, value in values.items():  # some are in slots
            object.__setattr__(layer, name, value)


def _at(chain: list[Any], k: int, name: str) -> Any:
    return _attributes_of(chain[k]).get(name) if name else chain[k]


def _codec_for(value: Any) -> Codec | None:
    kind: Any = type(value)
    return codec_of(kind)


def _silence_checker(env: Any) -> None:
    """Keep Gymnasium's checker from comparing the first step with a reset that did not happen."""
    for layer in _chain(env):
        if isinstance(layer, PassiveEnvChecker) and not layer.checked_reset:
            layer.checked_step = layer.checked_data_reuse = True


def describe(env: Any, *, use_protocols: bool) -> str:
    """Describe what :func:`take` copies, in a few words."""
    chain = layers(env)
    values = [value for layer in chain for value in (layer, *_attributes_of(layer).values())]
    simulators = sorted({type(value).__name__ for value in values if _codec_for(value)})
    parts = [f"the state of {name}" for name in simulators]
    if use_protocols:
        names = [kind.__name__ for kind in map(type, chain) if _class_protocol(kind) is not None]
        parts += [f"the state that {name} returns" for name in names]
    return " and ".join([*parts, "the attributes of all layers"])


@cache
def _name_of(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# ---------------------------------------------------------------- protocols


def has_protocol(env: Any) -> bool:
    """Return whether any layer has a protocol."""
    return any(map(_class_protocol, map(type, layers(env))))


def _protocol_of(kind: Any, *, use_protocols: bool) -> Codec | None:
    """Return the protocol of a class of layers: a registered protocol, or the class's own."""
    return codec_of(kind) or (_class_protocol(kind) if use_protocols else None)


@cache
def _class_protocol(kind: Any) -> Codec | None:
    if callable(getattr(kind, "get_state", None)) and callable(getattr(kind, "set_state", None)):
        return Codec(kind.get_state, kind.set_state)
    inherited: tuple[Any, ...] = (object.__getstate__, EzPickle.__getstate__)
    if kind.__getstate__ not in inherited and hasattr(kind, "__setstate__"):
        return Codec(kind.__getstate__, kind.__setstate__)
    return None


# ---------------------------------------------------------------- what stays


def _attribute_stays(name: str, value: Any) -> bool:
    """Return whether an attribute stays in its environment, by its name or its value."""
    by_name = name in _KEPT_ATTRIBUTES or _is_layer(name, value)
    return by_name or _stays(value)


def _stays(value: Any) -> bool:
    """Return whether a value stays in its environment.

    So do lists of such values, such as pictures. A space that an environment samples does not.
    """
    kind: Any = type(value)
    if not _is_kept_kind(kind):
        return kind is list and len(value) > 0 and all(map(_stays, value))
    return not isinstance(value, Space) or not _is_drawn_from(value)


@cache
def _is_kept_kind(kind: Any) -> bool:
    if issubclass(kind, _KEPT) or kind.__module__.partition(".")[0] in _KEPT_MODULES:
        return True
    return _name_of(kind) in _KEPT_NAMES


def _is_drawn_from(space: Any) -> bool:
    if getattr(space, "_np_random", None) is not None:
        return True
    parts = getattr(space, "spaces", ())
    return any(map(_is_drawn_from, parts.values() if isinstance(parts, dict) else parts))
