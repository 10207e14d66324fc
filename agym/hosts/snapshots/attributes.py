"""The state of an environment as the attributes of its layers: of each wrapper, and of itself.

::

    layers ── attributes ── plain values ............. copied (``plain_values.py``)
                         └─ anything else among them .. all pickled together (``pickling.py``)
           ── simulators, and layers with a protocol .. by their codec (``codecs.py``)
           ── constants, and what only draws .......... stay where they are (``_KEPT``)

All layers are copied together, so that what they share stays shared, and restored in place: the
layers of the other environment stay, and get these attributes. A layer has a protocol of its own by
``get_state`` and ``set_state``, or ``__getstate__`` and ``__setstate__``.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import Any, NamedTuple

from gymnasium import Env, Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle
from gymnasium.wrappers import PassiveEnvChecker

from agym.errors import SnapshotError
from agym.hosts.snapshots.codecs import Codec, codec_of
from agym.hosts.snapshots.pickling import dumps, loads
from agym.hosts.snapshots.plain_values import (
    ATOMS,
    Memo,
    NotPlainError,
    copy_plain,
    is_constant,
    is_container,
)

# What stays in its environment: constants, and what only draws.
_KEPT = (Space, EnvSpec, logging.Logger)
_KEPT_NAMES = (
    "mujoco._structs.MjModel",
    "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer",
)
_KEPT_MODULES = ("pygame", "pyglet")

# Gymnasium's own: what does not change, the arguments of constructors, and spaces
# from which the caller draws.
_KEPT_ATTRIBUTES = frozenset({
    "metadata", "render_mode", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs",
    "action_space", "_action_space",
})  # fmt: skip


class LayerState(NamedTuple):
    """The attributes of one layer.

    Attributes:
        names: The names of all of its attributes.
        values: Those that have state.
        deep: The names of those whose values can change.
    """

    names: tuple[str, ...]
    values: dict[str, Any]
    deep: list[str]

    def missing(self, attributes: dict[str, Any]) -> list[str]:
        """Return the names of what stays in its environment, and another does not have."""
        if tuple(attributes) == self.names:
            return []
        return [n for n in self.names if n not in attributes and n not in self.values]


class State(NamedTuple):
    """The state of an environment.

    Attributes:
        kinds: The classes of its layers.
        layers: Of each layer: its ``LayerState``, or what its protocol returned. A pickle of this
            list if it is not plain.
        simulators: What codecs returned, with the layer and name of each attribute.
    """

    kinds: tuple[str, ...]
    layers: list[Any] | bytes
    simulators: list[tuple[int, str, Any]]


def layers(env: Any) -> list[Any]:
    """Return the wrappers from the outermost in, then the environment.

    Gymnasium's checker is left out: it is around the first environment alone, and has no state that
    matters.
    """
    return [layer for layer in _chain(env) if type(layer) is not PassiveEnvChecker]


def _chain(env: Any) -> list[Any]:
    found = {id(env): env}
    while isinstance(env := getattr(env, "__dict__", {}).get("env"), Env) and id(env) not in found:
        found[id(env)] = env
    return [*found.values()]


@cache
def _name_of(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def take(env: Any, *, use_protocol: bool = False) -> State:
    """Return the state of an environment with its wrappers.

    Args:
        env: The environment.
        use_protocol: Whether layers are asked that have a protocol of their own.

    Raises:
        Exception: Something in it cannot be copied.
    """
    own: list[Any] = []
    found: list[tuple[int, str, Any, Codec]] = []
    places: dict[int, tuple[int, str]] = {}
    plain = True
    chain = layers(env)
    for k, layer in enumerate(chain):
        places[id(layer)] = k, ""
        protocol = _protocol_of(type(layer), use_protocol=use_protocol)
        if protocol is not None:
            own.append(protocol.take(layer))
            plain = False
            continue
        attributes = vars(layer)
        values, deep = {}, []
        for name, value in attributes.items():
            kind: Any = type(value)
            if name in _KEPT_ATTRIBUTES or (name == "env" and isinstance(value, Env)):
                continue
            if kind in ATOMS:
                values[name] = value
            elif _stays(value):
                continue
            elif (codec := codec_of(kind)) is not None:
                places[id(value)] = k, name
                found.append((k, name, value, codec))
            else:
                values[name] = value
                deep.append(name)
                plain = plain and (is_container(kind) or is_constant(kind))
        own.append(LayerState(tuple(attributes), values, deep))
    return State(
        tuple(map(_name_of, map(type, chain))),
        _copied(env, own, places, plain=plain),
        [(k, name, codec.take(value)) for k, name, value, codec in found],
    )


def _copied(
    env: Any, own: list[Any], places: dict[int, tuple[int, str]], *, plain: bool
) -> list[Any] | bytes:
    """Return a copy of what was found, or a pickle of it."""
    try:
        if plain:
            return _copy_layers(own, Memo(taking=True))
    except (NotPlainError, RecursionError):
        pass
    try:
        return dumps(own, places)
    except Exception as error:
        raise TypeError(_culprit(env, places) or str(error)) from error


def _copy_layers(own: list[LayerState], memo: Memo) -> list[LayerState]:
    copied = []
    for names, values, deep in own:
        mine = values.copy()
        for name in deep:
            mine[name] = copy_plain(values[name], memo)
        copied.append(LayerState(names, mine, deep))
    return copied


def put(env: Any, state: State, *, use_protocol: bool = False, reset: bool = True) -> None:
    """Set the state of an environment with its wrappers.

    Args:
        env: The environment.
        state: The state.
        use_protocol: As it was taken.
        reset: Reset the environment if it lacks what only a reset makes, such as a simulator.

    Raises:
        SnapshotError: It is of other layers, or lacks what stays in its environment.
        Exception: A part does not fit.
    """
    found = layers(env)
    kinds = tuple(map(_name_of, map(type, found)))
    if kinds != state.kinds:
        one, other = " around ".join(state.kinds), " around ".join(kinds)
        raise SnapshotError(f"it is of {one}, and not of {other}")
    missing = [name for k, name, _ in state.simulators if _codec_at(found, k, name) is None]
    own: list[Any] = []
    if not missing:
        own = _loaded(state.layers, found)
        for layer, part in zip(found, own, strict=True):
            if isinstance(part, LayerState):
                missing += part.missing(vars(layer))
    if missing and reset:
        env.reset()
        put(env, state, use_protocol=use_protocol, reset=False)
        return
    if missing:
        raise SnapshotError(f"this environment has no attribute {missing[0]!r}, and no copy of it")
    for layer, part in zip(found, own, strict=True):
        protocol = _protocol_of(type(layer), use_protocol=use_protocol)
        if protocol is not None:
            protocol.put(layer, part)
            continue
        attributes, (names, values, _) = vars(layer), part
        if tuple(attributes) != names:
            for name in attributes.keys() - {*names}:
                kind: Any = type(attributes[name])
                stays = name in _KEPT_ATTRIBUTES or _stays(attributes[name])
                stays = stays or (name == "env" and isinstance(attributes[name], Env))
                if not stays and codec_of(kind) is None:
                    del attributes[name]
        if attributes.get("render_mode") is not None:  # what it draws with stays open
            values = {
                name: value
                for name, value in values.items()
                if value is not None or not _stays(attributes.get(name))
            }
        attributes.update(values)
    if len(_chain(env)) != len(found):
        _spare_checker(env)
    for k, name, simulator in state.simulators:
        value, codec = _at(found, k, name), _codec_at(found, k, name)
        assert codec is not None
        codec.put(value, simulator)
        if codec.draw is not None and vars(found[k]).get("render_mode") is not None:
            codec.draw(value, simulator)


def _loaded(states: list[Any] | bytes, found: list[Any]) -> list[Any]:
    """Return states of layers that may be given away."""
    if isinstance(states, bytes):
        loaded: list[Any] = loads(states, partial(_at, found))
        return loaded
    return _copy_layers(states, Memo(taking=False))


def _codec_at(found: list[Any], k: int, name: str) -> Codec | None:
    kind: Any = type(vars(found[k]).get(name))
    return codec_of(kind)


def _spare_checker(env: Any) -> None:
    """Keep Gymnasium's checker from comparing the first step with the reset that has not been."""
    for layer in _chain(env):
        if isinstance(layer, PassiveEnvChecker) and not layer.checked_reset:
            layer.checked_step = layer.checked_data_reuse = True


