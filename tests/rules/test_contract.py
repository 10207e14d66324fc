"""What rules must be: each refusal names the part and what to do. And rules by name and by id."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from textwrap import dedent
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import agym
from agym.rules.env import env_class, vector_env_class
from tests.rules.books import Bits, Everything, Grid, Level, Steps, Switches
from tests.support.equality import same, same_values
from tests.support.scripts import run

pytestmark = pytest.mark.xdist_group("compiled")

each_engine = pytest.mark.parametrize("engine", ["python", "compiled", "parallel"])
PARTS = {
    name: vars(Steps)[name]
    for name in ("state", "observation_space", "action_space", "reset", "step", "observe")
}


def book(**parts: Any) -> Any:
    """Return rules that work, but for these parts; ``None`` leaves one out."""
    chosen = {name: part for name, part in {**PARTS, **parts}.items() if part is not None}
    return type("Game", (), chosen)


def make(rules: Any, num_envs: int = 2, **options: Any) -> Any:
    return agym.vectorize(rules, num_envs, **{"engine": "python", **options})


# ---------------------------------------------------------------- parts


NUMBERS = "use one of bool, int8 to int64 and float64"
SPACES = "it must be a Box, Discrete, MultiDiscrete or MultiBinary"
SIGNATURES = {
    "reset": r"\(state, rng\)", "step": r"\(state, action, rng\)", "observe": r"\(state, out\)",
    "truncated": r"\(state\)", "info": r"\(state, out\)",
}  # fmt: skip
INFO_DTYPE = [("n", np.uint8), ("r", np.float32)]


def with_self(self: Any, state: Any, action: Any, rng: Any) -> None: ...


def info(state: Any, out: Any) -> None: ...


# Parts of rules that cannot be, each with what is said of it.
WRONG_PARTS: list[tuple[dict[str, Any], str]] = [
    *(({part: None}, f"Game have no {part}: they need state, .*, observe") for part in PARTS),
    ({"state": "place"}, "Game.state must be a structured numpy.dtype"),
    ({"state": np.int64}, "Game.state must be a structured numpy.dtype with fields, not int64"),
    *(({"state": [("place", kind)]}, f"'place' of Game.state is {name}: {NUMBERS}")
      for kind, name in ((np.float32, "float32"), (np.complex128, "complex128"), ("U3", "<U3"),
                         (">i8", ">i8"), ([("x", int)], ".*"))),
    ({"state": [("place", np.uint8, (3,))]}, f"'place' of Game.state is uint8: {NUMBERS}"),
    ({"state": [("place", bool, (3,))]}, "'place' of Game.state is an array of bool.*: use int8"),
    *(({part: space}, rf"Game.{part} is .*: {SPACES}")
      for part in ("observation_space", "action_space")
      for space in (spaces.Text(3), spaces.Dict({"a": spaces.Discrete(2)}), "Discrete(2)", 4)),
    *(({part: with_self, "info_dtype": INFO_DTYPE if part == "info" else None},
       rf"Game.{part}\(self.* parameters {wanted}, without")
      for part, wanted in SIGNATURES.items()),
    *(({part: wrong, "info_dtype": INFO_DTYPE if part == "info" else None},
       rf"Game.{part} must be a plain .*not {kind}") for part in SIGNATURES
      for wrong, kind in ((classmethod(with_self), "method"), (3, "int"), (len, "builtin"))),
    ({"info": info}, "both info and info_dtype, or neither"),
    ({"info_dtype": INFO_DTYPE}, "both info and info_dtype, or neither"),
    *(({"info": info, "info_dtype": dtype}, words) for dtype, words in (
        (np.int64, "Game.info_dtype must be a structured"), ([("n", "U3")], "'n' of Game.info_dt"),
        ([("n", bool, (2,))], "'n' of Game.info_dtype is an array of bool"))),
    ({"parameters": {"speed": 2}}, r"has 'speed', which is not a field of Game.state: add"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "words"), WRONG_PARTS)
def test_parts_that_cannot_be(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(agym.UsageError, match=words):
        make(book(**parts))


def test_dtypes_may_be_what_makes_one() -> None:
    envs = make(book(state=[("place", np.int64)], info=info, info_dtype=INFO_DTYPE))
    observations, infos = envs.reset(seed=0)
    assert (observations.shape, infos["r"].dtype) == ((2,), np.float32)


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rules": Steps, "size": 3}, "Steps has no parameter 'size': its parameters are none"),
        ({"num_envs": 0}, "num_envs"),
        ({"engine": "magic"}, "engine.*python.*compiled.*cuda"),
        ({"max_episode_steps": 0}, "max_episode_steps"),
        ({"max_episode_steps": 2**70}, "max_episode_steps=.* must be less than .*: use -1"),
        ({"rules": Steps, "render_mode": "human"}, "render_mode.*ansi.*rgb_array"),
        ({"autoreset_mode": "never"}, "'next_step', 'same_step' or 'disabled'"),
        (
            {"size": 1},
            "Everything has no parameter 'size': .* are speed, goal, weights",
        ),
        ({"goal": 1.5}, r"goal=1.5 is invalid \(it is not int32\): use int32 of shape \(\)"),
        ({"goal": 2**40}, "goal=1099511627776 is invalid"),
        ({"goal": "far"}, "goal='far' is invalid"),
        ({"goal": None}, "goal=None is invalid"),
        ({"goal": [1, 2, 3]}, r"is invalid .*: use int32 of shape \(\) or \(2,\), a row per"),
        ({"weights": 1.0}, r"use float64 of shape \(2,\) or \(2, 2\), a row per game"),
        ({"speed": np.nan}, r"Everything: speed=nan is invalid \(nan is not a number\): use"),
        ({"weights": [1.0, np.nan]}, r"is invalid \(nan is not a number\)"),
        ({"goal": np.inf}, r"goal=inf is invalid \(it is not int32\)"),
        ({"goal": 0}, "Everything: goal=0 must be 1 or more"),
        ({"goal": [5, -1]}, "Everything: goal=-1 must be 1 or more"),
    ],
)
def test_arguments_that_cannot_work(given: dict[str, Any], words: str) -> None:
    with pytest.raises(agym.UsageError, match=words):
        make(**{"rules": Everything, **given})


def test_parameters_keep_their_values() -> None:
    envs = make(Level, kept=[7, -3])
    assert envs.reset(seed=0)[0].tolist() == [7, -3]
    for _ in range(20):
        observations = envs.step([[3, 3], [1, -2]])[0]
    assert envs.states["kept"].tolist() == [7, -3]
    assert set(observations.tolist()) != {7, -3}
    assert agym.vectorize(Level, kept=np.int8(4)).reset(seed=0)[0] == 4
    assert make(Everything, weights=[[1, 2], [3, 4]]).states.shape == (2,)


# ---------------------------------------------------------------- arguments and calls


ZEROS, ONES = np.zeros((2, 2), np.float32), np.ones((2, 2, 3), np.int8)
GOOD_AND_BAD: dict[Any, tuple[list[Any], list[Any]]] = {
    Steps: ([[-1, 1], np.array([0, 1], np.int8), (1, 1)],
            [[-2, 0], [0, 2], [0], [[0, 1]], 0, [0.0, 1.0], [True, False], None, "up", [2**63, 0]]),
    Everything: ([[[0, 0], [2, 3]], np.ones((2, 2), np.uint64)],
                 [[[0, 4], [0, 0]], [[3, 0], [0, 0]], [[-1, 0], [0, 0]], [0, 0], ZEROS]),
    Switches: ([ONES], [2 * ONES, -ONES, np.ones((2, 3)), np.ones((2, 2, 3))]),
    Grid: ([ZEROS, ZEROS + 99.0, [[0, 1], [1, 0]]],
           [np.zeros(2), np.zeros((2, 3)), [["a", "b"]] * 2, [[1j, 0]] * 2]),
    Bits: ([[0.5, -1.0], [1, 0]], [[[0.5], [0.5]], 0.5, None]),
    Level: ([[[1, 2], [3, -3]]], [[[0.5, 1.0], [0.0, 0.0]], [1, 2]]),
}  # fmt: skip


@pytest.mark.parametrize("rules", GOOD_AND_BAD)
def test_actions(rules: Any) -> None:
    """Those of another shape or kind are refused, and integers outside of their space."""
    good, bad = GOOD_AND_BAD[rules]
    envs = make(rules)
    expected = envs.reset(seed=0)[0]
    for actions in bad:
        with pytest.raises(
            agym.UsageError, match=rf"(?s){rules.__name__}: actions .* must be 2 of"
        ):
            envs.step(actions)
    assert same(envs.reset(seed=0)[0], expected)
    for actions in good:
        envs.reset(seed=0)
        envs.step(actions)
    env = agym.vectorize(Steps)
    env.reset(seed=0)
    for action in (3, -2, [0, 1], "up", 0.5, None):
        with pytest.raises(agym.UsageError, match=r"Steps: actions .* must be Discrete\(3"):
            env.step(action)
    assert env.step(np.int8(-1))[0].dtype == np.int64


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seed": [1]}, "has 1 seeds for 2 games"), ({"seed": -1}, "not be negative"),
        ({"seed": [1, -2]}, "not be negative"), ({"seed": [1, None, 3]}, "has 3 seeds"),
        *(({"options": {"reset_mask": np.array(mask)}},
           r"options\['reset_mask'\] must be 2 booleans, at")
          for mask in ([True], [1, 0], [False, False], [[True, True]])),
    ],
)  # fmt: skip
def test_resets_that_cannot_work(given: dict[str, Any], words: str) -> None:
    with pytest.raises(agym.UsageError, match=words):
        make(Steps).reset(**given)


def test_a_reset_is_needed() -> None:
    envs = make(Steps, autoreset_mode=AutoresetMode.DISABLED, max_episode_steps=1)
    with pytest.raises(ResetNeeded, match="call reset before step"):
        envs.step([0, 0])
    envs.reset(seed=0, options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded, match="call reset before step"):
        envs.step([0, 0])
    env = agym.vectorize(Steps, max_episode_steps=1)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    assert env.step(0)[3]
    with pytest.raises(ResetNeeded, match="the episode is over: call reset"):
        env.step(0)


def test_limits_of_an_episode() -> None:
    """The rules' own, another, or none."""

    def steps(**options: Any) -> int:
        env = agym.vectorize(book(step=lambda state, action, rng: (0.0, False), **own), **options)
        env.reset(seed=0)
        return next((k for k in range(1, 100) if env.step(0)[3]), 0)

    own: dict[str, Any] = {}
    assert steps() == 0
    assert steps(max_episode_steps=3) == 3
    own = {"max_episode_steps": 12}
    assert steps() == 12
    assert steps(max_episode_steps=20) == 20
    assert steps(max_episode_steps=-1) == 0


