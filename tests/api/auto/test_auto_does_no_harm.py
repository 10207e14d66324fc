"""``backend="auto"`` and ``agym.plan``: nobody's own environment is run before it is asked for."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from typer.testing import CliRunner

import agym
from agym.api.auto import probing
from agym.cli.app import app
from tests.support.drivers import APIS, opened
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Result, Tally
from tests.support.scripts import run


class Writes(Tally):
    """Writes down what is done to it, and in which process."""

    def __init__(self, path: str = "diary") -> None:
        super().__init__()
        self.path = path
        self.write("made")

    def write(self, deed: str) -> None:
        with Path(self.path).open("a") as file:
            file.write(f"{deed} {os.getpid()}\n")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.write("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Result:
        self.write("step")
        return super().step(action)


class Ends(Tally):
    """Calls a function in its constructor, its reset or its step."""

    def __init__(self, when: str, how: Callable[[], Any]) -> None:
        self.when, self.how = when, how
        self.act("make")
        super().__init__()

    def act(self, operation: str) -> None:
        if self.when == operation:
            self.how()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.act("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Result:
        self.act("step")
        return super().step(action)


def segfault() -> None:
    faulthandler.disable()  # this death is intended: no traceback is of use
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(7)


def leave_quietly() -> None:
    raise SystemExit(3)


def hang() -> None:
    while True:
        time.sleep(1)


def refuse() -> None:
    raise ValueError("told to fail")


def read_map() -> None:
    Path("map.txt").read_text()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any environment, and files go to a folder of the test's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def registered() -> Iterator[str]:
    gymnasium.register("Writes-v0", entry_point=Writes, disable_env_checker=True)
    yield "Writes-v0"
    del gymnasium.registry["Writes-v0"]


def kind_of(kind: str, env_id: str) -> Any:
    """Return what ``agym.make`` takes, of each kind."""
    return {
        "class": Writes,
        "partial": partial(Writes, "diary"),
        "lambda": lambda: Writes(),
        "list": [lambda: Writes()] * 3,
        "id": env_id,
        "spec": gymnasium.spec(env_id),
    }[kind]


def deeds(path: Path | str = "diary") -> list[str]:
    return [line.split()[0] for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize("kind", ["class", "partial", "lambda", "list", "id", "spec"])
@pytest.mark.parametrize("make", [agym.make, agym.make_vec])
def test_only_what_the_caller_gets_is_made(make: Any, kind: str, registered: str) -> None:
    with closing(make(kind_of(kind, registered), 3)) as envs:
        assert deeds() == ["made"] * 3
        envs.reset(seed=0)
        assert deeds() == ["made"] * 3 + ["reset"] * 3


@pytest.mark.parametrize("kind", ["class", "lambda", "id"])
async def test_nothing_is_stepped_beside_an_event_loop(kind: str, registered: str) -> None:
    async with agym.make_async(kind_of(kind, registered), 3):
        assert {*deeds()} == {"made"}
        if kind != "lambda":  # it may make coroutine environments, which only a call of it tells
            assert len(deeds()) == 3


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", [partial(AsyncTally, Writes), lambda: AsyncTally(Writes)])
def test_coroutine_environments_are_made_once(api: str, kind: Any) -> None:
    with opened(api, kind, 3) as envs:
        assert deeds() == ["made"] * 3
        assert envs.backend == "asyncio"


def test_workers_that_are_asked_for_make_them_all() -> None:
    with agym.make(lambda: Writes(), 3, workers=1) as envs:
        pid = envs.stats().workers[0].pid
        assert [line.split() for line in Path("diary").read_text().splitlines()] == [
            ["made", str(pid)]
        ] * 3


# ---------------------------------------------------------------- plans


def test_a_plan_measures_in_another_process_and_another_folder() -> None:
    (Path.cwd() / "data").mkdir()
    plan = agym.plan(Writes, 4)
    assert plan.profile is not None
    assert [path.name for path in Path.cwd().iterdir()] == ["data"]
    assert plan.profile.step > 0


def test_absolute_names_show_where_it_is_measured(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    agym.plan(partial(Writes, str(diary)), 4)
    done = [line.split() for line in diary.read_text().splitlines()]
    assert {deed for deed, _ in done} == {"made", "reset", "step"}
    assert str(os.getpid()) not in {pid for _, pid in done}


def test_files_of_the_caller_can_be_read() -> None:
    factory = partial(Ends, "reset", read_map)
    with pytest.raises(FileNotFoundError):
        agym.plan(factory, 2)
    Path("map.txt").write_text("a map")
    assert agym.plan(factory, 2).profile is not None


@pytest.mark.once
@pytest.mark.parametrize("when", ["make", "reset", "step"])
@pytest.mark.parametrize(("how", "told"), [(segfault, "SIGSEGV"), (leave, "exit code 7")])
def test_one_that_ends_its_process_is_an_error(
    when: str, how: Callable[[], Any], told: str
) -> None:
    with pytest.raises(agym.UsageError, match=rf"Ends ended its process \({told}\) while it was"):
        agym.plan(partial(Ends, when, how), 2)


@pytest.mark.full
@pytest.mark.parametrize("when", ["make", "step"])
def test_one_that_wants_to_leave_does_not_end_the_caller(when: str) -> None:
    with pytest.raises(agym.EnvError, match="SystemExit"):
        agym.plan(partial(Ends, when, leave_quietly), 2)


@pytest.mark.full
def test_one_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_SECONDS", 1.0)
    for when in ("make", "step"):
        with pytest.raises(agym.UsageError, match="making and measuring Ends took more than 1 s"):
            agym.plan(partial(Ends, when, hang), 2)


def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="told to fail"):
        agym.plan(partial(Ends, "step", refuse), 2)


def test_one_that_cannot_be_sent_to_a_process_is_not_measured() -> None:
    lock = threading.Lock()
    with pytest.raises(agym.UsageError, match=r"pickled: name a backend"):
        agym.plan(lambda: lock and Writes(), 2)
    assert [*Path.cwd().iterdir()] == []


def test_the_command_tells_of_a_crash() -> None:
    gymnasium.register("Ends-v0", entry_point=Ends, kwargs={"when": "step", "how": leave})
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
