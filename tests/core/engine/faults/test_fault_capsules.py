"""``FaultPolicy.capsule_dir``: a file for each environment that failed; from it, it fails again."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core.engine.faults.capsule import read_capsule
from tests.support.capsules import rerun_apart
from tests.support.drivers import Setup, each_api, played
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import deadline
from tests.support.scenarios import (
    ASYNCIO,
    COROUTINES,
    PROCESS,
    SERIAL,
    THREAD,
    over,
    trapped,
    wait_for_threads,
)

pytestmark = pytest.mark.filterwarnings("ignore:worker 0, a thread")

CASES = [
    *((PROCESS, what) for what in ("plain", "exit", "segv", "hang", "unpicklable")),
    *((COROUTINES, what) for what in ("plain", "kill", "never")),
    *((THREAD, what) for what in ("plain", "hang")),
    *((ASYNCIO, what) for what in ("plain", "never")),
    (SERIAL, "plain"),
]
each_case = pytest.mark.parametrize(
    ("setup", "what"), CASES, ids=[f"{setup.name}-{what}" for setup, what in CASES]
)
ERRORS = (agym.EnvError, agym.WorkerDied, agym.StepTimeout)


def options(setup: Setup, what: str, folder: Path, on_fault: str) -> dict[str, Any]:
    limit = {"timeout": deadline(0.4)} if what in ("hang", "never") else {}
    policy = agym.FaultPolicy(on_fault, capsule_dir=folder)
    return {**setup.options, "on_fault": policy, "autoreset": "next_step", **limit}


@pytest.mark.once
@pytest.mark.parametrize(
    ("where", "on_fault"), [("step", "raise"), ("step", "replay"), ("reset", "restart")]
)
@each_case
def test_there_is_one_file(
    setup: Setup, what: str, where: str, on_fault: str, traps: Traps, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "capsules"
    with played("sync", trapped(setup, traps), **options(setup, what, folder, on_fault)) as envs:
        envs.reset(seed=3, options={"some": 1})
        for k in range(7):  # over the end of an episode
            envs.step([k] * 4)
        traps.set(1, where, what)
        error, told = None, None
        try:
            result: Any
            if where == "step":
                result = envs.step([8] * 4)
            else:
                result = envs.reset(seed=70, options={"other": 2})
            told = result.infos[1]["fault"].capsule
        except ERRORS as caught:
            error = caught
        traps.release()
    wait_for_threads()
    assert (error is None) == (on_fault != "raise")
    (path,) = folder.iterdir()
    if told is not None:
        assert told == str(path)
    if isinstance(error, agym.EnvError):
        assert error.capsule == str(path)
        assert str(path) in str(error)
    capsule = read_capsule(path)
    kinds = {"plain": "raised", "unpicklable": "raised", "hang": "timeout", "never": "timeout"}
    assert (capsule.fault.env_id, capsule.fault.operation) == (1, where)
    assert capsule.fault.kind == kinds.get(what, "died")
    assert capsule.missing == ()
    if where == "step":
        assert [int(action) for action in capsule.actions] == [6]
        assert int(capsule.fault.action) == 8
        assert (capsule.start.seed, capsule.start.options) == (None, {"some": 1})
        assert capsule.start.rng is not None
        assert capsule.complete
    elif what in ("plain", "unpicklable"):
        assert capsule.start.options in ({"some": 1}, {"other": 2})
    else:
        assert (capsule.start.seed, capsule.start.options) == (71, {"other": 2})


@pytest.mark.parametrize("where", ["render", "call"])
@pytest.mark.parametrize(
    ("setup", "what"), [(PROCESS, "exit"), (PROCESS, "plain"), (ASYNCIO, "plain")]
)
def test_what_is_no_step(setup: Setup, what: str, where: str, traps: Traps, tmp_path: Path) -> None:
    folder = tmp_path / "capsules"
    with played("sync", trapped(setup, traps), **options(setup, what, folder, "raise")) as envs:
        envs.reset(seed=3)
        envs.step([1] * 4)
        traps.set(1, where, what)
        with pytest.raises(ERRORS):
            envs.render() if where == "render" else envs.call("add", 1)
    (path,) = folder.iterdir()
    capsule = read_capsule(path)
    assert (capsule.fault.env_id, capsule.fault.operation) == (1, where)
    assert [int(action) for action in capsule.actions] == [1]
    if where == "call" and what == "plain":
        assert capsule.arguments == ("add", (1,), {})


@pytest.mark.once
@pytest.mark.parametrize(
    ("setup", "what", "where"),
    [
        (PROCESS, "plain", "step"),
        (PROCESS, "segv", "step"),
        (PROCESS, "exit", "reset"),
        (COROUTINES, "plain", "step"),
        (SERIAL, "plain", "render"),
    ],
)
def test_it_fails_again(setup: Setup, what: str, where: str, traps: Traps, tmp_path: Path) -> None:
    folder = tmp_path / "capsules"
    with played("sync", trapped(setup, traps), **options(setup, what, folder, "raise")) as envs:
        envs.reset(seed=3)
        for k in range(3):
            envs.step([k] * 4)
        traps.set(1, where, what)
        with pytest.raises(ERRORS):
            envs.step([8] * 4) if where == "step" else getattr(envs, where)()
    (path,) = folder.iterdir()
    # Of a replay's four steps the last is to go wrong.
    traps.set(1, where, f"3:{what}" if where == "step" else what)
    code, out, err = rerun_apart(path)
    text = out + err
    assert code != 2, text
    if what == "plain":
        assert "ValueError: boom" in text
    else:
        assert {"segv": "SIGSEGV", "exit": "exit code 3"}[what] in text or code in (-11, 3), text


# A replacement is forked; from Python 3.12 on that warns beside threads, such as pytest-xdist's.
@pytest.mark.filterwarnings("ignore:.* use of fork:DeprecationWarning")
@each_api
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
@pytest.mark.parametrize("what", ["plain", "exit"])
def test_a_folder_that_cannot_be_written(
    api: str, on_fault: str, what: str, traps: Traps, tmp_path: Path
) -> None:
    """That is a warning, and takes nothing from what is told of the fault itself."""
    folder = tmp_path / "capsules"
    folder.mkdir()
    with played(api, traps.factories(4), **options(PROCESS, what, folder, on_fault)) as envs:
        envs.reset(seed=3)
        folder.rmdir()
        folder.write_text("a file")
        traps.set(1, "step", what)
        raised = pytest.raises(ERRORS) if on_fault == "raise" else nullcontext()
        result: Any = None
        with raised, pytest.warns(RuntimeWarning, match="of environment 1 cannot be written"):
            result = envs.step([1] * 4)
        if result is not None:
            assert result.infos[1]["fault"].capsule == ""
            assert [int(o[1]) for o in result.observations[2:]] == [1, 1]
        if on_fault == "raise":
            assert envs.step([2, 2], env_ids=[2, 3]).observations[:, 1].tolist() == [2, 2]


@over(PROCESS, ASYNCIO, SERIAL)
def test_each_of_many(setup: Setup, traps: Traps, tmp_path: Path) -> None:
    folder = tmp_path / "capsules"
    with played("sync", trapped(setup, traps), **options(setup, "plain", folder, "raise")) as envs:
        envs.reset(seed=3)
        for i in (0, 1, 3):
            traps.set(i, "step", "plain")
        with pytest.raises(ExceptionGroup) as caught:
            envs.step([1] * 4)
        errors: Any = caught.value.exceptions
        told = sorted(error.capsule for error in errors)
    assert told == sorted(map(str, folder.iterdir()))
    assert sorted(read_capsule(path).fault.env_id for path in told) == [0, 1, 3]
