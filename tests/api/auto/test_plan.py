"""``agym.plan`` and ``agym plan``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import agym
from agym.cli.app import app
from agym.core.planning.caching import recall_measured
from agym.core.planning.choice import decide
from tests.support.envs import vector_envs
from tests.support.envs.costly_envs import AsyncCostly, Costly
from tests.support.envs.plain_envs import Tally


def test_a_plan_of_an_id() -> None:
    plan = agym.plan("CartPole-v1", 1)
    assert plan.backend == "serial"
    assert plan.profile is not None
    assert plan.profile.name == "CartPole-v1"
    assert {one.backend for one in plan.candidates} == {"serial", "thread", "process", "vector"}
    (vector,) = [one for one in plan.candidates if one.backend == "vector"]
    assert "plays different games with the same seed" in vector.remark
    assert "serial" in str(plan)


def test_environments_are_made_once_and_closed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for make in (0.0, 0.06):
        log.write_text("")
        agym.plan(partial(Costly, str(log), make=make), 4)
        assert [line.split()[0] for line in log.read_text().splitlines()] == ["made", "closed"]


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
    with pytest.raises(agym.UsageError, match="there is no choice"):
        agym.plan(vector_envs.Tally, 3)
    with pytest.raises(agym.UsageError, match="workers"):
        agym.plan(Tally, 3, workers=0)
    with pytest.raises(agym.UsageError, match="cannot be found"):
        agym.plan("NoSuchEnv-v0", 3)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [("cluster", "use backend='ray'"), ("address", "use backend='ray'"),
     ("overlap", "use backend='process'")],
)  # fmt: skip
def test_what_a_plan_does_not_weigh(option: str, remedy: str) -> None:
    with pytest.raises(agym.UsageTypeError, match=remedy):
        agym.plan("CartPole-v1", 3, **{option: True})


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["plan", *words], env={"COLUMNS": "120"})


def test_the_command_shows_a_table() -> None:
    result = run("CartPole-v1", "1")
    assert result.exit_code == 0, result.output
    assert "predicted" in result.output
    assert "serial is predicted to take" in result.output
    assert "step " in result.output


@pytest.mark.full
def test_the_command_can_try_every_place() -> None:
    result = run("CartPole-v1", "2", "--verify", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "measured" in result.output
    assert " took " in result.output


def test_the_command_refuses_what_there_is_not() -> None:
    result = run("NoSuchEnv-v0", "2")
    assert result.exit_code == 2
    assert "cannot be found" in result.output
