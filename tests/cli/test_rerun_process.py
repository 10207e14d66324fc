"""``agym rerun`` in a process of its own: deaths, hangs, the debugger, Ctrl-C."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agym.core.engine.faults.capsule import write_capsule
from tests.support.capsules import (
    ENVIRONMENT,
    a_capsule,
    at_terminal,
    failing,
    read_until,
    rerun,
    rerun_apart,
)
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.faulty_envs import Exits, Raises
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline, patience

# ---------------------------------------------------------------- it dies


class Dies(Exits):
    """Is killed by a signal when its action is 9."""

    def step(self, action: Any) -> Any:
        if action == 9:
            os.kill(os.getpid(), self._code)
        return super().step(action)


class ReadsNothing(Tally):
    """Reads where no memory is, when its action is 9."""

    def step(self, action: Any) -> Any:
        if action == 9:
            ctypes.string_at(0)
        return super().step(action)


@pytest.mark.once
@pytest.mark.parametrize(
    ("factory", "code"),
    [
        (ReadsNothing, -signal.SIGSEGV),
        (partial(Dies, signal.SIGKILL), -signal.SIGKILL),
        (partial(Dies, signal.SIGABRT), -signal.SIGABRT),
        (partial(Exits, 7), 7),
        (partial(AsyncTally, Dies, signal.SIGKILL), -signal.SIGKILL),
    ],
    ids=["segfault", "kill", "abort", "exit", "coroutine"],
)
def test_a_death_is_the_same_death(factory: Any, code: int, tmp_path: Path) -> None:
    path = write_capsule(tmp_path, a_capsule(factory=factory, kind="died", error="died"))
    found, out, err = rerun_apart(path)
    assert found == code
    assert "this process is about to die as the worker did" in err
    assert "died (died)" in out, "the table is out before it dies"
    if code in (-signal.SIGSEGV, -signal.SIGABRT):
        assert "test_rerun_process.py" in err.partition("Fatal Python error")[2]


def test_a_death_in_the_constructor(tmp_path: Path) -> None:
    capsule = a_capsule(factory=partial(Exits, 7, True), kind="died", operation="make")
    assert rerun_apart(write_capsule(tmp_path, capsule))[0] == 7


# ---------------------------------------------------------------- it hangs


class Hangs(Tally):
    """Does not come back when its action is 9."""

    def __init__(self, how: str) -> None:
        super().__init__(length=100)
        self.how = how

    def step(self, action: Any) -> Any:
        if action == 9:
            self.hang()
        return super().step(action)

    def hang(self) -> None:
        while self.how == "loop":
            pass
        while self.how == "deaf":
            try:
                time.sleep(3600)
            except BaseException:
                continue
        if self.how == "foreign":
            mutex = ctypes.create_string_buffer(64)
            while True:
                ctypes.CDLL(None).pthread_mutex_lock(mutex)
        if self.how == "gil":
            max(itertools.repeat(0))
        time.sleep(3600)


class AsyncHangs(AsyncTally):
    """Waits for ever when its action is 9."""

    async def step(self, action: Any) -> Any:
        if action == 9:
            await self.hang()
        return await super().step(action)

    async def hang(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.once
@pytest.mark.parametrize(
    "factory",
    [
        partial(Hangs, "sleep"), partial(Hangs, "loop"), partial(Hangs, "deaf"),
        partial(Hangs, "foreign"), partial(AsyncTally, Hangs, "sleep"), AsyncHangs,
    ],
    ids=["sleep", "loop", "deaf", "foreign", "blocked-loop", "coroutine"],
)  # fmt: skip
def test_a_hang_is_shown_where_it_hangs(factory: Any, tmp_path: Path) -> None:
    capsule = a_capsule(factory=factory, kind="timeout", error="missed its deadline")
    limit = f"{deadline(0.3):.2g}"
    code, out, err = rerun_apart(write_capsule(tmp_path, capsule), "--timeout", limit)
    assert code == 0, err
    assert f"for up to {limit} s" in err
    assert "in hang" in err
    assert "_raise_hang" not in err
    sentence = f"reproduced: environment 3 hangs in step, for more than {limit} s"
    assert out.splitlines()[-1] == sentence


@pytest.mark.full
def test_a_hang_that_lets_no_python_run_still_shows_its_stack(tmp_path: Path) -> None:
    capsule = a_capsule(factory=partial(Hangs, "gil"), kind="timeout", error="missed its deadline")
    limit = f"{deadline(0.3):.2g}"
    code, _, err = rerun_apart(write_capsule(tmp_path, capsule), "--timeout", limit)
    assert code == 1
    assert "in hang" in err


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
@pytest.mark.parametrize("on_loop", [False, True], ids=["gymnasium", "coroutine"])
def test_pdb_stops_where_it_raises(on_loop: bool, tmp_path: Path) -> None:
    factory = partial(AsyncTally, Raises, "step") if on_loop else failing()
    path = write_capsule(tmp_path, a_capsule(factory=factory, error="ValueError: boom"))
    code, out, _ = rerun_apart(path, "--pdb", typed="p ('found', where)\nup\np action + 1\nq\n")
    assert code == 0
    assert "reproduced: environment 3 raised ValueError: boom in step" in out
    assert "('found', 'step')" in out
    assert "(Pdb) 10\n" in out


def test_pdb_stops_where_another_error_is_raised(tmp_path: Path) -> None:
    path = write_capsule(tmp_path, a_capsule(factory=failing(), error="KeyError: 'x'"))
    code, out, _ = rerun_apart(path, "--pdb", typed="p ('found', where)\nq\n")
    assert code == 3
    assert "('found', 'step')" in out


@pytest.mark.full
@pytest.mark.parametrize("on_loop", [False, True], ids=["gymnasium", "coroutine"])
def test_pdb_stops_before_it_dies(on_loop: bool, tmp_path: Path) -> None:
    factory = partial(AsyncTally, Exits, 7) if on_loop else partial(Exits, 7)
    path = write_capsule(tmp_path, a_capsule(factory=factory, kind="died", error="exit code 7"))
    code, out, err = rerun_apart(path, "--pdb", typed="p function.args\ns\nc\n")
    assert code == 7
    assert "the next line runs the step that died" in err
    assert "(Pdb) (9,)" in out
    assert on_loop or "def step(self, action" in out
    code, out, _ = rerun_apart(path, "--pdb", typed="q\n")
    assert code == 3
    assert "NOT reproduced: the debugger quit before the step that failed" in out


@pytest.mark.full
@pytest.mark.parametrize("factory", [partial(Hangs, "sleep"), AsyncHangs], ids=["sleep", "async"])
def test_pdb_stops_where_it_hangs(factory: Any, tmp_path: Path) -> None:
    path = write_capsule(tmp_path, a_capsule(factory=factory, kind="timeout", error="late"))
    code, out, _ = rerun_apart(path, "--pdb", "--timeout", f"{deadline(0.3):.2g}", typed="w\nq\n")
    assert code == 0
    assert "hang()" in out.partition("(Pdb)")[2]
    assert "deadline.py" not in out


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
def test_a_long_rerun_shows_how_far_it_is(tmp_path: Path) -> None:
    capsule = a_capsule(factory=partial(Slow, "step"), actions=[1] * 60, error="ValueError: boom")
    with at_terminal(write_capsule(tmp_path, capsule)) as (process, terminal):
        read_until(terminal, b"/60")
        read_until(terminal, b"reproduced: ")
        assert process.wait(timeout=patience(6)) == 0


@pytest.mark.full
def test_ctrl_c_stops_it(tmp_path: Path) -> None:
    factory = partial(Slow, "step")
    for made in (factory, partial(AsyncTally, Slow, "step")):
        capsule = a_capsule(factory=made, actions=[1] * 2000, error="ValueError: boom")
        path = write_capsule(tmp_path, capsule)
        code = (
            "import agym.cli.rerun, sys\n"
            "from agym.cli.app import app\n"
            "agym.cli.rerun._Reporter.after_step = lambda *_: print('stepping', flush=True)\n"
            f"app(['rerun', {str(path)!r}])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=ENVIRONMENT,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert "stepping\n" in process.stdout  # reads until there is such a line, or the end
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=patience(6))
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 130, err
        assert err.rstrip().endswith("stopped")
        assert "Traceback" not in err
