"""Random rules: many expressions and statements in a rule book, which is compiled once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from textwrap import indent

# Numbers of all kinds that can be read; ``out`` is what ``info`` has written before.
INTEGERS = (
    "state.tiny", "state.small", "state.middle", "state.wide", "state.flag", "state.board[1, 2]",
    "out.byte", "out.word", "out.short", "out.bit", "action", "TABLE[1]", "BYTES[1]", "FLAGS[0]",
    "FLAGS[1]", "FACTOR", "NESTED[0]", "(state.tiny > 3)", "state.board.sum()", "state.board.size",
    "state.board.flat[4]", "settings.SMALL", "settings.deeper.SMALL", "Prize.WIN.value",
    "Level.LOW.value",
)  # fmt: skip
REALS = ("state.real", "out.single", "state.reals[1]", "SINGLES[1]", "NESTED[1][0]",
         "state.reals.sum()", "settings.SINGLE", "Rate.HALF.value")  # fmt: skip

OF_INTEGER = (
    "-{a}", "+{a}", "~{a}", "abs({a})", "{a} ** 2", "({a} % 1000) ** 3", "2 ** abs({a} % 9)",
    "({a} % 1000) ** abs({b} % 4)", "round({a})", "int({a})", "float({a} + 1)", "bool({a})",
    "not {a}",
    "{a} / 7", "{a} // -3", "{a} % -3", "{a} << 2", "{a} >> 1", "math.sqrt(abs({a}))", "{a} * 0.1",
    "min({a}, 3)", "max({a}, 2.5)", "{a} if {a} else 7", "divmod({a}, 7)[1]", "pow({a}, 2)",
    "math.floor({a})", "math.copysign(1.0, {a})", "{a} and 5", "{a} or 5", "math.gcd({a}, 12)",
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} // (abs({b}) + 1)", "{a} & {b}", "{a} | {b}",
    "{a} ^ {b}", "{a} < {b}", "{a} == {b}", "min({a}, {b})", "max({a}, {b})", "{a} - {b} < 0",
    "-{a} - abs({b})", "doubled(-{a})", "({a}, {b})[1] * 3", "{a} % (abs({b}) + 2)",
)  # fmt: skip
OF_REAL = (
    "-{a}", "abs({a})", "{a} * {a}", "round({a})", "int({a})", "bool({a})", "not {a}", "{a} // 0.3",
    "{a} % -0.3", "math.sin({a})", "math.exp(-abs({a}))", "math.tanh({a})", "math.floor({a})",
    "math.ceil({a})", "math.trunc({a})", "math.log(abs({a}) + 1)", "divmod({a}, 0.7)[0]",
    "math.atan2({a}, 0.3)", "math.degrees({a})", "abs({a}) ** 0.7",
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / (abs({b}) + 1)", "{a} < {b}", "min({a}, {b})",
    "max({b}, {a})", "{a} // (abs({b}) + 0.3)", "{a} % (abs({b}) + 0.3)", "{a} * {b} - 0.1",
    "doubled({a}) if {b} else {a}", "math.isnan({a} + {b})", "({a} > 0) - ({a} < 0)",
)  # fmt: skip

# Statements that compute a line; some call a function that is defined with them.
STATEMENTS = (
    "state.results[{k}] = {line}",
    "if {other}:\n    state.results[{k}] = {line}\nelse:\n    state.results[{k}] += 1",
    (
        "for index in range(abs(state.tiny) % 4):\n    state.results[{k}] += index * ({line})\n"
        "    if {other}:\n        break"
    ),
    "state.results[{k}] = later{k}(state, action)",
    "change{k}(state, {line}, action)",
)
HELPERS = """
def later{k}(state, action):
    if {other}:
        return 1.0 * ({line})
    return 0.5 + doubled(1.0 * {other})
def change{k}(state, value, action):
    state.results[{k}] = value
    state.results[{k} - 1 : {k}] = 0.25
    while state.results[{k}] > 1.0 and not {other}:
        state.results[{k}] *= 0.1
"""

BOOK = """
{helpers}
class Lines:
    state = np.dtype([
        ("tiny", np.int8), ("small", np.int16), ("middle", np.int32), ("wide", np.int64),
        ("flag", np.bool_), ("real", np.float64), ("board", np.int8, (2, 3)),
        ("reals", np.float64, (3,)), ("results", np.float64, ({count},)),
    ])
    observation_space = spaces.Box(-1e9, 1e9, ({count},), np.float64)
    action_space = spaces.Discrete(5, start=-2)
    info_dtype = np.dtype([
        ("single", np.float32), ("byte", np.uint8), ("word", np.uint32), ("short", np.int16),
        ("bit", np.bool_), ("results", np.float64, ({count},)),
    ])

    def reset(state, rng):
        state.tiny = -128 if rng.random() < 0.4 else rng.integers(-128, 128)
        state.small = -32768 if rng.random() < 0.3 else rng.integers(-99, 99)
        state.middle = -2147483648 if rng.random() < 0.3 else rng.integers(-999, 999)
        state.wide = rng.integers(-99999, 99999)
        state.flag = rng.random() < 0.5
        state.real = rng.normal(0.0, 3.0)
        for i in range(2):
            for j in range(3):
                state.board[i, j] = rng.integers(-128, 128)
        for i in range(3):
            state.reals[i] = rng.uniform(low=-1.0, high=2.0) * 0.1

    def step(state, action, rng):
{steps}
        return 0.0, False

    def observe(state, out):
        for k in range({count}):
            out[k] = state.results[k]

    def info(state, out):
        out.single = state.real
        out.byte = abs(state.tiny)
        out.word = abs(state.small)
        out.short = state.small
        out.bit = state.flag
        for k in range({count}):
            out.results[k] = 0.0
{infos}
"""


def one_liners(count: int, seed: int) -> list[str]:
    """Return expressions, each of one or two of the numbers."""
    drawn = random.Random(seed)
    kinds: list[tuple[str, Sequence[str], Sequence[str]]]
    kinds = [(form, INTEGERS, INTEGERS) for form in OF_INTEGER]
    kinds += [(form, REALS, (*REALS, *INTEGERS)) for form in OF_REAL]
    drawn.shuffle(kinds)
    lines = []
    for k in range(count):
        form, some, others = kinds[k % len(kinds)]
        lines.append(form.format(a=drawn.choice(some), b=drawn.choice(others)))
    return lines


def book_of(lines: Sequence[str], seed: int) -> str:
    """Return the text of a rule book that computes each line, in ``step`` or in ``info``."""
    drawn = random.Random(seed)
    others = [line for line in lines if "out." not in line]
    helpers, steps, infos = [], ["pass"], ["pass"]
    for k, line in enumerate(lines):
        if "out." in line:
            infos.append(f"out.results[{k}] = {line}".replace("action", "state.wide"))
            continue
        parts = {"k": k, "line": line, "other": f"({drawn.choice(others)})"}
        statement = drawn.choice(STATEMENTS)
        steps.append(statement.format(**parts))
        helpers.append(HELPERS.format(**parts) if "{k}(" in statement else "")
    texts = {"steps": indent("\n".join(steps), " " * 8), "infos": indent("\n".join(infos), " " * 8)}
    return BOOK.format(count=len(lines), helpers="".join(helpers), **texts)
