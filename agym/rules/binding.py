"""Copies functions with their global names replaced, and computes fingerprints of functions.

A kernel calls a stand-in for ``step``, and a rule book's ``step`` calls helpers of its module.
Compiled code must call compiled functions. So each function is copied with its global names
replaced, and compiled, after the functions that it calls. A fingerprint follows the same names.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, EnumMeta
from itertools import pairwise
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from agym.core._system.extras import require
from agym.errors import MissingExtraError, UsageError
from agym.rules.records import Constants

# Marks functions that compiled code replaces; the value returns the replacement, given the name.
NATIVE = "__agym_native__"

# Packages whose functions numba supports by itself.
KNOWN = ("builtins", "cmath", "math", "numba", "numpy", "operator")


class Binder:
    """Binds functions and all functions that they call, each once.

    Args:
        replaced: Functions and classes, and their replacements.
        compile_one: Compiles a bound function; ``None`` not to compile. Only functions that are not
            compiled may call themselves.
    """

    def __init__(
        self,
        replaced: Mapping[Any, Any],
        compile_one: Callable[[FunctionType], Any] | None,
    ) -> None:
        self._replaced = replaced
        self._compile = compile_one
        self._done: dict[FunctionType | ModuleType, Any] = {}
        self._open: list[FunctionType] = []

    def bind(self, function: Any) -> Any:
        """Return a bound and compiled copy of a function."""
        if function in self._done:
            return self._done[function]
        if function in self._open:
            raise UsageError(
                f"{place_of(function)}: {function.__name__} calls itself, which cannot be compiled"
                " here: write a loop, or use engine='python'"
            )
        self._open.append(function)
        copy = self.copy(function)
        self._done[function] = copy if self._compile is None else self._compile(copy)
        self._open.pop()
        return self._done[function]

    def copy(self, function: Any) -> FunctionType:
        """Return a bound copy of a function."""
        refuse_coroutines(function)
        refuse_other_randomness(function)
        names = {**function.__globals__}
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copy = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells
        )
        copy.__qualname__ = function.__qualname__
        copy.__kwdefaults__ = function.__kwdefaults__
        if self._compile is None:
            self._done[function] = copy  # before its names are bound: it may call itself
        for name in {*global_names(function)}:
            names[name] = self._bound(names[name])
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            cell.cell_contents = self._bound(original.cell_contents)
        return copy

    def _bound(self, value: Any) -> Any:
        function = function_of(value)
        if function is not None and NATIVE in function.__dict__:
            is_compiled = self._compile is not None
            return function.__dict__[NATIVE](function.__name__) if is_compiled else function
        if function is not None and not is_known(function.__module__):
            return self.bind(self._replaced.get(function, function))
        if isinstance(value, type):
            return self._replaced.get(value, value)
        return self._constant(value)

    def _constant(self, value: Any) -> Any:
        if isinstance(value, ModuleType) and not is_known(value.__name__):
            if value not in self._done:
                self._done[value] = BoundModule(value, self._attribute)
            return self._done[value]
        value = widened(value)
        if self._compile is None and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            return value.view(Constants)
        return value

    def _attribute(self, value: Any) -> Any:
        """Bind an attribute of a module, except functions: numba calls none of a module."""
        return value if isinstance(value, FunctionType) else self._bound(value)


class BoundModule(ModuleType):
    """Replaces a module; its attributes are bound when they are read."""

    def __init__(self, module: ModuleType, bind: Callable[[Any], Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__["_read"] = lambda name: bind(getattr(module, name))

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__["_read"](name)
        setattr(self, name, value)
        return value


def widened(value: Any) -> Any:
    """Return a constant in the 64 bits in which rules compute.

    NumPy computes with smaller numbers in their size, and compiled code does not.
    """
    if isinstance(value, np.ndarray) and value.dtype != np.uint64:
        wide = {"f": np.float64, "i": np.int64, "u": np.int64}.get(value.dtype.kind)
        return value if wide is None else value.astype(wide, copy=False)
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, tuple):
        parts = [widened(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def function_of(value: Any) -> FunctionType | None:
    """Return a Python function, also of numba's dispatcher; ``None`` for other values."""
    dispatcher = sys.modules.get("numba.core.dispatcher")  # not imported: no dispatchers
    if dispatcher is not None and isinstance(value, dispatcher.Dispatcher):
        value = value.py_func
    return value if isinstance(value, FunctionType) else None


