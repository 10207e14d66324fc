"""Rule books for the tests: a few that use every feature, and any number of random ones."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

# ---------------------------------------------------------------- every feature

TABLE = np.array([[3, -1, 4], [1, -5, 9]])
FLOATS = np.array([0.5, -1.25, 2.75], np.float32)
LIMIT = 40


def doubled(value: Any) -> Any:
    return 2 * value


def quadrupled(value: Any) -> Any:
    return doubled(doubled(value))


def adder(amount: Any) -> Callable[[Any], Any]:
    def add(value: Any) -> Any:
        return quadrupled(value) + amount

    return add


add_seven = adder(7)


class Everything:
    """All kinds of fields, all methods of ``rng``, parameters, infos, helpers and constants."""

    state = np.dtype(
        [
            ("flag", np.bool_), ("tiny", np.int8), ("small", np.int16), ("middle", np.int32),
            ("wide", np.int64), ("real", np.float64), ("board", np.int8, (2, 3)),
            ("reals", np.float64, (3,)), ("flags", np.int8, (4,)), ("speed", np.float64),
            ("goal", np.int32), ("weights", np.float64, (2,)),
        ]
    )  # fmt: skip
    observation_space = spaces.Box(-np.inf, np.inf, (9,), np.float32)
    action_space = spaces.MultiDiscrete([3, 4])
    parameters = {"speed": 0.5, "goal": 60, "weights": [1.0, -0.25]}  # noqa: RUF012
    info_dtype = np.dtype(
        [("wide", np.int64), ("flag", np.bool_), ("board", np.int8, (2, 3)), ("real", np.float64)]
    )
    max_episode_steps = LIMIT

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.real = rng.normal(1.0, state.speed)
        state.wide = rng.bits()
        state.small = rng.integers(-300, 300)
        for k in range(3):
            state.reals[k] = rng.uniform(-1.0, k + 1.0)
        state.board[:] = 7

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        row, column = action[0] % 2, action[1] % 3
        state.board[row, column] = (state.board[row, column] + TABLE[row, column]) % 100
        state.tiny = (state.tiny + 100) % 128 - rng.integers(0, 2)
        state.middle += add_seven(action[1])
        state.flag = rng.random() < 0.5
        state.flags[state.middle % 4] = 1 - state.flags[state.middle % 4]
        state.real = state.real * 0.75 + FLOATS[action[0]] + rng.normal(0.0, 0.125)
        state.wide = (state.wide * 31 + rng.bits_at(-7) + rng.drawn()) & 0xFFFFFFFF
        if state.flag:
            state.reals[row] = math.sin(state.real) + rng.uniform(0.0, state.speed)
        total = 0.0
        for weight in state.weights:
            total += weight * state.reals[column]
        return total, state.middle > state.goal or (state.flag and abs(state.tiny) > 120)

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.flag
        out[1] = state.tiny
        out[2] = state.middle / 3
        out[3] = state.wide
        out[4] = state.real
        for k in range(3):
            out[5 + k] = state.reals[k]
        out[8] = state.board[0, 1] + state.board[1, 2] + state.flags[1]

    @staticmethod
    def truncated(state: Any) -> bool:
        return bool(state.small + state.middle > 250)

    @staticmethod
    def info(state: Any, out: Any) -> None:
        out.wide = state.wide
        out.flag = state.flags[2] == 1
        for i in range(2):
            for j in range(3):
                out.board[i, j] = state.board[i, j]
        out.real = state.real

    @staticmethod
    def check(speed: float, goal: int, weights: Any) -> None:
        if goal < 1:
            raise ValueError(f"goal={goal} must be 1 or more")


class Steps:
    """Discrete observations and actions, neither of which begins at zero."""

    state = np.dtype([("place", np.int64)])
    observation_space = spaces.Discrete(21, start=-10)
    action_space = spaces.Discrete(3, start=-1)
    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 5}  # noqa: RUF012
    keys_to_action = {("a",): -1, ("d",): 1}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.place = rng.integers(-3, 4)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.place += action + (rng.integers(-1, 2) if rng.random() < 0.25 else 0)
        state.place = min(max(state.place, -10), 10)
        return state.place * 0.5, abs(state.place) > 6

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.place

    @staticmethod
    def render(state: Any, mode: str) -> Any:
        if mode == "ansi":
            return f"at {state.place}"
        return np.full((2, 2, 3), 10 + state.place, np.uint8)


class Switches:
    """Bits in, several numbers out; never over by itself, but cut off."""

    state = np.dtype([("on", np.int8, (2, 3)), ("age", np.int16)])
    observation_space = spaces.MultiDiscrete([2, 7, 100])
    action_space = spaces.MultiBinary((2, 3))
    info_dtype = np.dtype([("age", np.int16)])

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.age = rng.integers(0, 20)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        lit = 0
        for i in range(2):
            for j in range(3):
                state.on[i, j] = state.on[i, j] != (action[i, j] == 1)
                lit += state.on[i, j]
        state.age += 1
        return lit, False

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.on[0, 0]
        out[1] = state.on.shape[1] + int(state.on[1, 2])
        out[2] = state.age

    @staticmethod
    def truncated(state: Any) -> bool:
        return bool(state.age > 30)

    @staticmethod
    def info(state: Any, out: Any) -> None:
        out.age = state.age


class Grid:
    """A picture out, real numbers in."""

    state = np.dtype([("x", np.float64), ("y", np.float64), ("hits", np.int32)])
    observation_space = spaces.Box(0, 255, (4, 5), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.x = rng.uniform(0.0, 5.0)
        state.y = rng.uniform(0.0, 4.0)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.x = (state.x + min(max(action[0], -0.5), 0.5)) % 5.0
        state.y = (state.y + math.tanh(action[1])) % 4.0
        hit = int(state.x) == int(state.y)
        state.hits += hit
        return math.sqrt(state.x * state.x + state.y * state.y), state.hits > 8

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[:, :] = 0
        out[int(state.y), int(state.x)] = 255

    @staticmethod
    def render(state: Any) -> Any:
        picture = np.zeros((4, 5, 3), np.uint8)
        Grid.observe(state, picture[:, :, 0])
        return picture


class Bits:
    """The remaining kinds: a bit array out, one real number in; no space of more dimensions."""

    state = np.dtype([("level", np.float64)])
    observation_space = spaces.MultiBinary(3)
    action_space = spaces.Box(-2.0, 2.0, (), np.float64)

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.level = rng.normal(0.0, 1.0)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.level += action
        return action, not -3.0 < state.level < 3.0

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        for k in range(len(out)):
            out[k] = state.level > k - 1


def step(level: Any) -> Any:
    """Bear the name of what is agym's own."""
    return level + SMALL[0] + SMALL[0] - 2 * SMALL[0]