def simulators_of(env: Any) -> list[str]:
    """Return the names of the types with a codec that an environment has, or is."""
    kinds: set[Any] = {type(value) for layer in layers(env) for value in vars(layer).values()}
    kinds.update(map(type, layers(env)))
    return sorted(kind.__name__ for kind in kinds if codec_of(kind) is not None)


@cache
def with_protocol(kinds: tuple[Any, ...]) -> list[str]:
    """Return the names of those types of layers that have a protocol of their own."""
    return [kind.__name__ for kind in kinds if _own_protocol(kind) is not None]


@cache
def _is_kept(kind: Any) -> bool:
    """Return whether objects of a type stay in their environment."""
    if issubclass(kind, _KEPT) or kind.__module__.partition(".")[0] in _KEPT_MODULES:
        return True
    return f"{kind.__module__}.{kind.__qualname__}" in _KEPT_NAMES


def _stays(value: Any) -> bool:
    """Return whether a value stays in its environment.

    So do lists of such values: pictures. A space from which an environment draws does not.
    """
    kind: Any = type(value)
    if not _is_kept(kind):
        return kind is list and len(value) > 0 and all(map(_stays, value))
    return not isinstance(value, Space) or not _is_drawn_from(value)


def _is_drawn_from(space: Any) -> bool:
    if getattr(space, "_np_random", None) is not None:
        return True
    parts = getattr(space, "spaces", ())
    return any(map(_is_drawn_from, parts.values() if isinstance(parts, dict) else parts))


def _protocol_of(kind: Any, *, use_protocol: bool) -> Codec | None:
    """Return the protocol of a layer: a registered one, or its own."""
    return codec_of(kind) or (_own_protocol(kind) if use_protocol else None)


@cache
def _own_protocol(kind: Any) -> Codec | None:
    if callable(getattr(kind, "get_state", None)) and callable(getattr(kind, "set_state", None)):
        return Codec(kind.get_state, kind.set_state)
    inherited: tuple[Any, ...] = (object.__getstate__, EzPickle.__getstate__)
    if kind.__getstate__ not in inherited and hasattr(kind, "__setstate__"):
        return Codec(kind.__getstate__, kind.__setstate__)
    return None


def _at(found: list[Any], k: int, name: str) -> Any:
    return vars(found[k])[name] if name else found[k]


def _culprit(env: Any, places: dict[int, tuple[int, str]]) -> str:
    """Name the attribute that cannot be pickled."""
    for layer in layers(env):
        for name, value in vars(layer).items():
            kind: Any = type(value)
            try:
                if name != "env" and not _stays(value):
                    dumps(value, places)
            except Exception as error:
                what = f"{type(layer).__name__}.{name}, a {kind.__name__}"
                return f"{what}, cannot be pickled: {error}"
    return ""