def is_known(module: Any) -> bool:
    """Return whether numba supports the contents of a module, given its name, by itself."""
    return str(module).partition(".")[0] in KNOWN


def global_names(function: FunctionType) -> Iterator[str]:
    """Yield the global names that a function uses, without builtins."""
    for code in codes_of(function.__code__):
        loads = (i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL")
        yield from (name for name in loads if name in function.__globals__)


def codes_of(code: CodeType) -> list[CodeType]:
    """Return a code object and the code objects of nested functions."""
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(inner for child in nested for inner in codes_of(child))]


def refuse_coroutines(function: FunctionType) -> None:
    """Refuse functions that must be awaited, in all engines.

    Raises:
        UsageError: The function is asynchronous.
    """
    if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise UsageError(
            f"{place_of(function)}: {function.__name__} must be a plain function: write def instead"
            " of async def"
        )


def refuse_other_randomness(function: FunctionType) -> None:
    """Refuse random numbers that do not depend on a game's seed, in all engines.

    Raises:
        UsageError: The function uses ``random`` or ``numpy.random``.
    """
    loads = [*dis.get_instructions(function.__code__)]
    for load, after in pairwise([*loads, loads[-1]]):
        module = function.__globals__.get(load.argval) if load.opname == "LOAD_GLOBAL" else None
        drawn = module is random or isinstance(getattr(module, "__self__", None), random.Random)
        if drawn or (module is np and after.argval == "random"):
            raise UsageError(
                f"{place_of(function)}: {function.__name__} uses {load.argval}, whose random"
                " numbers don't depend on the game's seed: use rng, such as rng.random()"
            )