SMALL = np.array([100], np.int8)


class Level:
    """A single number out, integers of a box in; a helper is called ``step`` as well."""

    state = np.dtype([("level", np.int32), ("kept", np.int32)])
    observation_space = spaces.Box(-1000, 1000, (), np.int16)
    action_space = spaces.Box(-3, 3, (2,), np.int8)
    parameters = {"kept": 5}  # noqa: RUF012

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.level = step(state.kept)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.level += action[0] * action[1]
        if state.level < -500:
            return -1.0, True
        return 0.0, abs(state.level - state.kept) > 9

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.level


BOOKS = {book.__name__: book for book in (Everything, Steps, Switches, Grid, Bits, Level)}


# ---------------------------------------------------------------- random rules

FIELDS = {"bool": "np.bool_", "int8": "np.int8", "int32": "np.int32", "int64": "np.int64",
          "float64": "np.float64"}  # fmt: skip

# How a value is made to fit a field: all numbers stay far from the limits of their kinds.
FITTING = {
    "bool": "({}) > 0",
    "int8": "({}) % 255 - 127",  # the negative of -128 is -128 in compiled code
    "int32": "({}) % 1000003 - 500000",
    "int64": "({}) % 10000019 - 5000000",
    "float64": "({}) % 997.0 - 400.0",
}

