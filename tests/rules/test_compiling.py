"""What cannot be compiled is refused with its line; what was compiled is loaded the next time."""

from __future__ import annotations

import importlib
import logging
import math
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import agym
from agym.core.planning.caching import cache_folder
from tests.rules.books import Steps
from tests.rules.playing import play_same, side_by_side
from tests.support.scripts import install_command, run

pytestmark = pytest.mark.xdist_group("compiled")

BASE = """
import math
import random
import numpy as np
from gymnasium import spaces

class Base:
    state = np.dtype([("x", np.float64), ("n", np.int32), ("b", np.int8, (3,))])
    observation_space = spaces.Box(-9, 9, (1,), np.float64)
    action_space = spaces.Discrete(2)
    def reset(state, rng):
        state.n = 0
    def step(state, action, rng):
        return 1.0, False
    def observe(state, out):
        out[0] = state.x
"""

# Lines of ``step`` that cannot be compiled, the line that is named, and what is said of it.
REFUSED = {
    "text": ("state.x = len(str(action).upper())  # here", "No implementation of function"),
    "new arrays": ("grid = np.zeros(5)  # here\ngrid[action] = 1\nstate.x = grid.sum()", ""),
    "lists": ("items = [1, 2, action]  # here\nitems.append(3)\nstate.n = len(items)",
              "this allocates memory: copy arrays in a loop"),
    "dictionaries": ("state.x = {0: 1.5}[state.n]  # here", ""),
    "imports": ("import random  # here\nstate.x = random.random()", "IMPORT_NAME"),
    "names": ("if action > 1:\n    state.x = undefined_name(3)  # anywhere",
              "name 'undefined_name' is not defined"),
    "exceptions": ("try:\n    state.n = 1\nexcept KeyError:  # here\n    state.n = 2", ""),
    "lists of constants": ("dx, dy = [(1, 0), (0, 1)][action]  # here\nstate.x = 1.0 * dx",
                           r"can be a tuple of the module, such as MOVES = \(\(1, 0\), \(0, 1\)\)"),
    "assignments in a condition": (
        "if (n := state.n) < 3:  # here\n    state.n = n + 1",
        "numba does not support := here: write the assignment on a separate line"),
    "digits": ("state.x = round(state.x, 2)  # here",
               "can differ in the last digit in compiled code: write round"),
    "math.hypot": ("state.x = math.hypot(state.x, 1.5)  # here",
                   r"write math.sqrt\(x \* x \+ y \* y\)"),
    "kinds that change": (
        'if action > 1:\n    x = "none"\nelse:\n    x = 1.0\nstate.x = x  # anywhere',
        "Cannot unify"),
}  # fmt: skip

# Those that Python refuses as well.
WRONG = {
    "fields": ("state.x = helper(state)\n~def helper(state):\n    return state.nothing  # here",
               "there is no field 'nothing'"),
    "methods of rng": ("state.x = rng.choice([1, 2])  # here",
                       "Unknown attribute 'choice' of type rng"),
    "one result": ("return 1.0  # anywhere",
                   r"step must return two values: \(reward, terminated\)"),
    "parts of arrays": (
        "state.x = state.b.mean()  # here",
        "arrays in rules have no mean: write a loop. They have all, any, fill, flat"),
    "the largest of an array": ("state.x = state.b.max()  # here",
                                "arrays in rules have no max: write a loop"),
    "an array in a number": ("state.x = state.b  # here", ""),
}  # fmt: skip


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    """Write a module of rules with lines of ``step``, or with functions; import the module.

    What follows ``~`` is outside of the class.
    """
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(name: str, part: str) -> Any:
        inside, _, outside = dedent(part).partition("~")
        if "def " not in inside:
            lines_of_step = indent(inside, "    ")
            inside = f"def step(state, action, rng):\n{lines_of_step}\n    return 1.0, False"
        lines = [
            BASE,
            "class Game(Base):",
            *(f"    {line}" for line in inside.splitlines()),
            outside,
        ]
        (tmp_path / f"{name}.py").write_text("\n".join(lines))
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module(name).Game

    return load


