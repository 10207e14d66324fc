"""Copies of the attributes of layers: plain values item by item, all others by pickling.

Plain values are numbers, strings, arrays, Python's containers, and random number generators, of
which most environments consist. Copying them is several times as fast as pickling. With both, an
object that is shared within a value stays shared, an array that shows part of another becomes a
:class:`View` of it, and a bit generator becomes a :class:`RandomState`.

Layers and objects with a codec stay where they are: a pickle contains only their places, and the
reader supplies the objects.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils import EzPickle
from numpy.random.bit_generator import ISeedSequence, ISpawnableSeedSequence

from agym.core._system.pickling import ByValuePickler, dumps_by_value, is_importable

# Immutable values, whose copy is the value itself.
_SCALARS = {*np.sctypeDict.values()} - {np.object_, np.void}
ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), *_SCALARS})

# Values with more containers, or longer ones, are pickled instead: pickle's loop is in C.
MAX_ITEMS = MAX_COPIES = 32


class Memo(dict[int, Any]):
    """The copies so far, by the ``id`` of their originals.

    Attributes:
        taking: Whether a state is taken; otherwise it is restored. Unpickled arrays show parts of
            others, which does not matter then.
    """

    def __init__(self, *, taking: bool) -> None:
        self.taking = taking


class NotPlainError(Exception):
    """A value is not plain, or so large that a pickle is faster."""


# ---------------------------------------------------------------- arrays and random numbers


class View(NamedTuple):
    """An array that shares the memory of another, so that their copies share memory, too."""

    base: Any
    shape: tuple[int, ...]
    dtype: Any
    offset: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> View | None:
        """Return the part that an array shows of another; ``None`` if it has its own memory."""
        base = array.base
        if type(base) is not np.ndarray or base.dtype.hasobject or not base.flags.forc:
            return None
        begin = base.__array_interface__["data"][0]
        offset = array.__array_interface__["data"][0] - begin
        return cls(base, array.shape, array.dtype, offset, array.strides)

    def make(self) -> Any:
        """Return an array with this memory."""
        base = self.base if self.base.flags.c_contiguous else self.base.T
        return np.ndarray(self.shape, self.dtype, base, self.offset, self.strides)


class RandomState(NamedTuple):
    """The state of a bit generator, so that its copy need not be seeded.

    Attributes:
        kind: The name of its class.
        state: Its state.
        seed: The arguments of its seed sequence, and the number of its children.
    """

    kind: str
    state: Mapping[str, Any]
    seed: tuple[Any, ...]

    @classmethod
    def of(cls, bits: Any) -> RandomState:
        """Return the state of a bit generator.

        Raises:
            NotPlainError: Its class, or that of its seed, is not a class of NumPy.
        """
        kind, seed = type(bits).__name__, bits.seed_seq
        if not isinstance(seed, np.random.SeedSequence | _Seed) or not hasattr(np.random, kind):
            raise NotPlainError
        made_from = seed.entropy, seed.spawn_key, seed.pool_size, seed.n_children_spawned
        return cls(kind, bits.state, made_from)

    def make(self) -> Any:
        """Return a bit generator in this state, in a fraction of the time of NumPy's unpickling."""
        bits = getattr(np.random, self.kind)(_NO_SEED)
        bits.__setstate__((self.state, _Seed(*self.seed)))
        return bits


