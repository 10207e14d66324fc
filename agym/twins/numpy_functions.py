"""Functions of NumPy and C that exact rules call, in Python and in compiled code.

Gymnasium's environments draw from ``np.random.Generator`` and call ``np.sin``. NumPy chooses the
machine code of its sine by the CPU, so only NumPy's own function returns the same bits everywhere.
Compiled rules call that function, and the generator's, by their addresses.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from agym.core._system.extras import require
from agym.core.protocol.typing import Array
from agym.rules.arithmetic import EXTRA
from agym.rules.binding import NATIVE

DRAWS = np.random.PCG64(0).ctypes


def native(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that compiled code replaces by the C function of the same name."""
    function.__dict__[NATIVE] = lambda name: compiled(name)
    return function


@native
def next_double(state: int) -> float:
    """Draw a number from [0, 1), as ``Generator.random``; ``state`` is the generator's address."""
    drawn: float = DRAWS.next_double(state)
    return drawn


class Generators(list[Any]):
    """The generators of random numbers of environments, ``None`` before a reset.

    Attributes:
        addresses: The addresses of their states.
    """

    def __init__(self, num_envs: int) -> None:
        super().__init__([None] * num_envs)
        self.addresses = [0] * num_envs

    def put(self, i: int, generator: np.random.Generator) -> None:
        """Set the generator of an environment."""
        self[i], self.addresses[i] = generator, generator.bit_generator.ctypes.state_address

    def drawn(self, ids: Array | slice) -> Array:
        """Draw a number from [0, 1) for each of some environments, as ``Generator.random``."""
        addresses = self.addresses
        if not isinstance(ids, slice):
            addresses = [addresses[i] for i in ids.tolist()]
        return np.fromiter(map(DRAWS.next_double, addresses), float, len(addresses))


@native
def sin(x: float) -> float:
    """Return ``np.sin(x)``."""
    return float(np.sin(x))


@native
def cos(x: float) -> float:
    """Return ``np.cos(x)``."""
    return float(np.cos(x))


@native
def sin_single(x: float) -> float:
    """Return ``np.sin(np.float32(x))``."""
    return float(np.sin(np.float32(x)))


@native
def cos_single(x: float) -> float:
    """Return ``np.cos(np.float32(x))``."""
    return float(np.cos(np.float32(x)))


@native
def power(x: float, exponent: float) -> float:
    """Return ``np.float64(x) ** exponent``, which is the C library's ``pow``.

    It can differ from ``x * x`` in the last bit.
    """
    return math.pow(x, exponent)


@native
def power_single(x: float, exponent: float) -> float:
    """Return ``np.float32(x) ** exponent``."""
    return float(np.float32(x) ** np.float32(exponent))


class GymnasiumRng(NamedTuple):
    """The random numbers of one environment, from its ``np.random.Generator`` with ``PCG64``.

    Example:
        >>> from types import SimpleNamespace
        >>> generator = np.random.default_rng(7)
        >>> rng = GymnasiumRng(SimpleNamespace(key=generator.bit_generator.ctypes.state_address))
        >>> rng.random() == np.random.default_rng(7).random()
        True
    """

    game: Any

    def random(self) -> float:
        """Draw as ``Generator.random()``."""
        return float(next_double(self.game.key))

    def uniform(self, low: float, high: float) -> float:
        """Draw as ``Generator.uniform(low, high)``."""
        return low + (high - low) * float(next_double(self.game.key))


@cache
def compiled(name: str) -> Any:
    """Return the function of a name for compiled code."""
    types = require("numba.core.types", EXTRA)
    add_symbol = require("llvmlite.binding", EXTRA).add_symbol
    symbol = f"agym_{name}"
    if name in LOOPS:
        ufunc, code = LOOPS[name]
        add_symbol(symbol, loop_of(ufunc, code))
        return call_loop(symbol, code)
    function, signature = {
        "next_double": (DRAWS.next_double, types.float64(types.int64)),
        "power": (ctypes.CDLL(None).pow, types.float64(types.float64, types.float64)),
        "power_single": (ctypes.CDLL(None).powf, types.float32(types.float32, types.float32)),
    }[name]
    # Not under its own name: LLVM replaces ``pow(x, 2.0)`` by ``x * x``.
    add_symbol(symbol, ctypes.cast(function, ctypes.c_void_p).value)
    return types.ExternalFunction(symbol, signature)


# ---------------------------------------------------------------- ufuncs

# By name, the ufunc and the type code of its loop.
LOOPS = {
    "sin": (np.sin, "d"),
    "cos": (np.cos, "d"),
    "sin_single": (np.sin, "f"),
    "cos_single": (np.cos, "f"),
}


class UFunc(ctypes.Structure):
    """The beginning of NumPy's ``PyUFuncObject``, which is part of its C API."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__), ("nin", ctypes.c_int),
        ("nout", ctypes.c_int), ("nargs", ctypes.c_int), ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
    )  # fmt: skip


def loop_of(ufunc: Any, code: str) -> int:
    """Return the address of a ufunc's loop over numbers of a type."""
    address: int = UFunc.from_address(id(ufunc)).functions[ufunc.types.index(f"{code}->{code}")]
    return address


def call_loop(symbol: str, code: str) -> Any:
    """Return a compiled function that runs a ufunc's loop over one number."""
    types, cgutils = require("numba.core.types", EXTRA), require("numba.core.cgutils", EXTRA)
    ir = require("llvmlite.ir", EXTRA)
    number = ir.DoubleType() if code == "d" else ir.FloatType()
    size, pointer = ir.IntType(64), ir.IntType(8).as_pointer()

    def run(typing: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, result = (cgutils.alloca_once(builder, number) for _ in range(2))
            given = arguments[0] if code == "d" else builder.fptrunc(arguments[0], number)
            builder.store(given, x)
            step = size(8 if code == "d" else 4)
            operands = cgutils.pack_array(
                builder, [builder.bitcast(p, pointer) for p in (x, result)]
            )
            parts = operands, size(1), cgutils.pack_array(builder, [step, step])
            places = [cgutils.alloca_once_value(builder, part) for part in parts]
            kinds = pointer.as_pointer(), size.as_pointer(), size.as_pointer()
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [*kinds, pointer]), symbol
            )
            operands, one, steps = map(builder.bitcast, places, kinds)
            builder.call(function, [operands, one, steps, pointer(None)])
            value = builder.load(result)
            return value if code == "d" else builder.fpext(value, ir.DoubleType())

        return types.float64(types.float64), generate

    return require("numba.extending", EXTRA).intrinsic(run)
