"""``FaultPolicy.capsule_dir``: an environment that fails leaves a file, from which it fails again.

What is in the file, and which files can be read, is in ``test_capsule.py``.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core.engine.faults.capsule import Capsule, read_capsule
from agym.testing import Script, World
from tests.support.capsules import rerun_apart
from tests.support.patience import deadline
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over, steps_of

pytestmark = pytest.mark.filterwarnings("ignore:worker 0, a thread")

CASES = [
    *((PROCESS, act) for act in ("raise", "exit", "segv", "wait", "raise unpicklable")),
    *((world, act) for world in (COROUTINES, THREAD, ASYNCIO) for act in ("raise", "wait")),
    (COROUTINES, "kill"),
    (SERIAL, "raise"),
]
ERRORS = (agym.EnvError, agym.WorkerDied, agym.StepTimeout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the capsules, which does not exist yet."""
    return tmp_path / "new" / "capsules"


def opened(world: World, script: Script, folder: Path, on_fault: Any, act: str = "") -> Any:
    factories = script.factories(4, coroutines=world.kind == "coroutine", length=5)
    options = {"timeout": deadline(0.4)} if act == "wait" else {}
    policy = agym.FaultPolicy(on_fault, capsule_dir=folder)
    return replace(world, autoreset="next_step").open_envs(factories, on_fault=policy, **options)


def only_capsule(folder: Path) -> tuple[Path, Capsule]:
    (path,) = folder.iterdir()
    return path, read_capsule(path)


@pytest.mark.once
@pytest.mark.parametrize(
    ("operation", "on_fault"), [("step", "raise"), ("step", "replay"), ("reset", "restart")]
)
@pytest.mark.parametrize(("world", "act"), CASES, ids=[f"{world}-{act}" for world, act in CASES])
def test_a_fault_leaves_one_capsule(
    world: World, act: str, operation: str, on_fault: str, script: Script, folder: Path
) -> None:
    with opened(world, script, folder, on_fault, act) as envs:
        envs.reset(seed=3, options={"some": 1})
        for k in range(7):  # beyond the end of an episode
            envs.step([k] * 4)
        script.set(1, operation, act)
        reported = None
        if on_fault == "raise":
            with pytest.raises(ERRORS) as caught:
                envs.step([8] * 4)
            if isinstance(caught.value, agym.EnvError):
                reported = caught.value.capsule
                assert reported in str(caught.value)
        elif operation == "step":
            reported = envs.step([8] * 4).infos[1]["fault"].capsule
        else:
            reported = envs.reset(seed=70, options={"other": 2}).infos[1]["fault"].capsule
        script.open_all()
    path, capsule = only_capsule(folder)
    assert reported in (None, str(path))
    assert reported or (on_fault == "raise" and "raise" not in act)
    kinds = {"raise": "raised", "raise unpicklable": "raised", "wait": "timeout"}
    assert (capsule.fault.env_id, capsule.fault.operation) == (1, operation)
    assert capsule.fault.kind == kinds.get(act, "died")
    assert capsule.missing == ()
    if operation == "step":
        assert [int(action) for action in capsule.actions] == [6]
        assert int(capsule.fault.action) == 8
        assert (capsule.start.seed, capsule.start.options) == (None, {"some": 1})
        assert capsule.start.rng is not None
        assert capsule.complete
    elif "raise" in act:
        assert capsule.start.options in ({"some": 1}, {"other": 2})
    else:
        assert (capsule.start.seed, capsule.start.options) == (71, {"other": 2})


@pytest.mark.parametrize("operation", ["render", "call"])
@pytest.mark.parametrize(
    ("world", "act"), [(PROCESS, "exit"), (PROCESS, "raise"), (ASYNCIO, "raise")]
)
def test_a_fault_of_another_operation_leaves_a_capsule(
    world: World, act: str, operation: str, script: Script, folder: Path
) -> None:
    with opened(world, script, folder, "raise") as envs:
        envs.reset(seed=3)
        envs.step([1] * 4)
        script.set(1, operation, act)
        with pytest.raises(ERRORS):
            envs.render() if operation == "render" else envs.call("add", 1)
    _, capsule = only_capsule(folder)
    assert (capsule.fault.env_id, capsule.fault.operation) == (1, operation)
    assert [int(action) for action in capsule.actions] == [1]
    if operation == "call" and act == "raise":
        assert capsule.arguments == ("add", (1,), {})


@pytest.mark.once
@pytest.mark.parametrize(
    ("world", "act", "operation", "message"),
    [
        (PROCESS, "raise", "step", "ValueError: boom"),
        (PROCESS, "segv", "step", "SIGSEGV"),
        (PROCESS, "exit", "reset", "exit code 3"),
        (COROUTINES, "raise", "step", "ValueError: boom"),
        (SERIAL, "raise", "render", "ValueError: boom"),
    ],
)
def test_the_environment_fails_again_from_its_capsule(
    world: World, act: str, operation: str, message: str, script: Script, folder: Path
) -> None:
    with opened(world, script, folder, "raise") as envs:
        envs.reset(seed=3)
        for k in range(3):
            envs.step([k] * 4)
        script.set(1, operation, act)
        with pytest.raises(ERRORS):
            envs.step([8] * 4) if operation == "step" else getattr(envs, operation)()
    path, _ = only_capsule(folder)
    script.set(1, operation, act, after=3 if operation == "step" else 0)
    code, out, err = rerun_apart(path)
    assert code != 2, out + err
    assert message in out + err or code in (-11, 3)


# A replacement is forked; from Python 3.12 on that warns beside threads, such as pytest-xdist's.
@pytest.mark.filterwarnings("ignore:.* use of fork:DeprecationWarning")
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
@pytest.mark.parametrize("act", ["raise", "exit"])
def test_a_folder_that_cannot_be_written_is_a_warning(
    on_fault: str, act: str, script: Script, folder: Path
) -> None:
    """The fault is reported as without a folder."""
    folder.mkdir(parents=True)
    with opened(PROCESS, script, folder, on_fault) as envs:
        envs.reset(seed=3)
        folder.rmdir()
        folder.write_text("a file")
        script.set(1, "step", act)
        raised = pytest.raises(ERRORS) if on_fault == "raise" else nullcontext()
        result: Any = None
        with raised, pytest.warns(RuntimeWarning, match="of environment 1 cannot be written"):
            result = envs.step([1] * 4)
        assert result is None or result.infos[1]["fault"].capsule == ""
        assert steps_of(envs.step([2, 2], env_ids=[2, 3])) == [[2, 2]] * 2


@over(PROCESS, ASYNCIO, SERIAL)
def test_each_environment_that_fails_leaves_a_capsule(
    world: World, script: Script, folder: Path
) -> None:
    with opened(world, script, folder, "raise") as envs:
        envs.reset(seed=3)
        for i in (0, 1, 3):
            script.set(i, "step", "raise")
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step([1] * 4)
        errors: Any = caught.value.exceptions
    capsules = {error.capsule: error.env_id for error in errors}
    assert {*capsules} == {*map(str, folder.iterdir())}
    assert {path: read_capsule(path).fault.env_id for path in capsules} == capsules
