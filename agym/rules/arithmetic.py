"""Makes numba compute as Python does.

numba computes in the type of the operands, so that ``-x`` of an ``int8`` is an ``int8``. In
functions of rules, the code is changed before numba infers types::

    state.tiny      -->  wide(state.tiny)        small integers are int64, float32 is float64
    -state.flag     -->  -number(state.flag)     a bool is an integer
    2 ** state.n    -->  power(2, state.n)       raises where Python returns a fraction

After the inference, code whose results would differ from Python's is refused.
"""

from __future__ import annotations

import inspect
import math
import operator
from functools import cache
from types import FunctionType
from typing import Any

from agym.core._system.extras import require
from agym.rules.records import Table

EXTRA = "vectorize"

# Marks the functions of rules among all functions that numba compiles.
MARK = "__agym_rules__"

# The operations that read a value in numba's intermediate code.
READS = ("getattr", "getitem", "static_getitem", "pair_first")

NEGATIVE = (
    "{place}: an integer to a negative power is a float in Python: write 2.0 ** n for a float;"
    " for an integer, keep n at 0 or above"
)
ROUND = "round(x, n) can differ in the last digit in compiled code: write round(x * 100) / 100"
HYPOT = "math.hypot can differ in the last digit in compiled code: write math.sqrt(x * x + y * y)"
PARTS = "arrays in rules have no {name}: write a loop. They have " + ", ".join(
    name for name in dir(Table) if not name.startswith("_") and name != "array"
)


def as_python(function: FunctionType) -> FunctionType:
    """Mark a function, so that numba computes as Python does in it."""
    install()
    function.__dict__[MARK] = True
    return function


@cache
def install() -> None:
    """Add this module's two passes to numba."""
    ir, ir_utils, types, rewrites = (
        require(f"numba.core.{name}", EXTRA) for name in ("ir", "ir_utils", "types", "rewrites")
    )
    wide, number, power = converter(bools=False), converter(bools=True), checked_power()

    def is_marked(func_ir: Any) -> bool:
        return MARK in func_ir.func_id.func.__dict__

    class Widen(rewrites.Rewrite):  # type: ignore[misc, name-defined]
        """Converts values that are read to 64 bits."""

        def __init__(self, state: Any) -> None:
            self._done: list[Any] = []

        def match(self, func_ir: Any, block: Any, typemap: Any, calltypes: Any) -> bool:
            self._ir, self._block = func_ir, block
            return is_marked(func_ir) and not any(block is done for done in self._done)

        def apply(self) -> Any:
            calls = [
                call for block in self._ir.blocks.values() for call in block.find_exprs("call")
            ]
            called = {call.func.name for call in calls}
            self._new = self._block.copy()
            self._new.clear()
            for statement in self._block.body:
                if isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Expr):
                    is_called = statement.target.name in called
                    statement.value = self._changed(statement.value, is_called)
                self._new.append(statement)
            self._done.append(self._new)
            return self._new

        def _changed(self, expr: Any, called: bool) -> Any:
            if expr.op in READS and not called and not self._is_constant(expr):
                return self._call(wide, self._assign(expr))
            if expr.op == "unary" and expr.fn is not operator.not_:
                expr.value = self._assign(self._call(number, expr.value))
            if expr.op in ("binop", "inplace_binop") and expr.fn in (operator.pow, operator.ipow):
                expr.lhs = self._assign(self._call(number, expr.lhs))
                known = getattr(expr, "static_rhs", None)
                if not isinstance(known, int | float) or known < 0:
                    place = ir.Const(f"{expr.loc.filename}:{expr.loc.line}", expr.loc)
                    return self._call(power, expr.lhs, expr.rhs, self._assign(place))
            return expr

        def _is_constant(self, expr: Any) -> bool:
            """Return whether an expression reads from a module, or from another constant."""
            while isinstance(expr, ir.Expr) and expr.op in READS:
                expr = ir_utils.guard(ir_utils.get_definition, self._ir, expr.value)
            return isinstance(expr, ir.Global | ir.FreeVar)

        def _call(self, function: Any, *variables: Any) -> Any:
            loc = variables[0].loc
            callee = self._assign(ir.Global(function.__name__, function, loc), loc)
            return ir.Expr.call(callee, [*variables], (), loc)

        def _assign(self, value: Any, loc: Any = None) -> Any:
            loc = loc or value.loc
            variable = self._new.scope.define(ir_utils.mk_unique_var("$wide"), loc)
            self._new.append(ir.Assign(value, variable, loc))
            self._ir._definitions[variable.name].append(value)
            return variable

    class Refuse(rewrites.Rewrite):  # type: ignore[misc, name-defined]
        """Refuses code whose results differ from Python's."""

        def match(self, func_ir: Any, block: Any, typemap: Any, calltypes: Any) -> bool:
            for statement in block.body if is_marked(func_ir) else ():
                expr = statement.value if isinstance(statement, ir.Assign) else None
                if isinstance(expr, ir.Expr) and expr.op == "getattr":
                    of_array = isinstance(typemap[expr.value.name], types.Array)
                    if of_array and not hasattr(Table, expr.attr):
                        self._refuse(PARTS.format(name=expr.attr), statement.loc)
                if isinstance(expr, ir.Expr) and expr.op == "call" and len(expr.args) == 2:
                    called = getattr(typemap[expr.func.name], "typing_key", None)
                    if called is round:
                        self._refuse(ROUND, statement.loc)
                    if called is math.hypot:
                        self._refuse(HYPOT, statement.loc)
            return False

        def _refuse(self, reason: str, loc: Any) -> None:
            raise require("numba.core.errors", EXTRA).TypingError(reason, loc)

    rewrites.register_rewrite("before-inference")(Widen)
    rewrites.register_rewrite("after-inference")(Refuse)


