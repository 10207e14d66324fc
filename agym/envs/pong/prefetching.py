"""A prefetch instruction for compiled games, which LLVM has and numba lacks.

The cells of thousands of games do not fit into the caches near a core. A game changes about ten
scattered cells per step; waiting for each in turn would take longer than playing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from agym._system.extras import require

# Arguments of llvm.prefetch: for writing, high locality, data.
WRITE, NEAR, DATA = 1, 3, 1


@cache
def make_prefetch() -> Any:
    """Make ``prefetch(cells, index)`` for compiled functions; it has no visible effect.

    Raises:
        MissingExtraError: numba is not installed.
    """
    types = require("numba.core.types", "pong")
    cgutils = require("numba.core.cgutils", "pong")
    ir = require("llvmlite.ir", "pong")
    byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte_pointer)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [place, number(WRITE), number(NEAR), number(DATA)])
        return context.get_dummy_value()

    def prefetch(typing_context: Any, cells: Any, index: Any) -> Any:
        return types.void(cells, types.int64), generate

    return require("numba.extending", "pong").intrinsic(prefetch)
