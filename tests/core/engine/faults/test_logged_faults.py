"""Each fault that is recovered leaves a line in the log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core.engine.faults import fault_log
from agym.testing import World
from tests.support.patience import deadline
from tests.support.scripts import run
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, SERIAL, THREAD, over

Log = pytest.LogCaptureFixture


def logged(caplog: Log) -> list[str]:
    """Return the lines since the last call."""
    assert {(record.name, record.levelno) for record in caplog.records} <= {
        ("agym", logging.WARNING)
    }
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


def fail(envs: Any, env_id: int, act: str = "raise") -> None:
    envs.script.set(env_id, "step", act)
    envs.step([0] * 4)
    envs.script.open_all()
    envs.reset()


@pytest.mark.parametrize(
    ("on_fault", "action"),
    [
        ("restart", "restarting environments 2, 3"),
        ("replay", "restarting environment 2 and replaying environment 3"),
    ],
)
@over(PROCESS, COROUTINES)
def test_a_death_is_logged(world: World, on_fault: str, action: str, caplog: Log) -> None:
    with world.open(4, on_fault=on_fault) as envs:
        envs.reset(seed=1)
        for time in ("1st", "2nd", "3rd"):
            fail(envs, 2, "kill")
            (line,) = logged(caplog)
            death = "Worker 1 died (killed by SIGKILL) while stepping environment 2"
            assert line == f"{death}; {action} ({time} time in 60 s)"


@over(SERIAL, THREAD, PROCESS, COROUTINES, ASYNCIO)
def test_an_exception_is_logged(world: World, caplog: Log) -> None:
    policy = agym.FaultPolicy("restart", retry=2, restart_window=30)
    with world.open(4, on_fault=policy) as envs:
        envs.reset(seed=1)
        for k, time in ((1, "1st"), (2, "2nd")):
            fail(envs, 3)
            (line,) = logged(caplog)
            error = "Environment 3 raised in step: ValueError: boom; restarting environment 3"
            assert line == f"{error} ({time} time in 30 s), retry {k} of 2"


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:worker .*abandoned")
@over(THREAD, PROCESS, COROUTINES, ASYNCIO)
def test_a_missed_deadline_is_logged(world: World, caplog: Log) -> None:
    with world.open(4, timeout=deadline(0.5), on_fault="restart") as envs:
        envs.reset(seed=1)
        fail(envs, 0, "wait")
        (line,) = logged(caplog)
    assert " missed the deadline of step (" in line
    assert "environment 0" in line.partition(";")[0].lower()
    alone = "restarting environment 0" in line
    assert line.startswith("Environment 0" if alone else "Worker 0")
    assert alone or "restarting environments 0, 1" in line


def test_an_error_that_is_raised_is_not_logged(caplog: Log) -> None:
    with PROCESS.open(4) as envs:
        for act, error in (("raise", agym.EnvError), ("kill", agym.WorkerDied)):
            envs.reset()
            with pytest.raises(error):
                fail(envs, 1, act)
        envs.restart()
    assert not logged(caplog)


def test_faults_beyond_a_limit_are_counted(caplog: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_log, "MAX_WARNINGS", 2)
    with SERIAL.open(4, on_fault=agym.FaultPolicy("restart", max_restarts=1000)) as envs:
        envs.reset()
        for _ in range(5):
            fail(envs, 1)
        first, last = logged(caplog)
        assert first.endswith("restarting environment 1 (1st time in 60 s)")
        assert last.endswith("(2nd time in 60 s); further faults in the next 60 s are only counted")
        monkeypatch.setattr(fault_log, "WARNING_SECONDS", 0.0)  # as if a minute had passed
        fail(envs, 1)
        count, latest = logged(caplog)
        assert count == "3 more faults were recovered, without a warning for each"
        assert "(6th time in 60 s)" in latest
        monkeypatch.undo()
        monkeypatch.setattr(fault_log, "MAX_WARNINGS", 1)
        for _ in range(2):
            fail(envs, 1)
        assert not logged(caplog)
    assert logged(caplog) == ["2 more faults were recovered, without a warning for each"]


@pytest.mark.full
def test_python_prints_the_lines_without_any_setting(tmp_path: Path) -> None:
    script = """
        import os, signal
        import agym

        with agym.make("CartPole-v1", 4, backend="process", workers=2, on_fault="restart") as envs:
            envs.reset(seed=0)
            os.kill(envs.stats().workers[1].pid, signal.SIGKILL)
            while envs.stats().workers[1].restarts == 0:
                envs.reset()
    """
    code, out, err = run(tmp_path, script, 10)
    assert (code, out) == (0, "")
    (line,) = err.splitlines()
    assert line.startswith("Worker 1 died (killed by SIGKILL) while ")
    assert "restarting environments 2, 3 (1st time in 60 s)" in line