def converter(bools: bool) -> Any:
    """Return a compiled function that widens a number, and returns anything else as it is."""
    types = require("numba.core.types", EXTRA)
    borrowed = require("numba.core.imputils", EXTRA).impl_ret_borrowed

    def widen(typing: Any, value: Any) -> Any:
        result = value
        if isinstance(value, types.Integer) or (bools and isinstance(value, types.Boolean)):
            result = types.int64
        elif isinstance(value, types.Float):
            result = types.float64

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            converted = context.cast(builder, arguments[0], value, result)
            return borrowed(context, builder, result, converted)

        return result(value), generate

    return require("numba.extending", EXTRA).intrinsic(widen)


def checked_power() -> Any:
    """Return a compiled function of a base, an exponent, and their line in the rules."""
    types = require("numba.core.types", EXTRA)

    def power(typing: Any, base: Any, exponent: Any, place: Any) -> Any:
        message = NEGATIVE.format(place=place.literal_value)

        def of_integers(base: int, exponent: int) -> int:
            if exponent < 0:
                raise ValueError(message)
            result = 1
            while exponent:
                if exponent & 1:
                    result *= base
                base *= base
                exponent >>= 1
            return result

        if isinstance(base, types.Integer) and isinstance(exponent, types.Integer | types.Boolean):
            signature = types.int64(types.int64, types.int64)
        else:
            known = typing.resolve_value_type(operator.pow)
            signature = typing.resolve_function_type(known, (base, exponent), {})

        def generate(context: Any, builder: Any, given: Any, arguments: Any) -> Any:
            numbers = zip(arguments[:2], given.args[:2], signature.args, strict=True)
            converted = [context.cast(builder, *each) for each in numbers]
            if signature.return_type == types.int64:
                return context.compile_internal(builder, of_integers, signature, converted)
            return context.get_function(operator.pow, signature)(builder, converted)

        return signature.return_type(base, exponent, place), generate

    return require("numba.extending", EXTRA).intrinsic(prefer_literal=True)(power)


# Code that also affects the machine code, besides the rules and the kernels.
CODES = (inspect.unwrap(install).__code__, converter.__code__, checked_power.__code__)