def test_a_field_that_does_not_exist() -> None:
    def reset(state: Any, rng: Any) -> None:
        state.plaice = 3

    with pytest.raises(AttributeError, match="no field 'plaice': it has place"):
        make(book(reset=reset)).reset(seed=0)
    env = agym.vectorize(Steps)
    with pytest.raises(AttributeError, match="no field 'plaice': it has place"):
        _ = env.state.plaice
    env.reset(seed=0)
    env.state.place = 9
    assert env.step(1)[0] >= 9


@each_engine
def test_what_is_closed_is_not_used(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agym.rules.engines.SHARE", 1)
    envs = make(Steps, 4, engine=engine)
    env = agym.vectorize(Steps, engine=engine)
    for one, action in ((envs, np.zeros(4, int)), (env, 0)):
        one.reset(seed=0)
        one.close()
        one.close()
        for use in (one.reset, lambda one=one, action=action: one.step(action)):
            with pytest.raises(agym.ClosedError, match="Steps: the environment is closed"):
                use()


# ---------------------------------------------------------------- copies


def goes_on_as(copied: Any, original: Any) -> bool:
    """Return whether two environments, made by one another's copy, go on the same way."""
    original.action_space.seed(1)
    actions = [original.action_space.sample() for _ in range(20)]
    seen = []
    for env in (copied, original):
        steps = []
        for action in actions:
            steps.append(env.step(action))
            if np.any(steps[-1][2] | steps[-1][3]) and not hasattr(env, "num_envs"):
                steps.append(env.reset())
        seen.append([*steps, env.reset()])
        env.close()
    return same(seen[0], seen[1])


@each_engine
@pytest.mark.parametrize("way", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
@pytest.mark.parametrize("rules", [Everything, "agym.envs.games.pong:Pong", "walk_rules"])
def test_environments_can_be_pickled(rules: Any, engine: str, way: Any, module: str) -> None:
    parameters = {"speed": [0.5, 1.5, 2.5]} if rules is Everything else {}
    options: dict[str, Any] = {"max_episode_steps": 9, "autoreset_mode": "same_step", **parameters}
    envs, env = make(rules, 3, engine=engine, **options), agym.vectorize(rules, engine=engine)
    envs.reset(seed=[5, None, 7])
    envs.step(envs.action_space.sample())
    env.reset(seed=5)
    for one in (envs, env):
        copied = pickle.loads(way.dumps(one))
        assert type(copied) is type(one)
        assert goes_on_as(copied, one)


@pytest.mark.full
def test_what_gymnasium_made_can_be_pickled(env_id: str) -> None:
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    copied = pickle.loads(pickle.dumps(env))
    assert copied.spec == env.spec
    assert goes_on_as(copied, env)


def test_copies_have_states_of_their_own() -> None:
    envs = make(Steps, autoreset_mode="disabled", max_episode_steps=1)
    envs.reset(seed=0)
    copied = deepcopy(envs)
    envs.step([0, 0])
    assert copied.step([0, 0])[3].all()
    for one in (copied, deepcopy(envs), envs):
        with pytest.raises(ResetNeeded, match="some games are over"):
            one.step([0, 0])


# ---------------------------------------------------------------- names


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of plain functions."""
    (tmp_path / "walk_rules.py").write_text(
        dedent("""
        from tests.rules.books import Steps

        state, observation_space, action_space, max_episode_steps = (
            Steps.state, Steps.observation_space, Steps.action_space, 7
        )
        reset, observe = Steps.reset, Steps.observe

        def step(state, action, rng):
            walk(state, action)
            return 1.0, abs(state.place) > 8

        def walk(state, action):
            state.place += action
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "walk_rules", raising=False)
    return "walk_rules"


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_a_module_of_functions(module: str, engine: str) -> None:
    envs = agym.vectorize(module, 2, engine=engine)
    first = envs.reset(seed=0)[0]
    second = envs.step([-1, 1])[0]
    assert (second - first).tolist() == [-1, 1]
    assert same(agym.vectorize(sys.modules[module], 2, engine=engine).reset(seed=0)[0], first)
    envs.close()


def test_classes_by_name() -> None:
    envs = make("tests.rules.books:Steps")
    assert same(envs.reset(seed=3)[0], make(Steps).reset(seed=3)[0])
    assert type(envs) is vector_env_class(Steps)
    assert type(agym.vectorize("tests.rules.books:Steps")) is env_class(Steps)


@pytest.mark.parametrize("rules", ["no_such_module", "tests.rules.books:Stairs", "", ":Steps"])
def test_names_that_name_nothing(rules: str) -> None:
    with pytest.raises(agym.UsageError, match=f"rules='{rules}' cannot be found: "):
        agym.vectorize(rules)


@pytest.mark.parametrize("rules", [None, 3, Steps(), len], ids=["None", "3", "object", "len"])
def test_what_is_no_rule_book(rules: Any) -> None:
    with pytest.raises(agym.UsageError, match="must be a class or a module of plain functions"):
        agym.vectorize(rules, 2)


# ---------------------------------------------------------------- pictures and keys


def test_pictures() -> None:
    envs = make(Steps, render_mode="ansi")
    places = envs.reset(seed=1)[0]
    assert envs.render() == tuple(f"at {place}" for place in places)
    env = agym.vectorize(Steps, render_mode="rgb_array")
    place = env.reset(seed=1)[0]
    assert same(env.render(), np.full((2, 2, 3), 10 + place, np.uint8))
    assert env.metadata["render_modes"] == ["ansi", "rgb_array"]
    assert env.metadata["render_fps"] == 5
    assert make(Steps).render() is None
    env = agym.vectorize(Grid, render_mode="rgb_array")
    observation = env.reset(seed=0)[0]
    assert env.metadata["render_modes"] == ["rgb_array"]
    assert same(env.render()[:, :, 0], observation)
    assert agym.vectorize(Level).metadata["render_modes"] == []


def test_keys() -> None:
    assert agym.vectorize(Steps).get_keys_to_action() == {("a",): -1, ("d",): 1}
    assert agym.vectorize(Grid).get_keys_to_action() == {}


# ---------------------------------------------------------------- ids


@pytest.fixture
def env_id() -> Iterator[str]:
    """An id of rules that are over after nine steps at most."""
    agym.register_rules("tests/Everything-v0", Everything, max_episode_steps=9, kwargs={"goal": 30})
    yield "tests/Everything-v0"
    del gymnasium.registry["tests/Everything-v0"]


def test_an_id_in_gymnasium(env_id: str) -> None:
    env = gymnasium.make(env_id, speed=0.25)
    env.reset(seed=3)
    assert env.unwrapped.state.goal == 30  # type: ignore[attr-defined]
    assert env.unwrapped.state.speed == 0.25  # type: ignore[attr-defined]
    assert env.spec is not None
    assert env.spec.max_episode_steps == 9
    envs = gymnasium.make_vec(env_id, 3, goal=[5, 6, 7], engine="python")
    assert isinstance(envs, vector_env_class(Everything))
    envs.reset(seed=3)
    assert envs.states["goal"].tolist() == [5, 6, 7]
    env.close()
    envs.close()


@pytest.mark.once
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("backend", ["thread", "process", "vector"])
def test_an_id_in_every_backend(env_id: str, backend: Any, mode: Any) -> None:
    """The vector backend steps the games at once."""
    options: dict[str, Any] = {"autoreset": mode, "output": "array"}
    ended = 0
    with (
        agym.make(env_id, 5, backend="serial", **options) as theirs,
        agym.make(env_id, 5, backend=backend, workers=2, **options) as ours,
    ):
        assert same_values(ours.reset(seed=3), theirs.reset(seed=3))
        ours.action_space.seed(0)
        for k in range(60):
            actions = ours.action_space.sample()
            mine, other = ours.step(actions), theirs.step(actions)
            assert same(mine[:4], other[:4])
            assert same_values([*mine.infos], [*other.infos])
            ended += int((mine.terminated | mine.truncated).sum())
            if k == 30:
                some: Any = {"seed": [8, 2], "env_ids": [1, 4]} if mode != "next_step" else {}
                assert same(ours.reset(**some)[:1], theirs.reset(**some)[:1])
    assert ended > 5


def test_an_id_must_be_text() -> None:
    with pytest.raises(agym.UsageError, match="env_id=3 must be a string"):
        agym.register_rules(3, Steps)  # type: ignore[arg-type]
    with pytest.raises(agym.UsageError, match="have no observe"):
        agym.register_rules("tests/None-v0", book(observe=None))
    assert "tests/None-v0" not in gymnasium.registry


@pytest.mark.once
@pytest.mark.parametrize("backend", ["vector", "process"])
def test_rules_of_a_script_in_worker_processes(tmp_path: Path, backend: str) -> None:
    code = f"""
    import agym
    from tests.rules.books import Steps

    START = 4

    def moved(place, action):
        return place + 2 * action - 1

    class Walk(Steps):
        def reset(state, rng):
            state.place = START

        def step(state, action, rng):
            state.place = moved(state.place, action)
            return 1.0, False

    if __name__ == "__main__":
        agym.register_rules("script/Walk-v0", Walk)
        with agym.make("script/Walk-v0", 2, backend={backend!r}, workers=2) as envs:
            envs.reset(seed=0)
            observations = envs.step([0, 1])[0]
            print([int(observation) for observation in observations])
    """
    assert run(tmp_path, code)[:2] == (0, "[3, 5]\n")


@pytest.mark.parametrize("rules", [Steps, Switches, Grid])
def test_gymnasiums_checker_is_content(rules: Any) -> None:
    """Its warnings are errors here."""
    check_env(agym.vectorize(rules), skip_render_check=True)


@each_engine
@pytest.mark.parametrize("part", ["step", "observe", "info", "reset"])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_after_a_rule_has_raised_all_games_must_be_reset(
    part: str, engine: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some games have stepped and others not."""
    monkeypatch.setattr("agym.rules.engines.SHARE", 2)

    def raising(state: Any, out: Any) -> None:
        out[0] = state.place + 0 * (1 // (state.place - 3))

    def reset(state: Any, rng: Any) -> None:
        state.place += 1

    def reset_once(state: Any, rng: Any) -> None:
        state.place += 1 // (1 - rng.drawn())
        rng.bits()

    def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.place += action
        return 0.0, state.place > 1

    def raising_step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
        state.place += action // (2 - action)
        return 0.0, state.place > 1

    def tell(state: Any, out: Any) -> None:
        out.n = 1 // (state.place - 3)

    parts: dict[str, Any] = {
        "step": raising_step if part == "step" else step,
        "reset": reset_once if part == "reset" else reset, "action_space": spaces.Discrete(4),
    }  # fmt: skip
    if part == "observe":
        parts["observe"] = raising
    if part == "info":
        parts |= {"info": tell, "info_dtype": [("n", int)]}
    envs = make(book(**parts), 6, engine=engine, autoreset_mode=mode)
    envs.reset(seed=0)
    mask = np.array([False, True, False, False, False, False])
    if part == "reset":
        with pytest.raises(ZeroDivisionError):
            envs.reset(options={"reset_mask": mask})
    else:
        with pytest.raises(ZeroDivisionError):
            envs.step([0, 0, 0, 0, 2, 0])
    with pytest.raises(ResetNeeded):
        envs.step(np.zeros(6, int))
    with suppress(ZeroDivisionError):  # what is shown has the game that raised
        envs.reset(options={"reset_mask": mask})
    with pytest.raises(ResetNeeded):
        envs.step(np.zeros(6, int))
    assert envs.reset(seed=0)[0].ravel().tolist() == [1] * 6
    assert envs.step(np.zeros(6, int))[2].tolist() == [False] * 6
    envs.close()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_modes_by_name(mode: AutoresetMode) -> None:
    for name in (mode, mode.value, mode.name.lower()):
        assert make(Steps, autoreset_mode=name).metadata["autoreset_mode"] is mode
