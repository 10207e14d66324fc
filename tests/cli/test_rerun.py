"""``agym rerun``: failures that happen once more, each in its own way."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from typer.testing import CliRunner, Result

import agym
from agym.cli.app import app
from agym.core.engine.faults.capsule import write_capsule
from agym.testing.scripted import Unpicklable
from tests.support.capsules import (
    a_capsule,
    failing,
    rerun,
    rerun_apart,
    with_head,
)
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.faulty_envs import ABRUPT, EXCEPTIONS, Misfit, Raises
from tests.support.envs.plain_envs import Tally
from tests.support.scripts import run

each_kind = pytest.mark.parametrize("on_loop", [False, True], ids=["gymnasium", "coroutine"])


def reproduced(folder: Path, error: str, **changes: Any) -> Result:
    """Rerun a capsule, whose failure happens once more."""
    result = rerun(folder, a_capsule(error=error, **changes))
    assert result.exit_code == 0, result.output
    return result


# ---------------------------------------------------------------- it raises


@pytest.mark.parametrize(
    "exception",
    ["plain", "many-arguments", "stop-iteration", "timeout", "system-exit", "keyboard-interrupt"],
)
@each_kind
def test_a_step_that_raises(exception: str, on_loop: bool, tmp_path: Path) -> None:
    raised = {**EXCEPTIONS, **ABRUPT}[exception]()
    error = f"{type(raised).__name__}: {raised}"
    if exception == "stop-iteration" and on_loop:
        error = "RuntimeError: coroutine raised StopIteration"
    factory = failing("step", exception)
    if on_loop:
        factory = partial(AsyncTally, Raises, "step", exception)
    result = reproduced(tmp_path, error, factory=factory)
    assert result.stdout.splitlines()[-1] == f"reproduced: environment 3 raised {error} in step"
    assert "Traceback" in result.stderr
    assert "in _maybe" in result.stderr
    if not error.startswith("RuntimeError"):  # Python's own, about an exception of its own
        assert "rerun.py" not in result.stderr, "the traceback begins in the environment"


@pytest.mark.parametrize("where", ["make", "reset", "render", "close"])
def test_other_operations_that_raise(where: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"operation": where, "actions": [], "action": None}
    result = reproduced(tmp_path, "ValueError: boom", factory=failing(where), **changes)
    assert f"reproduced: environment 3 raised ValueError: boom in {where}" in result.stdout


@pytest.mark.parametrize(
    ("operation", "arguments", "error"),
    [
        ("call", ("add", ("x",), {"b": 2}), "TypeError: unsupported operand"),
        ("get_attr", ("unwrapped.nothing.there",), ""),
        ("set_attr", ("observation_space.shape", "x"), "AttributeError: no"),
    ],
    ids=["call", "get_attr", "set_attr"],
)
def test_questions_that_fail(operation: str, arguments: Any, error: str, tmp_path: Path) -> None:
    capsule = a_capsule(operation=operation, arguments=arguments, error=error, action=None)
    assert rerun(tmp_path, capsule).exit_code == (0 if error else 3)


@pytest.mark.parametrize("wrong", ["shape", "dtype", "type", "reward", "four", "info"])
def test_what_does_not_fit_its_space(wrong: str, tmp_path: Path) -> None:
    """The error is the one that agym raises of such a step."""
    factory = partial(Misfit, wrong)
    with agym.make(factory, 1, backend="serial") as envs:
        envs.reset()
        with pytest.raises(agym.EnvError) as raised:
            envs.step([9])
    cause = raised.value.__cause__
    error = f"{type(cause).__name__}: {cause}"
    assert f"raised {error} in step" in reproduced(tmp_path, error, factory=factory).stdout


# ---------------------------------------------------------------- it comes to the same place


class Draws(Tally):
    """Raises what it drew at its last reset, and all that it was given since."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        self.given: list[Any] = [info["draw"], self.length]
        return observation, info

    def step(self, action: Any) -> Any:
        self.given.append(action)
        if action == 9:
            raise ValueError(str(self.given))
        return super().step(action)


@pytest.mark.parametrize("seeded", [True, False])
def test_the_start_of_the_episode_and_its_actions_come_first(seeded: bool, tmp_path: Path) -> None:
    """A reset without a seed goes on with the random numbers of the time."""
    env, start = Draws(), {"seed": 11, "options": {"length": 77}}
    if not seeded:
        env.reset(seed=5)
        env.reset()
        start = {"seed": None, "rng": env.unwrapped.np_random.bit_generator.state}
    env.reset(seed=start["seed"], options=start.get("options"))
    result = reproduced(tmp_path, "ValueError: ", factory=Draws, actions=[4, 2], **start)
    assert f"{[*env.given, 4, 2, 9]}" in result.stdout


