"""How to copy the state of objects that cannot be pickled with it, mainly simulators.

This module is ``agym.snapshot_codecs``.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from agym.core._system.pickling import dumps_by_value
from agym.core.hosts.states.simulators import draw_ale, put_ale, put_mujoco, take_ale, take_mujoco
from agym.errors import UsageTypeError


class Codec(NamedTuple):
    """Copies the state of objects of one type.

    Attributes:
        take: Returns the state of an object, in a form that can be pickled.
        put: Sets the state of an object: ``put(object, state)``.
        draw: Draws the state, if ``put`` does not; called with the same arguments, for environments
            that are rendered.
    """

    take: Callable[[Any], Any]
    put: Callable[[Any, Any], object]
    draw: Callable[[Any, Any], object] | None = None


class Registered(NamedTuple):
    """The codecs that the caller registered.

    Attributes:
        version: Number of registrations.
        codecs: The codecs by class.
    """

    version: int
    codecs: dict[type, Codec]


_here = Registered(0, {})
_registering = threading.Lock()


def register(kind: type, take: Callable[[Any], Any], put: Callable[[Any, Any], object]) -> None:
    """Set how snapshots copy the state of an environment, a wrapper, or a simulator inside one.

    Example:
        >>> import agym
        >>> class Simulator:  # cannot be pickled, but has functions for it
        ...     def save_state(self): ...
        ...     def load_state(self, state): ...
        >>> agym.snapshot_codecs.register(Simulator, Simulator.save_state, Simulator.load_state)

    The codec applies to objects of this class and its subclasses that are an environment or a
    wrapper, or an attribute of one. Unless the object is itself the environment or wrapper, its
    other attributes are copied as usual. Workers receive the codec with the snapshot.

    Args:
        kind: The class.
        take: Returns the state of an object; anything that can be pickled.
        put: Sets the state of an object: ``put(object, state)``.

    Raises:
        UsageTypeError: An argument is of the wrong type.
    """
    if not isinstance(kind, type):
        raise UsageTypeError(f"register({kind!r}, ...): the first argument must be a class")
    for name, function in (("take", take), ("put", put)):
        if not callable(function):
            raise UsageTypeError(
                f"register({kind.__name__}): {name}={function!r} is not a function"
            )
    codec = Codec(partial(_take_pickled, take), partial(_put_pickled, put))
    with _registering:
        learn(Registered(_here.version + 1, {**_here.codecs, kind: codec}))


def _take_pickled(take: Callable[[Any], Any], value: Any) -> bytes:
    """Pickle the result of a caller's function, because it may be a part of the object."""
    return dumps_by_value(take(value))


def _put_pickled(put: Callable[[Any, Any], object], value: Any, state: bytes) -> None:
    put(value, pickle.loads(state))


def registered() -> Registered:
    """Return the codecs that were registered in this process, or received from another."""
    return _here


def learn(other: Registered | None) -> None:
    """Use the codecs that the caller's process has registered, unless they are known already."""
    global _here
    if other is not None and other.version > _here.version:
        _here = other
        codec_of.cache_clear()


@cache
def codec_of(kind: Any) -> Codec | None:
    """Return the codec of a class: the caller's, else agym's, else ``None``."""
    for parent in kind.__mro__:
        codec = _here.codecs.get(parent) or _KNOWN.get(f"{parent.__module__}.{parent.__qualname__}")
        if codec is not None:
            return codec
    return None


# By their full names, because these libraries may not be installed.
_KNOWN = {
    "ale_py._ale_py.ALEInterface": Codec(take_ale, put_ale, draw_ale),
    "mujoco._structs.MjData": Codec(take_mujoco, put_mujoco),
}