class _NoSeed(ISeedSequence):
    """The seed of a generator whose state is set anyway: hashing a seed takes 4 µs."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.zeros(n_words, dtype)


_NO_SEED = _NoSeed()


@dataclass(eq=False)
class _Seed(ISpawnableSeedSequence):
    """A ``SeedSequence`` that is created only when needed: for ``Generator.spawn``."""

    entropy: Any
    spawn_key: Any
    pool_size: int
    n_children_spawned: int

    def spawn(self, n_children: int) -> Any:
        children = self._made().spawn(n_children)
        self.n_children_spawned += n_children
        return children

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._made().generate_state(n_words, dtype)

    def _made(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(**vars(self))


# ---------------------------------------------------------------- plain values


def copy_plain(value: Any, memo: Memo) -> Any:
    """Return a copy of a plain value.

    A :class:`numpy.random.Generator` becomes a :class:`RandomState`, an array that shows a part of
    another a :class:`View`, and vice versa.

    Args:
        value: The value.
        memo: The copies so far.

    Raises:
        NotPlainError: The value is not plain.
    """
    kind: Any = type(value)
    if kind in ATOMS:
        return value
    if id(value) in memo:
        return memo[id(value)]
    copier = _COPIERS.get(kind)
    if copier is None and is_plain_kind(kind):
        return value
    if copier is None or len(memo) > MAX_COPIES:
        raise NotPlainError
    copied = memo[id(value)] = copier(value, memo)
    return copied


@cache
def is_plain_kind(kind: Any) -> bool:
    """Return whether values of a type may be plain.

    These are types with a copier, and enumerations that any process can import.
    """
    return kind in _COPIERS or (issubclass(kind, Enum) and is_importable(kind.__module__))


def _copy_array(value: Any, memo: Memo) -> Any:
    if value.dtype.hasobject:
        raise NotPlainError
    view = View.of(value) if memo.taking and value.base is not None else None
    return view._replace(base=copy_plain(view.base, memo)) if view else value.copy(order="K")


def _make_view(value: View, memo: Memo) -> Any:
    return value._replace(base=copy_plain(value.base, memo)).make()


def _copy_list(value: list[Any] | deque[Any], memo: Memo) -> list[Any] | deque[Any]:
    if len(value) > MAX_ITEMS:
        raise NotPlainError
    copied: list[Any] | deque[Any] = [] if isinstance(value, list) else deque(maxlen=value.maxlen)
    memo[id(value)] = copied  # it may contain itself
    copied.extend([copy_plain(item, memo) for item in value])
    return copied


def _copy_dict(value: dict[Any, Any], memo: Memo) -> dict[Any, Any]:
    if len(value) > MAX_ITEMS:
        raise NotPlainError
    copied = memo[id(value)] = {}
    for key, item in value.items():
        copied[copy_plain(key, memo)] = copy_plain(item, memo)
    return copied


def _copy_tuple(value: tuple[Any, ...], memo: Memo) -> tuple[Any, ...]:
    if ATOMS.issuperset(map(type, value)):
        return value
    return tuple([copy_plain(item, memo) for item in value])


def _copy_set(value: set[Any], memo: Memo) -> set[Any]:
    # The copy may have another order, but the order of a set is undefined anyway.
    if not ATOMS.issuperset(map(type, value)):
        raise NotPlainError
    return value.copy()


def _copy_generator(value: np.random.Generator, memo: Memo) -> Any:
    bits = value.bit_generator  # generators may share it
    return memo.setdefault(id(bits), RandomState.of(bits))


def _make_generator(value: RandomState, memo: Memo) -> np.random.Generator:
    return np.random.Generator(value.make())


_COPIERS: dict[Any, Callable[[Any, Memo], Any]] = {
    np.ndarray: _copy_array,
    list: _copy_list,
    tuple: _copy_tuple,
    dict: _copy_dict,
    set: _copy_set,
    deque: _copy_list,
    np.random.Generator: _copy_generator,
    RandomState: _make_generator,
    View: _make_view,
}


# ---------------------------------------------------------------- pickles

# A layer's index, and the name of an attribute of it, or ``""`` for the layer itself.
Place = tuple[int, str]

# The function that returns the object at a place, per thread: several threads may read pickles at
# the same time, each for another environment. (Persistent ids would cost a call for every object.)
_reading = threading.local()


def dumps(value: Any, places: dict[int, Place]) -> bytes:
    """Pickle a value.

    Args:
        value: The value.
        places: The places of objects that stay, by ``id``.

    Raises:
        Exception: A part of it cannot be pickled, or would lose state.
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
    """Return a value from :func:`dumps`; ``at`` returns the object at a place."""
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
    """Pickles layers, and objects with a codec, as their places.

    It is four times as fast as ``ByValuePickler``, which handles objects that cannot be imported.
    """

    places: dict[int, Place]

    def reducer_override(self, obj: Any) -> Any:
        reduced = _reduce(obj, self.places)
        if reduced is NotImplemented and (
            isinstance(obj, types.ModuleType)
            or (isinstance(obj, types.FunctionType) and not _is_by_name(obj))
        ):
            raise _NotImportableError
        return reduced


class _SlowPickler(ByValuePickler):
    """Does the same, and pickles functions by value."""

    places: dict[int, Place]

    def reducer_override(self, obj: Any) -> Any:
        reduced = _reduce(obj, self.places)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def _reduce(obj: Any, places: dict[int, Place]) -> Any:
    """Reduce an object whose own reduction would lose state; else ``NotImplemented``."""
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
        raise pickle.PicklingError(f"{kind.__name__} is pickled without its state")
    if isinstance(obj, types.ModuleType) and _is_importable(obj.__name__):
        return import_module, (obj.__name__,)
    if isinstance(obj, type) and not _is_by_name(obj):
        return _class_of, (obj.__module__, obj.__qualname__, dumps_by_value(obj))
    return NotImplemented


def _make(kind: type[View | RandomState], *parts: Any) -> Any:
    return kind(*parts).make()


def _class_of(module: str, name: str, pickled: bytes) -> Any:
    """Return a class that exists here; else unpickle it, which would reset its attributes."""
    with suppress(AttributeError):
        existing = attrgetter(name)(sys.modules.get(module))
        if isinstance(existing, type):
            return existing
    return pickle.loads(pickled)


def _is_by_name(obj: Any) -> bool:
    """Return whether another process can import a function or class."""
    return "<" not in obj.__qualname__ and _is_importable(obj.__module__)


_is_importable = cache(is_importable)