@pytest.mark.once
@pytest.mark.parametrize("what", [*REFUSED, *WRONG])
def test_what_cannot_be_compiled_is_named_with_its_line(
    what: str, load: Callable[[str, str], Any], tmp_path: Path
) -> None:
    part, reason = {**REFUSED, **WRONG}[what]
    rules = load("refused", part)
    with pytest.raises(
        agym.UsageError, match=rf"(?s)the rules of Game cannot be compiled.*{reason}"
    ) as caught:
        agym.vectorize(rules, 2, engine="compiled")
    message = str(caught.value)
    assert message.endswith("engine='python' supports more")
    assert len(message) < 800
    file = tmp_path / "refused.py"
    lines = file.read_text().splitlines()
    marked = [k for k, line in enumerate(lines, 1) if line.endswith("# here")]
    for number in marked:
        assert f" at {file}:{number}: {lines[number - 1].strip()!r}: " in message


@pytest.mark.parametrize("what", [*REFUSED])
def test_python_runs_any_rules(what: str, load: Callable[[str, str], Any]) -> None:
    envs = agym.vectorize(load("unusual", REFUSED[what][0]), 2, engine="python")
    envs.reset(seed=0)
    assert envs.step([0, 1])[0].shape == (2, 1)


@pytest.mark.parametrize("how", ["once", "twice", "each other", "a closure"])
def test_functions_that_call_themselves(how: str) -> None:
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    names: dict[str, Any] = {}
    texts = {
        "once": "def f(n, a=0, b=1): return a if n < 1 else f(n - 1, b, a + b)",
        "twice": "def f(n): return n if n < 2 else f(n - 1) + f(n - 2)",
        "each other": "def f(n): return n if n < 2 else g(n) + f(n - 2)\ndef g(n): return f(n - 1)",
    }
    exec(texts.get(how, ""), names)
    function = names.get("f", fibonacci)

    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        return function(10 + action), False

    rules = type("Game", (Steps,), {"step": step})
    envs = agym.vectorize(rules, 2, engine="python")
    envs.reset(seed=0)
    assert envs.step([0, 1])[1].tolist() == [55.0, 89.0]
    with pytest.raises(
        agym.UsageError, match=r"calls itself.*write a loop, or use engine='python'"
    ):
        agym.vectorize(rules, 2, engine="compiled")