class Resets(Tally):
    """Its second reset raises."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.episode:
            raise ValueError(f"reset with {seed}, {options}")
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize(
    ("mode", "operation", "actions", "action"),
    [
        ("next_step", "reset", [1, 1, 1], None),
        ("next_step", "step", [1, 1, 1], 5),
        ("same_step", "reset", [1, 1, 1], None),
        ("same_step", "reset", [1, 1], 1),
        ("same_step", "step", [1, 1], 1),
    ],
)
@each_kind
def test_a_reset_at_the_end_of_an_episode(
    mode: str, operation: str, actions: list[int], action: Any, on_loop: bool, tmp_path: Path
) -> None:
    result = reproduced(
        tmp_path, "ValueError: reset", factory=partial(AsyncTally, Resets) if on_loop else Resets,
        autoreset=mode, actions=actions, operation=operation, action=action, options={"length": 3},
    )  # fmt: skip
    assert "raised ValueError: reset with None, {'length': 3} in reset" in result.stdout


def test_a_finished_environment_holds_still(tmp_path: Path) -> None:
    factory = partial(Raises, "step", length=2)
    capsule = a_capsule(factory=factory, autoreset="disabled", actions=[1, 1, 1])
    assert rerun(tmp_path, capsule).exit_code == 3


def test_environments_of_gymnasiums_own(tmp_path: Path) -> None:
    factory = partial(gymnasium.make, gymnasium.spec("CartPole-v1"), disable_env_checker=True)
    error = "AssertionError: 9 (int) invalid"
    result = reproduced(tmp_path, error, factory=factory, actions=[0, 1])
    assert "gymnasium.make('CartPole-v1', disable_env_checker=True)" in result.stdout


class OnLoop(AsyncTally):
    """Needs a running loop from its constructor on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        super().__init__(Raises, "step")


class OwnLoop(Raises):
    """Runs a loop of its own in every step."""

    def step(self, action: Any) -> Any:
        asyncio.run(asyncio.sleep(0))
        return super().step(action)


LAMBDAS = [lambda: OnLoop(), lambda: AsyncTally(Raises, "step")]


@pytest.mark.parametrize("factory", [OnLoop, *LAMBDAS, partial(OwnLoop, "step")])
def test_each_kind_gets_the_loop_it_needs(factory: Any, tmp_path: Path) -> None:
    reproduced(tmp_path, "ValueError: boom", factory=factory)


# ---------------------------------------------------------------- it does not


@pytest.mark.once
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"factory": Tally}, "did not fail; the recorded failure is: ValueError: boom in step"),
        ({"error": "KeyError: 'x'"}, "raised ValueError: boom in step; the recorded"),
        ({"actions": [1, 9]}, "raised ValueError: boom in step, after 1 of 2 actions"),
        ({"operation": "idle", "kind": "died"}, "did not fail"),
        ({"kind": "died", "error": "killed by SIGKILL"}, "raised ValueError: boom in step; the "),
    ],
    ids=["fine", "other-error", "earlier", "idle", "raised-instead"],
)
def test_what_is_not_reproduced(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = write_capsule(tmp_path, a_capsule(**{"factory": failing(), **change}))
    code, out, err = rerun_apart(path)
    assert code == 3
    assert f"NOT reproduced: environment 3 {sentence}" in out
    assert "The recorded failure:\n\nTraceback ..." in err


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        (
            {"factory": Tally, "actions": [], "complete": False},
            ["lacks the start of the episode", "cannot be reproduced exactly"],
        ),
        (
            {"factory": failing(), "action": Unpicklable("no")},
            ["the capsule lacks action (can't be pickled"],
        ),
    ],
    ids=["start", "action"],
)
def test_what_a_capsule_lacks_is_said(
    changes: dict[str, Any], sentences: list[str], tmp_path: Path
) -> None:
    result = rerun(tmp_path, a_capsule(**changes))
    assert result.exit_code == 3
    assert all(sentence in result.stderr for sentence in sentences)


def test_other_versions_are_told(tmp_path: Path) -> None:
    path = write_capsule(tmp_path, a_capsule(factory=failing(), error="ValueError: boom"))
    with_head(path, versions={"gymnasium": "0.9", "python": "3.1.0"})
    result = CliRunner().invoke(app, ["rerun", str(path)])
    assert result.exit_code == 0
    assert "it was written with gymnasium 0.9, but " in result.stderr
    assert "it was written with python 3.1.0, but " in result.stderr


def test_a_factory_that_is_not_there_is_shown_and_refused(tmp_path: Path) -> None:
    result = rerun(tmp_path, a_capsule(factory=partial(Tally, sys.stdout)))
    assert result.exit_code == 2
    assert "tests.support.envs.plain_envs.Tally(" in result.stdout
    assert "ValueError: boom in step" in result.stdout
    assert "cannot be rerun: factory (can't be pickled" in result.stderr
    assert "Traceback" not in result.stderr


def test_another_file_is_one_sentence_and_exits_2(tmp_path: Path) -> None:
    (tmp_path / "file.agym").write_bytes(b"garbage")
    result = CliRunner().invoke(app, ["rerun", str(tmp_path / "file.agym")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1


def test_help_warns_and_tells_the_exit_codes() -> None:
    page = CliRunner().invoke(app, ["rerun", "--help"]).stdout
    assert "Only open capsules you trust" in page
    assert "3: not reproduced" in page


SCRIPT = """
    import beside
    from agym.core.engine.faults.capsule import write_capsule
    from tests.support.capsules import a_capsule
    from tests.support.envs.plain_envs import Tally

    class Own(Tally):
        def step(self, action):
            if action == LIMIT:
                raise Broken(f"{self.length} {beside.WORD}")
            return super().step(action)

    class Broken(Exception):
        pass

    LIMIT = 9
    capsule = a_capsule(factory=lambda: Own(length=5), error="Broken: 5 words")
    print(write_capsule("faults", capsule))
"""


@pytest.mark.full
def test_an_environment_of_a_scripts_own(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'words'")
    code, out, err = run(tmp_path, SCRIPT)
    assert (code, err) == (0, "")
    code, shown, err = rerun_apart(tmp_path / out.strip(), folder=Path("/"))
    assert code == 0, err
    assert "reproduced: environment 3 raised Broken: 5 words in step" in shown
    assert 'raise Broken(f"{self.length} {beside.WORD}")' in err, "its source is shown"