# Spaces of random rules, with the expressions that read or write them.
ACTIONS = {
    "spaces.Discrete(4)": ["action"],
    "spaces.Discrete(3, start=-1)": ["action"],
    "spaces.MultiDiscrete([2, 5])": ["action[0]", "action[1]"],
    "spaces.MultiBinary(2)": ["action[0]", "action[1]"],
    "spaces.Box(-2, 2, (2,), np.float32)": ["int(action[0] * 8.0)", "int(action[1] * 8.0)"],
    "spaces.Box(-9, 9, (1,), np.int16)": ["action[0]"],
}
OBSERVATIONS = {
    "spaces.Discrete(9, start=3)": ["out[0] = {i} % 9 + 3"],
    "spaces.MultiDiscrete([4, 5])": ["out[0] = {i} % 4", "out[1] = {i} % 5"],
    "spaces.MultiBinary(2)": ["out[0] = {b}", "out[1] = {b}"],
    "spaces.Box(-1000, 1000, (2,), np.float32)": ["out[0] = ({f}) % 997.0", "out[1] = {i} % 1000"],
    "spaces.Box(0, 255, (2, 2), np.uint8)": [
        "out[0] = {i} % 256", "out[1, 0] = {i} % 256", "out[1, 1] = {b}",
    ],
    "spaces.Box(-1000, 1000, (), np.float64)": ["out[0] = ({f}) % 997.0"],
}  # fmt: skip

NAMES = {"np": np, "math": math, "spaces": spaces}
_numbers = count()