@pytest.mark.parametrize("engine", ["python", "compiled", "parallel"])
@pytest.mark.parametrize("part", ["step", "helper"])
def test_coroutines_are_refused(engine: str, part: str) -> None:
    async def helper(x: Any) -> Any:
        return x

    async def awaiting(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        return 1.0, False

    def calling(state: Any, action: Any, rng: Any) -> Any:
        return helper(1.0), False

    rules = type("Game", (Steps,), {"step": awaiting if part == "step" else calling})
    with pytest.raises(
        agym.UsageError, match=r"test_compiling.py:\d+: .* write def instead of async"
    ):
        agym.vectorize(rules, 2, engine=engine)


ARRAYS = """
    def reset(state, rng):
        state.x = rng.uniform(low=-1.0, high=2.0) + rng.normal(mean=0.5, deviation=2.0)
        state.b[0] = -128
        state.b[1] = rng.integers(low=-9, high=9)

    def step(state, action, rng):
        state.b.flat[2] = 7
        total = 0
        for number in state.b.flat:
            total -= -number
        total += 100 * state.b.sum() + state.b.ndim + state.b.size + state.b.shape[0]
        dx, dy = ((1, 0), (0, 1))[action]
        return total + dx - dy, state.b.any() and not state.b.all()
    """


@pytest.mark.full
def test_parts_of_arrays_and_named_arguments(load: Callable[[str, str], Any]) -> None:
    rules = load("arrays", ARRAYS)
    play_same(side_by_side(rules, ["compiled", "parallel"], 6, AutoresetMode.NEXT_STEP), 3, 30, 9)


@pytest.mark.parametrize("engine", ["compiled", "parallel"])
def test_an_integer_to_a_negative_power(engine: str, load: Callable[[str, str], Any]) -> None:
    envs = agym.vectorize(load("powers", "state.x = 2 ** (action - 1)"), 2, engine=engine)
    envs.reset(seed=0)
    assert envs.step([1, 1])[0].tolist() == [[1.0], [1.0]]
    with pytest.raises(
        ValueError, match=r"powers.py:\d+: an integer to a negative power is a float"
    ):
        envs.step([0, 1])
    envs.close()


SMALL = """
    state.n = INTEGERS[0] + INTEGERS[0]
    state.x = INTEGERS[0] * INTEGERS[0] + FLOATS[0] * FLOATS[0]
    ~INTEGERS = np.array([100], np.int8)
    FLOATS = np.array([0.1], np.float32)
    """


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_constants_are_computed_with_in_64_bits(
    engine: str, load: Callable[[str, str], Any]
) -> None:
    """Whatever their own kind; NumPy's small numbers would overflow, or be rounded."""
    envs = agym.vectorize(load("small", SMALL), 2, engine=engine)
    envs.reset(seed=0)
    tenth = float(np.float32(0.1))
    assert envs.step([0, 1])[0].tolist() == [[10_000.0 + tenth * tenth]] * 2
    assert envs.states["n"].tolist() == [200, 200]
    envs.close()


# ---------------------------------------------------------------- the cache

WALK = """
import logging
import sys
import numpy as np
from gymnasium import spaces
import numba
import agym
import settings
{before}
STEP = {step}

def moved(place, action):
    return place + {how}

class Walk:
    state = np.dtype([("place", np.float64)])
    observation_space = spaces.Box(-99, 99, (1,), np.float64)
    action_space = spaces.Discrete(2)
    def reset(state, rng):
        state.place = settings.START

    def step(state, action, rng):
        state.place = moved(state.place, action)
        return 1.0, False

    def observe(state, out):
        out[0] = state.place

logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
envs = agym.vectorize(Walk, 2, engine="compiled")
envs.reset(seed=0)
print(envs.step([0, 1])[0].ravel().tolist())
"""

COMPILING = "agym.vectorize WARNING compiling the rules of Walk, which takes a few seconds; "


def walk(
    folder: Path, step: float = 0.5, how: str = "STEP * action", start: int = 0, before: str = ""
) -> list[str]:
    """Play in a process of its own; return what it prints."""
    (folder / "settings.py").write_text(f"START = {start}\n")
    code, out, errors = run(folder, WALK.format(step=step, how=how, before=before), 8)
    assert (code, errors) == (0, "")
    return out.splitlines()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder() / "rules"


def test_what_was_compiled_is_loaded_the_next_time(cache: Path, tmp_path: Path) -> None:
    told, places = walk(tmp_path)
    assert told == f"{COMPILING}the next time, they are loaded from {cache.parent}"
    assert places == "[0.0, 0.5]"
    written = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len([path for path in written if path.suffix == ".nbc"]) == 3
    assert walk(tmp_path) == [places]
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == written


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({"step": 0.25}, "[0.0, 0.25]"),
        ({"how": "STEP * 3 * action"}, "[0.0, 1.5]"),
        ({"start": 4}, "[4.0, 4.5]"),
    ],
    ids=["a constant", "a helper", "a constant of another module"],
)
def test_rules_that_changed_are_compiled_anew(
    change: dict[str, Any], places: str, cache: Path, tmp_path: Path
) -> None:
    walk(tmp_path)
    told, changed = walk(tmp_path, **change)
    assert told.startswith(COMPILING)
    assert changed == places
    assert walk(tmp_path) == ["[0.0, 0.5]"]  # both are kept


@pytest.mark.full
def test_what_cannot_be_compared_is_not_kept_on_the_disk(cache: Path, tmp_path: Path) -> None:
    before = "@numba.vectorize\ndef scaled(x):\n    return x * STEP"
    for step in (0.5, 0.25, 0.25):
        told, places = walk(tmp_path, step=step, how="scaled(action)", before=before)
        assert "the rules of Walk are compiled again for each batch" in told
        assert places == f"[0.0, {step}]"
    assert not cache.exists()


