"""``agym rerun`` in a process of its own: deaths, hangs, the debugger, Ctrl-C."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agym.core.engine.faults.capsule import write_capsule
from agym.testing import Script
from tests.support.capsules import (
    a_capsule,
    at_terminal,
    failing,
    read_until,
    rerun,
    rerun_apart,
)
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline, patience

each_kind = pytest.mark.parametrize("on_loop", [False, True], ids=["gymnasium", "coroutine"])


def acting(folder: Path, act: str, on_loop: bool = False, **when: Any) -> Callable[[], Any]:
    """Return a factory of an environment that acts in its third step, the one of the capsule."""
    script = Script(str(folder))
    script.set(0, when.pop("operation", "step"), act, **{"after": 2, **when})
    return script.factories(1, coroutines=on_loop)[0]


# ---------------------------------------------------------------- it dies


class ReadsNothing(Tally):
    """Reads where no memory is, when its action is 9."""

    def step(self, action: Any) -> Any:
        if action == 9:
            ctypes.string_at(0)
        return super().step(action)


@pytest.mark.once
@pytest.mark.parametrize(
    ("act", "on_loop", "code"),
    [
        ("segfault", False, -signal.SIGSEGV), ("kill", False, -signal.SIGKILL),
        ("abort", False, -signal.SIGABRT), ("exit", False, 3), ("kill", True, -signal.SIGKILL),
    ],
)  # fmt: skip
def test_a_death_is_the_same_death(act: str, on_loop: bool, code: int, tmp_path: Path) -> None:
    factory = ReadsNothing if act == "segfault" else acting(tmp_path, act, on_loop)
    path = write_capsule(tmp_path, a_capsule(factory=factory, kind="died", error="died"))
    found, out, err = rerun_apart(path)
    assert found == code
    assert "this process is about to die as the worker did" in err
    assert "died (died)" in out, "the table is out before it dies"
    if act == "segfault":
        assert "test_rerun_process.py" in err.partition("Fatal Python error")[2]


@pytest.mark.full
def test_a_death_in_the_constructor(tmp_path: Path) -> None:
    factory = acting(tmp_path, "exit", operation="make", after=0)
    capsule = a_capsule(factory=factory, kind="died", operation="make")
    assert rerun_apart(write_capsule(tmp_path, capsule))[0] == 3


# ---------------------------------------------------------------- it hangs


class Ignores(Tally):
    """Does not come back when its action is 9, whatever is raised in it."""

    def __init__(self, how: str) -> None:
        super().__init__(length=100)
        self.how = how

    def step(self, action: Any) -> Any:
        mutex = ctypes.create_string_buffer(64)
        if action == 9 and self.how == "gil":
            max(itertools.repeat(0))
        while action == 9:
            try:
                time.sleep(3600) if self.how == "deaf" else None
                ctypes.CDLL(None).pthread_mutex_lock(mutex)
            except BaseException:
                continue
        return super().step(action)


@pytest.mark.once
@pytest.mark.parametrize(
    ("act", "on_loop", "where"),
    [
        ("wait", False, "block"), ("spin", False, "_act"), ("deaf", False, "step"),
        ("foreign", False, "step"), ("spin", True, "_act"), ("wait", True, "wait"),
    ],
)  # fmt: skip
def test_a_hang_is_shown_where_it_hangs(
    act: str, on_loop: bool, where: str, tmp_path: Path
) -> None:
    ignores = act in ("deaf", "foreign")
    factory: Any = partial(Ignores, act) if ignores else acting(tmp_path, act, on_loop)
    capsule = a_capsule(factory=factory, kind="timeout", error="missed its deadline")
    limit = f"{deadline(0.3):.2g}"
    code, out, err = rerun_apart(write_capsule(tmp_path, capsule), "--timeout", limit)
    assert code == 0, err
    assert f"for up to {limit} s" in err
    assert f"in {where}\n" in err
    assert "_raise_hang" not in err
    sentence = f"reproduced: environment 3 hangs in step, for more than {limit} s"
    assert out.splitlines()[-1] == sentence


@pytest.mark.full
def test_a_hang_that_lets_no_python_run_still_shows_its_stack(tmp_path: Path) -> None:
    factory = partial(Ignores, "gil")
    path = write_capsule(tmp_path, a_capsule(factory=factory, kind="timeout", error="missed"))
    code, _, err = rerun_apart(path, "--timeout", f"{deadline(0.3):.2g}")
    assert code == 1
    assert "test_rerun_process.py" in err


def test_a_hang_that_is_none(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0  # this test's own limit
    result = rerun(tmp_path, a_capsule(kind="timeout", error="missed its deadline"))
    assert result.exit_code == 3
    assert "did not fail; the recorded failure is: missed its deadline" in result.stdout
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0


# ---------------------------------------------------------------- the debugger


@pytest.mark.full
@pytest.mark.parametrize("error", ["ValueError: boom", "KeyError: 'x'"])
@each_kind
def test_pdb_stops_where_it_raises(on_loop: bool, error: str, tmp_path: Path) -> None:
    factory = partial(AsyncTally, Raises, "step") if on_loop else failing()
    path = write_capsule(tmp_path, a_capsule(factory=factory, error=error))
    code, out, _ = rerun_apart(path, "--pdb", typed="p ('found', where)\nup\np action + 1\nq\n")
    assert code == (0 if error == "ValueError: boom" else 3)
    assert "('found', 'step')" in out
    assert "(Pdb) 10\n" in out


@pytest.mark.full
@each_kind
def test_pdb_stops_before_it_dies(on_loop: bool, tmp_path: Path) -> None:
    factory = acting(tmp_path, "exit", on_loop, always=True)
    path = write_capsule(
        tmp_path, a_capsule(factory=factory, kind="died", error="exit code 3", actions=[])
    )
    Script(str(tmp_path)).set(0, "step", "exit", always=True)
    code, out, err = rerun_apart(path, "--pdb", typed="p function.args\ns\nc\n")
    assert code == 3
    assert "the next line runs the step that died" in err
    assert "(Pdb) (9,)" in out
    assert on_loop or "def step(self, action" in out
    code, out, _ = rerun_apart(path, "--pdb", typed="q\n")
    assert code == 3
    assert "NOT reproduced: the debugger quit before the step that failed" in out


@pytest.mark.full
@each_kind
def test_pdb_stops_where_it_hangs(on_loop: bool, tmp_path: Path) -> None:
    factory = acting(tmp_path, "wait", on_loop)
    path = write_capsule(tmp_path, a_capsule(factory=factory, kind="timeout", error="late"))
    code, out, _ = rerun_apart(path, "--pdb", "--timeout", f"{deadline(0.3):.2g}", typed="w\nq\n")
    assert code == 0
    assert f"gate.{'wait' if on_loop else 'block'}()" in out.partition("(Pdb)")[2]
    assert "deadline.py" not in out


@pytest.mark.full
def test_pdb_at_a_terminal(tmp_path: Path) -> None:
    path = write_capsule(tmp_path, a_capsule(factory=failing(), error="ValueError: boom"))
    with at_terminal(path, "--pdb") as (process, terminal):
        read_until(terminal, b"(Pdb) ")
        os.write(terminal, b"p where * 3\n")
        read_until(terminal, b"'stepstepstep'")
        os.write(terminal, b"q\n")
        assert process.wait(timeout=patience(6)) == 0


# ---------------------------------------------------------------- it takes long


class Slow(Raises):
    """Takes its time."""

    def step(self, action: Any) -> Any:
        time.sleep(0.05)
        return super().step(action)


@pytest.mark.full
@each_kind
@pytest.mark.parametrize("actions", [60, 2000])
def test_a_long_rerun_shows_how_far_it_is_and_ctrl_c_stops_it(
    actions: int, on_loop: bool, tmp_path: Path
) -> None:
    factory = partial(AsyncTally, Slow, "step") if on_loop else partial(Slow, "step")
    capsule = a_capsule(factory=factory, actions=[1] * actions, error="ValueError: boom")
    with at_terminal(write_capsule(tmp_path, capsule)) as (process, terminal):
        read_until(terminal, f"/{actions}".encode())
        if actions == 60:
            read_until(terminal, b"reproduced: ")
        else:
            process.send_signal(signal.SIGINT)
            assert b"Traceback" not in read_until(terminal, b"stopped")
        assert process.wait(timeout=patience(6)) == (0 if actions == 60 else 130)
