"""Copies of functions in which other functions take the place of those they name.

A kernel names a stand-in for ``step``, and a rule book's ``step`` names helpers of its module.
Compiled code must call compiled functions, so each function is copied with its global names
replaced, and compiled, after those that it calls.
"""

from __future__ import annotations

import dis
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from agym.errors import UsageError


class Binder:
    """Binds functions and all that they call, each once.

    Args:
        replaced: Functions, and those that take their place.
        compile_one: What is done with each bound function; ``None`` for nothing, and then functions
            may call themselves.
    """

    def __init__(
        self,
        replaced: Mapping[FunctionType, FunctionType],
        compile_one: Callable[[FunctionType], Any] | None,
    ) -> None:
        self._replaced = replaced
        self._compile = compile_one
        self._done: dict[FunctionType, Any] = {}
        self._open: list[FunctionType] = []

    def bind(self, function: Any) -> Any:
        """Return a bound and compiled copy of a function."""
        if function in self._done:
            return self._done[function]
        if function in self._open:
            raise UsageError(
                f"{place_of(function)}: {function.__name__} calls itself, which cannot be compiled"
                " here: write a loop, or take engine='python'"
            )
        self._open.append(function)
        copy = self.copy(function)
        self._done[function] = copy if self._compile is None else self._compile(copy)
        self._open.pop()
        return self._done[function]

    def copy(self, function: Any) -> FunctionType:
        """Return a bound copy of a function."""
        refuse_other_randomness(function)
        names = {**function.__globals__}
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copy = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells
        )
        copy.__qualname__ = function.__qualname__
        copy.__kwdefaults__ = function.__kwdefaults__
        if self._compile is None:
            self._done[function] = copy  # also for itself, if it calls itself
        names.update((name, self._bound(names[name])) for name in [*global_names(function)])
        for cell, theirs in zip(cells, function.__closure__ or (), strict=True):
            cell.cell_contents = self._bound(theirs.cell_contents)
        return copy

    def _bound(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            return self.bind(self._replaced.get(value, value))
        return widened(value)


def widened(value: Any) -> Any:
    """Return a constant in the 64 bits in which rules compute.

    NumPy's smaller numbers have arithmetic of their own, which is another one in compiled code.
    """
    if isinstance(value, np.ndarray | np.generic) and value.dtype != np.uint64:
        wide = {"f": np.float64, "i": np.int64, "u": np.int64}.get(value.dtype.kind)
        return value if wide is None else value.astype(wide, copy=False)
    return value


def global_names(function: FunctionType) -> Iterator[str]:
    """Yield the global names that a function uses, but not Python's own."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        loads = (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
        yield from (name for name in loads if name in function.__globals__)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def constants_of(owner: Any, code: CodeType, depth: int = 3) -> Iterator[Any]:
    """Yield what a function may read of a module or class, such as ``settings.SPEED``.

    ``depth`` is the number of modules in a chain such as ``settings.physics.SPEED``.
    """
    if isinstance(owner, type | ModuleType) and depth:
        codes = [code, *(one for one in code.co_consts if isinstance(one, CodeType))]
        for name in sorted({name for one in codes for name in one.co_names}):
            value = getattr(owner, name, None)
            function = getattr(value, "py_func", value)  # of one that numba has compiled
            if isinstance(value, bool | int | float | tuple | np.ndarray | np.generic):
                yield name, value
            elif isinstance(function, FunctionType):
                yield name, function
            else:
                yield from constants_of(value, code, depth - 1)


def refuse_other_randomness(function: FunctionType) -> None:
    """Refuse random numbers that no seed of a game determines, in all engines.

    Raises:
        UsageError: The function uses ``random`` or ``numpy.random``.
    """
    loads = [*dis.get_instructions(function.__code__)]
    for one, after in pairwise([*loads, loads[-1]]):
        module = function.__globals__.get(one.argval) if one.opname == "LOAD_GLOBAL" else None
        drawn = module is random or isinstance(getattr(module, "__self__", None), random.Random)
        if drawn or (module is np and after.argval == "random"):
            raise UsageError(
                f"{place_of(function)}: {function.__name__} uses {one.argval}, whose random numbers"
                " no seed of a game determines: use rng, such as rng.random()"
            )


def place_of(function: FunctionType) -> str:
    """Return file and line of a function."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def fingerprint(*values: Any) -> str:
    """Return a digest of values and functions, and of all that these functions name."""
    digest = hashlib.sha256()
    seen: set[int] = set()

    def add(value: Any) -> None:
        value = getattr(value, "py_func", value)
        if isinstance(value, FunctionType):
            if id(value) in seen:
                return
            seen.add(id(value))
            add(value.__code__)
            add((value.__defaults__, value.__kwdefaults__))
            for name in sorted({*global_names(value)}):
                digest.update(name.encode())
                add(value.__globals__[name])
                add((*constants_of(value.__globals__[name], value.__code__),))
            for cell in value.__closure__ or ():
                add(cell.cell_contents)
        elif isinstance(value, CodeType):
            digest.update(value.co_code)
            add((value.co_names, value.co_varnames, value.co_consts))
        elif isinstance(value, tuple | list):
            digest.update(f"({len(value)}".encode())
            for part in value:
                add(part)
        elif isinstance(value, np.ndarray):
            digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        elif isinstance(value, type | ModuleType):
            digest.update(value.__name__.encode())
        else:
            digest.update(f"{type(value)}{value!r}".encode())

    add(values)
    return digest.hexdigest()