@pytest.mark.full
def test_a_folder_that_cannot_be_written_is_no_error(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    for _ in range(2):
        told, places = walk(tmp_path)
        assert told.startswith(COMPILING)
        assert places == "[0.0, 0.5]"


@pytest.mark.full
def test_a_file_that_cannot_be_read_is_no_error(cache: Path, tmp_path: Path) -> None:
    walk(tmp_path)
    for path in cache.iterdir():
        path.write_bytes(b"")
    assert walk(tmp_path)[-1] == "[0.0, 0.5]"
    assert walk(tmp_path) == ["[0.0, 0.5]"]


# ---------------------------------------------------------------- the default


PLAIN = "state.x = math.sin(1.0 + action)"


def test_many_games_are_compiled_and_one_is_not(
    load: Callable[[str, str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    rules = load("plain_rules", PLAIN)
    env = agym.vectorize(rules)
    env.reset(seed=0)
    assert env.step(1)[0].tolist() == [math.sin(2.0)]
    assert not caplog.messages
    envs = agym.vectorize(rules, 2)
    assert envs.engine == "compiled"
    assert caplog.messages[0].startswith("compiling the rules of Game")
    envs.reset(seed=0)
    assert envs.step([0, 1])[0].tolist() == [[math.sin(1.0)], [math.sin(2.0)]]


def test_without_numba(
    load: Callable[[str, str], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("agym.rules.vector_env.installed", lambda module: False)
    for module in ("numba", "numba.cuda"):
        monkeypatch.setitem(sys.modules, module, None)
    rules = load("without_numba", PLAIN)
    with caplog.at_level(logging.WARNING, "agym.vectorize"):
        envs = agym.vectorize(rules, 2)
    assert envs.engine == "python"
    (said,) = caplog.messages
    assert said.startswith("Game runs in plain Python, which is about 100 times slower")
    assert install_command("vectorize") in said
    for engine in ("compiled", "parallel", "cuda"):
        with pytest.raises(agym.MissingExtraError, match=r"pip install .*\[vectorize\]"):
            agym.vectorize(rules, 2, engine=engine)


@pytest.mark.parametrize("engine", ["python", "compiled", "parallel"])
def test_an_index_outside_of_an_array(engine: str, load: Callable[[str, str], Any]) -> None:
    envs = agym.vectorize(load("outside", "state.b[2 + action] = 1"), 2, engine=engine)
    envs.reset(seed=0)
    envs.step([0, 0])
    with pytest.raises(IndexError, match="out of bounds"):
        envs.step([0, 1])
    envs.close()


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_rules_that_are_edited_while_the_program_runs(engine: str) -> None:
    def later(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        return 7.0, False

    rules: Any = type("Game", (Steps,), {})
    agym.vectorize(rules, 2, engine=engine).reset(seed=0)
    rules.step = later
    envs = agym.vectorize(rules, 2, engine=engine)
    envs.reset(seed=0)
    assert envs.step(np.array([0, 1]))[1].tolist() == [7.0, 7.0]


def test_all_cores_have_stopped_when_one_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        for _ in range(200_000 if action == 0 else 1):
            state.place = (state.place * 31 + 1) % 1009
        return 1.0 / (2 - action), False

    monkeypatch.setattr("agym.rules.engines.SHARE", 1)
    monkeypatch.setattr("agym.rules.engines.available_cores", lambda: 3)
    rules = type("Game", (Steps,), {"step": step, "action_space": spaces.Discrete(3)})
    envs = agym.vectorize(rules, 30, engine="parallel")
    envs.reset(seed=0)
    begun = envs.states["place"].copy()
    actions = np.zeros(30, int)
    actions[10] = 2
    with pytest.raises(ZeroDivisionError):
        envs.step(actions)
    ended = envs.states["place"].copy()
    places = begun
    for _ in range(200_000):
        places = (places * 31 + 1) % 1009
    others = [*range(10), *range(20, 30)]  # beside the share with the game that raised
    assert np.array_equal(ended[others], places[others])
    envs.close()
