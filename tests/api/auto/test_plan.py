"""``agym.plan`` and ``agym plan``: an environment of the user's is measured in another process."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from typer.testing import CliRunner

import agym
from agym.api import plan as plan_module
from agym.cli.app import app
from agym.core.planning.caching import recall_measured
from agym.core.planning.choice import decide
from tests.support.envs import vector_envs
from tests.support.envs.costly_envs import AsyncCostly, Costly, Recorded
from tests.support.envs.plain_envs import Tally
from tests.support.scripts import run

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_plan_of_an_id() -> None:
    plan = agym.plan("CartPole-v1", 1)
    assert plan.backend == "serial"
    assert plan.profile is not None
    assert plan.profile.name == "CartPole-v1"
    assert {one.backend for one in plan.candidates} == {"serial", "thread", "process", "vector"}
    (vector,) = [one for one in plan.candidates if one.backend == "vector"]
    assert "plays different games with the same seed" in vector.remark
    assert "serial" in str(plan)


@pytest.mark.full
def test_every_place_can_be_tried(tmp_path: Path) -> None:
    factory = partial(Costly, str(tmp_path / "log"), sleeps=0.01)
    plan = agym.plan(factory, 4, verify=True)
    assert plan.backend == "thread"
    assert plan.workers == 4
    assert all(one.measured for one in plan.candidates)
    assert plan.chosen in plan.candidates
    assert plan.why.startswith("thread ×4 took ")
    assert recall_measured(factory, 4) == {one.name: one.measured for one in plan.candidates}
    assert "measured" in str(plan)


@pytest.mark.full
def test_coroutine_environments_are_planned_too(tmp_path: Path) -> None:
    plan = agym.plan(partial(AsyncCostly, str(tmp_path / "log"), 0.01), 8, verify=True)
    assert plan.chosen == decide(plan.candidates)[0]  # by what was measured
    assert {one.backend for one in plan.candidates} == {"asyncio", "process"}
    assert all(one.measured for one in plan.candidates)


def test_what_cannot_be_planned() -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (vector_envs.Tally, {}, "there is no choice"),
        (Tally, {"workers": 0}, "workers"),
        ("NoSuchEnv-v0", {}, "cannot be found"),
        ("CartPole-v1", {"cluster": True}, "use backend='ray'"),
        ("CartPole-v1", {"address": True}, "use backend='ray'"),
        ("CartPole-v1", {"overlap": True}, "use backend='process'"),
    ]
    for env, options, words in cases:
        with pytest.raises((agym.UsageError, agym.UsageTypeError), match=words):
            agym.plan(env, 3, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["predicted", "twin: compiled, equal to the original", "step "]),
        (["--workers", "1"], ["predicted", "is predicted to take", "step "]),
        pytest.param(
            ["--verify", "--workers", "1"], ["measured", " took "], marks=pytest.mark.full
        ),
    ],
)
def test_the_command_shows_a_table(options: list[str], words: list[str]) -> None:
    arguments = ["plan", "CartPole-v1", "2", *options]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert all(word in result.output for word in words)


# ---------------------------------------------------------------- in another process


def test_a_plan_measures_in_another_process_and_another_folder(tmp_path: Path) -> None:
    plan = agym.plan(Recorded, 4)
    assert plan.profile is not None
    assert plan.profile.step > 0
    assert [*Path.cwd().iterdir()] == []
    diary = tmp_path / "diary"
    agym.plan(partial(Recorded, str(diary)), 4)
    done = [line.split() for line in diary.read_text().splitlines()]
    assert {deed for deed, _ in done} == {"made", "reset", "step", "closed"}
    assert str(os.getpid()) not in {pid for _, pid in done}


def read_map() -> None:
    Path("map.txt").read_text()


def test_files_of_the_caller_can_be_read() -> None:
    factory = partial(Recorded, "diary", "reset", read_map)
    with pytest.raises(FileNotFoundError):
        agym.plan(factory, 2)
    Path("map.txt").write_text("a map")
    assert agym.plan(factory, 2).profile is not None


def segfault() -> None:
    faulthandler.disable()  # this death is intended: no traceback is of use
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(7)


def leave_quietly() -> None:
    raise SystemExit(3)


def refuse() -> None:
    raise ValueError("told to fail")


def hang() -> None:
    while True:
        time.sleep(1)


ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "crash": (segfault, r"Recorded ended its process \(SIGSEGV\) while it was"),
    "exit": (leave, r"Recorded ended its process \(exit code 7\) while it was"),
    "SystemExit": (leave_quietly, "SystemExit"),
    "ValueError": (refuse, "told to fail"),
}


@pytest.mark.parametrize("when", ["made", "reset", "step"])
@pytest.mark.parametrize("how", ENDS)
def test_an_environment_that_fails_is_an_error(how: str, when: str) -> None:
    then, words = ENDS[how]
    with pytest.raises((agym.AgymError, ValueError), match=words):
        agym.plan(partial(Recorded, "diary", when, then), 2)


@pytest.mark.full
def test_an_environment_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "PROBE_SECONDS", 1.0)
    for when in ("made", "step"):
        with pytest.raises(agym.UsageError, match="measuring Recorded took more than 1 s"):
            agym.plan(partial(Recorded, "diary", when, hang), 2)


def test_an_environment_that_cannot_be_pickled_is_not_measured() -> None:
    lock = threading.Lock()
    with pytest.raises(agym.UsageError, match=r"pickled: name a backend"):
        agym.plan(lambda: lock and Recorded(), 2)
    assert [*Path.cwd().iterdir()] == []


def test_the_command_tells_of_a_crash() -> None:
    factory = partial(Recorded, "diary", "step", leave)
    gymnasium.register("Ends-v0", entry_point=factory)
    try:
        result = CliRunner().invoke(app, ["plan", "Ends-v0", "2"])
    finally:
        del gymnasium.registry["Ends-v0"]
    assert result.exit_code == 2
    assert "Ends-v0 ended its process" in result.output


SCRIPT = """
    import os, gymnasium, agym

    class Mine(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {{}}

        def step(self, action):
            os._exit(9)

    try:
        {call}
    except agym.UsageError as error:
        print(error)
    print("goes on")
"""


@pytest.mark.once
@pytest.mark.parametrize("call", ["agym.make(Mine, 8).reset()", "agym.plan(Mine, 8)"])
def test_a_script_without_a_guard_goes_on(call: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, SCRIPT.format(call=call))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "goes on"
    assert ("ended its process (exit code 9)" in out) is ("plan" in call)
