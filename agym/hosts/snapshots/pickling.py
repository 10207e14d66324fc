"""Pickles of what the layers of an environment have, where it is not plain.

Layers and objects with a codec stay where they are: a pickle names their places, and whoever reads
it says what is there.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.utils import EzPickle

from agym._system.pickling import ByValuePickler, dumps_by_value, is_importable
from agym.hosts.snapshots.plain_values import NotPlainError, RandomState, View

# A layer, and an attribute of it, or ``""`` for the layer itself.
Place = tuple[int, str]

# What is at a place, in the thread that reads a pickle: a persistent id of pickle's would be asked
# for every object.
_reading = threading.local()


def dumps(value: Any, places: dict[int, Place]) -> bytes:
    """Pickle a value.

    Args:
        value: The value.
        places: Of what stays, by ``id``.

    Raises:
        Exception: Something in it cannot be pickled, or would lose state.
    """
    try:
        return _dumps(_Pickler, value, places)
    except _NotImportableError:
        return _dumps(_SlowPickler, value, places)


def _dumps(kind: Any, value: Any, places: dict[int, Place]) -> bytes:
    file = io.BytesIO()
    pickler = kind(file, pickle.HIGHEST_PROTOCOL)
    pickler.places = places
    pickler.dump(value)
    return file.getvalue()


def loads(pickled: bytes, at: Callable[[int, str], Any]) -> Any:
    """Return a value from :func:`dumps`; ``at`` returns what is at a place."""
    _reading.at = at
    try:
        return pickle.loads(pickled)
    finally:
        del _reading.at


def _placed(k: int, name: str) -> Any:
    return _reading.at(k, name)


class _NotImportableError(Exception):
    """A function or module that another process cannot import."""


class _Pickler(pickle.Pickler):
    """Pickles layers, and objects with a codec, as the places where they are found.

    It is four times as fast as ``ByValuePickler``, which it leaves what cannot be imported.
    """

    places: dict[int, Place]

    def reducer_override(self, obj: Any) -> Any:
        reduced = _reduce(obj, self.places)
        if reduced is NotImplemented and isinstance(obj, types.FunctionType | types.ModuleType):
            if isinstance(obj, types.ModuleType) or not _is_by_name(obj):
                raise _NotImportableError
        return reduced


class _SlowPickler(ByValuePickler):
    """Does the same, with functions by value."""

    places: dict[int, Place]

    def reducer_override(self, obj: Any) -> Any:
        reduced = _reduce(obj, self.places)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def _reduce(obj: Any, places: dict[int, Place]) -> Any:
    """Reduce an object whose own reduction would lose something; else ``NotImplemented``."""
    place = places.get(id(obj))
    if place is not None:
        return _placed, place
    kind = type(obj)
    if kind is np.ndarray and (view := View.of(obj)) is not None:
        return _make, (View, *view)
    if kind is np.random.Generator:
        return np.random.Generator, (obj.bit_generator,)
    if isinstance(obj, np.random.BitGenerator):
        with suppress(NotPlainError):
            return _make, (RandomState, *RandomState.of(obj))
    if issubclass(kind, EzPickle):  # unpickled from the arguments of its constructor
        raise pickle.PicklingError(f"{kind.__name__} is not pickled with its state")
    if isinstance(obj, types.ModuleType) and _is_importable(obj.__name__):
        return import_module, (obj.__name__,)
    if isinstance(obj, type) and not _is_by_name(obj):
        return _class_of, (obj.__module__, obj.__qualname__, dumps_by_value(obj))
    return NotImplemented


def _make(kind: type[View | RandomState], *parts: Any) -> Any:
    return kind(*parts).make()


def _class_of(module: str, name: str, pickled: bytes) -> Any:
    """Return a class as it is here, or from a pickle, which would reset its attributes."""
    found: Any = sys.modules.get(module)
    with suppress(AttributeError):
        for part in name.split("."):
            found = getattr(found, part)
        if isinstance(found, type):
            return found
    return pickle.loads(pickled)


def _is_by_name(obj: Any) -> bool:
    """Return whether another process can import a function or class."""
    return "<" not in obj.__qualname__ and _is_importable(obj.__module__)


_is_importable = cache(is_importable)