@dataclass
class Writer:
    """Writes random expressions and statements.

    Attributes:
        draw: Draws from a strategy.
        scalars: The fields, by name, with their kinds.
        arrays: The fields that are arrays of three, with their kinds.
        integers: Other integers that can be read here.
        helpers: Names of functions of two integers that can be called.
        rng: Whether random numbers can be drawn.
        calls: Whether ``change`` can be called.
    """

    draw: Any
    scalars: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, str] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    rng: bool = False
    calls: bool = True

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def integer(self, depth: int = 3) -> str:
        """Write an integer of at most some millions."""
        leaves = [*self.integers, *self._reads("int8", "int32", "int64", "bool")]
        if self.rng:
            leaves += ["rng.integers(-5, 6)", "(rng.bits() & 4095)", "(rng.drawn() % 100)"]
        if depth == 0 or self.draw(st.integers(0, 5)) == 0:
            return str(self.one_of(*leaves, self.draw(st.integers(-9, 9))))
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        forms = [
            "({a} + {b})", "({a} - {b})", "(({a} * {b}) % 99991)", "({a} // (abs({b}) % 7 + 1))",
            "({a} // (-1 - abs({b}) % 7))", "({a} % (abs({b}) % 9 + 1))", "({a} % (-2 - {b} % 5))",
            "min({a}, {b})", "max({a}, {b})", "abs({a})", "-{a}", "({a} & {b})", "({a} ^ {b})",
            "({a} | {b})", "({a} >> ({b} & 7))", "(({a} & 1023) << ({b} & 7))",
            "({a} if {c} else {b})", "int({f})", "TABLE[{a} % 4]", "({b} - int({c}))",
            "math.floor({f})", "(not {c}) * {a}",
        ]  # fmt: skip
        forms += [f"{name}({{a}}, {{b}})" for name in self.helpers]
        form: str = self.one_of(*forms)
        f = f"(({self.real(depth - 1)}) % 999.0)" if "{f}" in form else ""
        c = self.condition(depth - 1) if "{c}" in form else ""
        return form.format(a=a, b=b, c=c, f=f)

    def real(self, depth: int = 3) -> str:
        """Write a finite float."""
        leaves = [*self._reads("float64"), str(self.draw(st.sampled_from([0.1, -2.5, 3.0, 1e-3])))]
        if self.rng:
            leaves += ["rng.random()", "rng.uniform(-2.0, 1.5)", "rng.normal(0.5, 2.0)"]
        if depth == 0 or self.draw(st.integers(0, 5)) == 0:
            return str(self.one_of(*leaves))
        a, b = self.real(depth - 1), self.real(depth - 1)
        form: str = self.one_of(
            "({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} / (abs({b}) + 0.25))",
            "({a} % 3.7)", "({a} % -0.3)", "({a} // 1.3)", "({i} * 0.125)", "({i} / 7)",
            "min({a}, {b})", "max({a}, {b})", "abs({a})", "-{a}", "math.sin({a})",
            "math.cos({a})", "math.sqrt(abs({a}))", "math.exp(-abs({a}))", "float({i} + 1)",
            "({a} if {c} else {b})", "REALS[{i} % 3]", "max({i}, {a})", "math.atan2({a}, {b})",
        )  # fmt: skip
        i = self.integer(depth - 1) if "{i}" in form else ""
        c = self.condition(depth - 1) if "{c}" in form else ""
        return form.format(a=a, b=b, c=c, i=i)

    def condition(self, depth: int = 2) -> str:
        """Write something that is true or not."""
        if depth <= 0:
            return str(self.one_of(*self._reads("bool"), "True", "False"))
        form: str = self.one_of(
            "({i} {o} {j})", "({i} {o} {j})", "({f} {o} {g})", "({i} < {j} <= 9)",
            "({c} and {d})", "({c} or {d})", "(not {c})",
        )  # fmt: skip
        parts = {"o": self.one_of("<", "<=", ">", ">=", "==", "!=")}
        makers = (("ij", self.integer), ("fg", self.real), ("cd", self.condition))
        for letters, make in makers:
            parts |= {k: make(depth - 1) for k in letters if f"{{{k}}}" in form}
        return form.format(**parts)

    def statements(self, depth: int = 2) -> list[str]:
        """Write some lines that change the state."""
        lines: list[str] = []
        for _ in range(self.draw(st.integers(1, 3))):
            kinds = ["field", "field", "item", "if", "loop", *(["call"] if self.calls else [])]
            kind = self.one_of(*kinds) if depth else "field"
            if kind == "field":
                name = self.one_of(*self.scalars)
                lines.append(f"state.{name} = {self.fitting(self.scalars[name])}")
            elif kind == "item":
                name = self.one_of(*self.arrays)
                index = self.one_of(":", f"{self.integer(1)} % 3", "1:")
                lines.append(f"state.{name}[{index}] = {self.fitting(self.arrays[name])}")
            elif kind == "if":
                lines.append(f"if {self.condition()}:")
                lines += indented(self.statements(depth - 1))
                if self.draw(st.booleans()):
                    lines += ["else:", *indented(self.statements(depth - 1))]
            elif kind == "loop":
                index = f"k{depth}"
                times = self.one_of("3", f"{self.integer(1)} % 4")
                lines.append(f"for {index} in range({times}):")
                before, self.integers = self.integers, (*self.integers, index)
                lines += indented(self.statements(depth - 1))
                self.integers = before
                if self.draw(st.booleans()):
                    lines += indented([f"if {self.condition()}:", "    break"])
            else:
                lines.append(f"change(state, {self.integer(1)}, {self.real(1)})")
        return lines

    def fitting(self, kind: str) -> str:
        value = self.real() if kind == "float64" else self.integer()
        return FITTING[kind].format(value)

    def _reads(self, *kinds: str) -> list[str]:
        reads = [f"state.{name}" for name, kind in self.scalars.items() if kind in kinds]
        reads += [f"state.{name}[2]" for name, kind in self.arrays.items() if kind in kinds]
        return reads


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


