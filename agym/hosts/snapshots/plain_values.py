"""Copies of plain values, of which most environments consist: several times as fast as pickles.

Plain are numbers, strings, arrays, the containers of Python, and generators of random numbers. What
is shared within a value stays shared in its copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.random.bit_generator import ISeedSequence, ISpawnableSeedSequence

from agym._system.pickling import is_importable

# What cannot change, so that its copy is itself.
_SCALARS = {*np.sctypeDict.values()} - {np.object_, np.void}
ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), *_SCALARS})

# What has more containers, or longer ones, is left to pickle, whose loop is C.
MAX_ITEMS = MAX_COPIES = 32
_CONTAINERS = frozenset({list, dict, deque})


class Memo(dict[int, Any]):
    """The copies so far, by the ``id`` of their originals.

    Attributes:
        taking: A state is taken; else it is restored. Arrays that were unpickled show parts of
            others, which does not matter.
    """

    def __init__(self, *, taking: bool) -> None:
        self.taking = taking


class NotPlainError(Exception):
    """A value is not plain, or so large that a pickle is faster."""


def copy_plain(value: Any, memo: Memo) -> Any:
    """Return a copy of a plain value.

    A :class:`numpy.random.Generator` becomes a :class:`RandomState`, an array that shows a part of
    another a :class:`View`, and the reverse.

    Args:
        value: The value.
        memo: The copies so far.

    Raises:
        NotPlainError: It is not plain.
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
    if kind in _CONTAINERS and len(value) > MAX_ITEMS:
        raise NotPlainError
    return copier(value, memo)


@cache
def is_plain_kind(kind: Any) -> bool:
    """Return whether values of a type may be plain.

    That is what has a copier, and members of an enumeration that any process can import.
    """
    return kind in _COPIERS or (issubclass(kind, Enum) and is_importable(kind.__module__))


def _copy_array(value: Any, memo: Memo) -> Any:
    if value.dtype.hasobject:
        raise NotPlainError
    view = View.of(value) if memo.taking else None
    copied = view._replace(base=copy_plain(view.base, memo)) if view else value.copy(order="K")
    memo[id(value)] = copied
    return copied


def _make_view(value: View, memo: Memo) -> Any:
    copied = memo[id(value)] = value._replace(base=copy_plain(value.base, memo)).make()
    return copied


class View(NamedTuple):
    """An array that shares the memory of another, so that its copy shares that of the copy."""

    base: Any
    shape: tuple[int, ...]
    dtype: Any
    offset: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> View | None:
        """Return what an array shows of another; ``None`` if it has memory of its own."""
        base = array.base
        if type(base) is not np.ndarray or base.dtype.hasobject or not base.flags.forc:
            return None
        begin = base.__array_interface__["data"][0]
        offset = array.__array_interface__["data"][0] - begin
        return cls(base, array.shape, array.dtype, offset, array.strides)

    def make(self) -> Any:
        """Return such an array."""
        base, shape, dtype, *rest = self
        return np.ndarray(shape, dtype, base if base.flags.c_contiguous else base.T, *rest)


def _copy_list(value: list[Any] | deque[Any], memo: Memo) -> list[Any] | deque[Any]:
    copied: list[Any] | deque[Any] = [] if isinstance(value, list) else deque(maxlen=value.maxlen)
    memo[id(value)] = copied
    copied.extend([copy_plain(item, memo) for item in value])
    return copied


def _copy_tuple(value: tuple[Any, ...], memo: Memo) -> tuple[Any, ...]:
    if ATOMS.issuperset(map(type, value)):
        return value
    copied = memo[id(value)] = tuple([copy_plain(item, memo) for item in value])
    return copied


def _copy_dict(value: dict[Any, Any], memo: Memo) -> dict[Any, Any]:
    copied = memo[id(value)] = {}
    for key, item in value.items():
        copied[copy_plain(key, memo)] = copy_plain(item, memo)
    return copied


def _copy_set(value: set[Any], memo: Memo) -> Any:
    # Not in the order of insertion, but a set has none to rely on.
    if not ATOMS.issuperset(map(type, value)):
        raise NotPlainError
    copied = memo[id(value)] = value.copy()
    return copied


class RandomState(NamedTuple):
    """The state of a bit generator, so that its copy need not be seeded.

    Attributes:
        kind: The name of its class.
        state: Its state.
        seed: What its seed sequence is made from, and how many others that has spawned.
    """

    kind: str
    state: Mapping[str, Any]
    seed: tuple[Any, ...]

    @classmethod
    def of(cls, bits: Any) -> RandomState:
        """Return the state of a bit generator.

        Raises:
            NotPlainError: Its class, or that of its seed, is not NumPy's.
        """
        kind, seed = type(bits).__name__, bits.seed_seq
        if not isinstance(seed, np.random.SeedSequence | _Seed) or not hasattr(np.random, kind):
            raise NotPlainError
        made_from = seed.entropy, seed.spawn_key, seed.pool_size, seed.n_children_spawned
        return cls(kind, bits.state, made_from)

    def make(self) -> Any:
        """Return such a bit generator, in a fraction of the time of NumPy's unpickling."""
        bits = getattr(np.random, self.kind)(_NO_SEED)
        bits.__setstate__((self.state, _Seed(*self.seed)))
        return bits


def _copy_generator(value: np.random.Generator, memo: Memo) -> RandomState:
    bits = value.bit_generator  # generators may share it
    copied: RandomState = memo.get(id(bits)) or RandomState.of(bits)
    memo[id(value)] = memo[id(bits)] = copied
    return copied


def _make_generator(value: RandomState, memo: Memo) -> np.random.Generator:
    copied = memo[id(value)] = np.random.Generator(value.make())
    return copied


class _NoSeed(ISeedSequence):
    """The seed of a generator whose state is set anyway: hashing a seed takes 4 µs."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.zeros(n_words, dtype)


_NO_SEED = _NoSeed()


class _Seed(ISpawnableSeedSequence):
    """A ``SeedSequence`` that is made when it is wanted: for ``Generator.spawn``."""

    def __init__(self, entropy: Any, spawn_key: Any, pool_size: int, spawned: int) -> None:
        self.entropy, self.spawn_key, self.pool_size = entropy, spawn_key, pool_size
        self.n_children_spawned = spawned

    def spawn(self, n_children: int) -> Any:
        children = self._made().spawn(n_children)
        self.n_children_spawned += n_children
        return children

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._made().generate_state(n_words, dtype)

    def _made(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(
            self.entropy, spawn_key=self.spawn_key, pool_size=self.pool_size,
            n_children_spawned=self.n_children_spawned,
        )  # fmt: skip


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