def place_of(function: FunctionType) -> str:
    """Return the file and the line of a function."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


# ---------------------------------------------------------------- fingerprints


def fingerprint(*values: Any) -> tuple[str, list[str]]:
    """Return a digest of values and functions, and of all values that these functions use.

    Returns:
        The digest, and the names of values that cannot be read. If there are any, the digest
        differs each time.
    """
    names: set[str] = set()
    while True:
        reader = Reader(names)
        reader.add(values)
        if reader.names == names:
            digest = hashlib.sha256("\n".join(reader.words).encode())
            if reader.unreadable:
                digest.update(os.urandom(16))
            return digest.hexdigest(), reader.unreadable
        # A module may be passed to a function that is read later, and uses other attributes.
        names = reader.names


class Reader:
    """Describes values in words that are the same in every process.

    Args:
        names: The attributes of modules and classes to read.

    Attributes:
        words: The description.
        names: The attributes that the functions use.
        unreadable: Values that may be part of compiled code, but cannot be described.
    """

    def __init__(self, names: set[str]) -> None:
        self.words: list[str] = []
        self.names: set[str] = set()
        self.unreadable: list[str] = []
        self._wanted = sorted(names)
        self._seen: dict[int, tuple[int, Any]] = {}

    def add(self, value: Any, name: str = "") -> None:
        """Add a value to the description; ``name`` is for messages."""
        self.words.append(type(value).__name__)
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            strides = value.strides if value.ndim else ()
            self._say(value.dtype, value.dtype.isalignedstruct, value.shape, strides)
            self._say(hashlib.sha256(value.tobytes()).hexdigest())
        elif type(value) in (bool, int, float, complex, str, bytes, type(None), type(...), range):
            self._say(repr(value))
        elif isinstance(value, Enum):
            self._say(type(value).__qualname__, value.name)
            self.add(value.value, f"{name}.value")
        elif isinstance(value, tuple) or type(value) in (list, slice):
            parts = value.__reduce__()[1] if isinstance(value, slice) else value
            self._say(len(parts), getattr(value, "_fields", ""))
            for part in parts:
                self.add(part, name)
        elif type(value) in (set, frozenset):
            self._say(*sorted(fingerprint(part)[0] for part in value))
        elif type(value) is dict:
            self.add([*value.items()], name)
        elif id(value) in self._seen:
            self._say(self._seen[id(value)][0])
        else:
            self._seen[id(value)] = len(self._seen), value
            self._add_named(value, name)

    def _add_named(self, value: Any, name: str) -> None:
        """Add a value that has a name, or that may refer to itself."""
        function, library = function_of(value), name_in_library(value)
        if library is not None:
            self._say(library)
        elif function is not None and NATIVE in function.__dict__:
            self._say(function.__name__)
        elif function is not None:
            self._add_function(function)
        elif isinstance(value, CodeType):
            self._say(value.co_argcount, value.co_kwonlyargcount, value.co_flags)
            self._say(value.co_code.hex(), value.co_exceptiontable.hex())
            self.add((value.co_names, value.co_varnames, value.co_cellvars, value.co_freevars))
            self.add(value.co_consts)
            self.names.update(value.co_names)
        elif isinstance(value, EnumMeta):
            self._say(value.__qualname__)
            self.add([*value.__members__.items()], name)
        elif isinstance(value, type | ModuleType):
            self._say(value.__module__ if isinstance(value, type) else "", value.__name__)
            self._add_owner(value, name)
        elif may_be_compiled(value):
            self.unreadable.append(f"{name} ({type(value).__name__})")

    def _add_function(self, function: FunctionType) -> None:
        self.add(function.__code__)
        self.add((function.__defaults__, function.__kwdefaults__), function.__name__)
        for name in sorted({*global_names(function)}):
            self._say(name)
            self.add(function.__globals__[name], name)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            self.add(cell.cell_contents, name)

    def _add_owner(self, owner: Any, name: str) -> None:
        """Add attributes of a module or class that functions use, such as ``settings.SPEED``."""
        if is_known(owner.__name__ if isinstance(owner, ModuleType) else owner.__module__):
            return
        if isinstance(owner, type):
            self.add([*map(str, owner.__mro__)], name)
            self.add((getattr(owner, "_fields", ()), getattr(owner, "_field_defaults", {})), name)
        for attribute in self._wanted:
            if hasattr(owner, attribute):
                self._say(attribute)
                self.add(getattr(owner, attribute), f"{name}.{attribute}")

    def _say(self, *words: Any) -> None:
        self.words += map(repr, map(str, words))


def name_in_library(value: Any) -> str | None:
    """Return the name of a library's object, if the name determines the object."""
    types = sys.modules.get("numba.core.types")
    if types is not None and isinstance(value, types.Type):
        return str(value)
    name, module = str(getattr(value, "__name__", "")), getattr(value, "__module__", None)
    owner: Any = sys.modules.get(str(module)) if is_known(module) else np
    owner = value.__self__ if isinstance(value, BuiltinFunctionType) else owner
    if isinstance(owner, ModuleType) and getattr(owner, name, None) is value:
        return f"{owner.__name__}.{name}"
    return None


def may_be_compiled(value: Any) -> bool:
    """Return whether numba supports a value, so that it may be part of compiled code."""
    try:
        numba = require("numba.core.registry", "vectorize")
        context = numba.cpu_target.typing_context
        context.refresh()  # for types that were registered since numba compiled last
        context.resolve_value_type(value)
    except MissingExtraError:
        raise
    except Exception:  # for unknown values, numba raises various errors
        return False
    return True