@st.composite
def programs(draw: Any) -> str:
    """Draw the text of a class ``Rules`` and of all that it uses."""
    kinds = draw(st.lists(st.sampled_from([*FIELDS]), min_size=1, max_size=4))
    scalars = {f"s{k}": kind for k, kind in enumerate([*kinds, "int64", "float64"])}
    arrays = {f"a{k}": draw(st.sampled_from([*FIELDS][1:])) for k in range(draw(st.integers(1, 2)))}
    fields = [f"('{name}', {FIELDS[kind]})" for name, kind in scalars.items()]
    fields += [f"('{name}', {FIELDS[kind]}, (3,))" for name, kind in arrays.items()]
    observed = draw(st.sampled_from([*OBSERVATIONS]))
    acted = draw(st.sampled_from([*ACTIONS]))
    # Some have the names of functions of agym's own.
    helpers = draw(st.sampled_from([("helper0", "helper1"), ("step", "info"), ("begin", "mix")]))
    plain = Writer(draw, integers=("a", "b"))
    calling = Writer(draw, integers=("a", "b"), helpers=helpers[:1])
    changing = Writer(draw, scalars, arrays, integers=("amount",), helpers=helpers, calls=False)
    begun = Writer(draw, scalars, arrays, helpers=helpers, rng=True)
    stepped = Writer(draw, scalars, arrays, tuple(ACTIONS[acted]), helpers, rng=True)
    shown = Writer(draw, scalars, arrays, helpers=helpers)
    writes = [
        text.format(i=shown.integer(), f=shown.real(), b=shown.condition())
        for text in OBSERVATIONS[observed]
    ]
    table = draw(st.lists(st.integers(-99, 99), min_size=4, max_size=4))
    lines = [
        f"TABLE = np.array({table}, np.{draw(st.sampled_from(['int8', 'int16', 'int64']))})",
        f"REALS = np.array([0.5, 0.1, 9.0], np.{draw(st.sampled_from(['float32', 'float64']))})",
        f"def {helpers[0]}(a, b):", f"    return {plain.integer()}",
        f"def {helpers[1]}(a, b):",
        f"    if {calling.condition()}:", f"        return {calling.integer()}",
        f"    return {calling.integer()}",
        "def change(state, amount, real):",
        *indented(changing.statements(1)),
        "class Rules:",
        f"    state = np.dtype([{', '.join(fields)}])",
        f"    observation_space = {observed}",
        f"    action_space = {acted}",
        "    def reset(state, rng):", *indented(indented(begun.statements())),
        "    def step(state, action, rng):", *indented(indented(stepped.statements())),
        *(indented(indented([f"if {stepped.condition()}:", f"    return {stepped.real()}, True"]))
          if draw(st.booleans()) else []),
        f"        return {stepped.real()}, {stepped.condition()} and rng.integers(0, 4) == 0",
        "    def observe(state, out):", *indented(indented(writes)),
    ]  # fmt: skip
    if draw(st.booleans()):
        lines += ["    def truncated(state):", f"        return {shown.condition()}"]
    if draw(st.booleans()):
        lines += [
            "    info_dtype = np.dtype([('n', np.int32), ('r', np.float64, (2,))])",
            "    def info(state, out):",
            f"        out.n = {FITTING['int32'].format(shown.integer())}",
            f"        out.r[0] = {shown.real()}", f"        out.r[1] = {shown.real()}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def compiled_rules(program: str) -> Any:
    """Return the class of a text, whose lines tracebacks and messages can show."""
    file = f"<random rules {next(_numbers)}>"
    linecache.cache[file] = (len(program), None, program.splitlines(keepends=True), file)
    names: dict[str, Any] = {**NAMES, "__name__": "random_rules"}
    exec(compile(program, file, "exec"), names)
    return names["Rules"]


random_rules = programs().map(compiled_rules)
