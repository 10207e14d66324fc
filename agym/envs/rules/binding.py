"""Copies of functions in which other functions take the place of those they name.

A kernel names ``step``, and a rule book's ``step`` names helpers of its module. Compiled code must
call compiled functions, so each function is copied with its global names replaced, and compiled,
after those that it calls.
"""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from agym.errors import UsageError


class Binder:
    """Binds functions and all that they call, each once.

    Args:
        names: Replacements of global names, in all functions.
        compile_one: What is done with each bound function.
    """

    def __init__(
        self, names: Mapping[str, FunctionType], compile_one: Callable[[FunctionType], Any]
    ) -> None:
        self._names = names
        self._compile = compile_one
        self._done: dict[FunctionType, Any] = {}
        self._open: list[FunctionType] = []

    def bind(self, function: Any) -> Any:
        """Return a bound and compiled copy of a function."""
        if function in self._open:
            raise UsageError(
                f"{place_of(function)}: {function.__name__} calls itself, which cannot be compiled"
                " here: write a loop, or take engine='python'"
            )
        if function not in self._done:
            self._open.append(function)
            self._done[function] = self._compile(self.copy(function))
            self._open.pop()
        return self._done[function]

    def copy(self, function: Any) -> FunctionType:
        names = {
            name: self._bound(self._names.get(name, function.__globals__[name]))
            for name in global_names(function)
        }
        cells = tuple(CellType(self._bound(c.cell_contents)) for c in function.__closure__ or ())
        copy = FunctionType(
            function.__code__, {**function.__globals__, **names}, function.__name__,
            function.__defaults__, cells,
        )  # fmt: skip
        copy.__qualname__ = function.__qualname__
        return copy

    def _bound(self, value: Any) -> Any:
        return self.bind(value) if isinstance(value, FunctionType) else value


def global_names(function: FunctionType) -> Iterator[str]:
    """Yield the global names that a function uses, but not Python's own."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        loads = (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
        yield from (name for name in loads if name in function.__globals__)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def place_of(function: FunctionType) -> str:
    """Return file and line of a function."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def fingerprint(*values: Any) -> str:
    """Return a digest of values and functions, and of all that these functions name."""
    digest = hashlib.sha256()
    seen: set[int] = set()

    def add(value: Any) -> None:
        if isinstance(value, FunctionType):
            if id(value) in seen:
                return
            seen.add(id(value))
            add(value.__code__)
            add(value.__defaults__)
            for name in sorted({*global_names(value)}):
                digest.update(name.encode())
                add(value.__globals__[name])
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
