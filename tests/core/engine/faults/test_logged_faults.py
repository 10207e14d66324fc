"""Each fault that is recovered leaves a line in the log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core.engine.faults import fault_log
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
)
from tests.support.scripts import run


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    for record in caplog.records:
        assert (record.name, record.levelno) == ("agym", logging.WARNING)
    return [record.getMessage() for record in caplog.records]


@each_api
@pytest.mark.parametrize(
    ("on_fault", "does"),
    [
        ("restart", "restarting environments 2, 3"),
        ("replay", "restarting environment 2 and replaying environment 3"),
    ],
)
@over(PROCESS, COROUTINES)
def test_a_worker_dies(
    setup: Setup, on_fault: Any, does: str, api: str, traps: Traps, caplog: Any
) -> None:
    with played(api, trapped(setup, traps), on_fault=on_fault, **setup.options) as envs:
        envs.reset(seed=1)
        for time in ("1st", "2nd", "3rd"):
            traps.set(2, "step", "kill")
            envs.step([0] * 4)
            envs.reset()
            (line,) = logged(caplog)
            assert line == (
                "Worker 1 died (killed by SIGKILL) while stepping environment 2;"
                f" {does} ({time} time in 60 s)"
            )
            caplog.clear()


@each_api
@over(SERIAL, THREAD, PROCESS, COROUTINES, ASYNCIO)
def test_an_environment_raises(setup: Setup, api: str, traps: Traps, caplog: Any) -> None:
    policy = agym.FaultPolicy("restart", retry=2, restart_window=30)
    with played(api, trapped(setup, traps), on_fault=policy, **setup.options) as envs:
        envs.reset(seed=1)
        for k in (1, 2):
            traps.set(3, "step", "plain")
            envs.step([0] * 4)
            envs.reset()
            assert len(logged(caplog)) == k
    first, second = logged(caplog)
    told = "Environment 3 raised in step: ValueError: boom; restarting environment 3"
    assert first == f"{told} (1st time in 30 s), retry 1 of 2"
    assert second == f"{told} (2nd time in 30 s), retry 2 of 2"


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:worker .*abandoned")
@over(THREAD, PROCESS, COROUTINES, ASYNCIO)
def test_an_environment_hangs(setup: Setup, traps: Traps, caplog: Any) -> None:
    limit = {"timeout": deadline(0.5), "on_fault": "restart"}
    with played("sync", trapped(setup, traps), **limit, **setup.options) as envs:
        envs.reset(seed=1)
        traps.set(0, "step", "hang")
        envs.step([0] * 4)
        traps.release()
        (line,) = logged(caplog)
        assert " missed the deadline of step (" in line
        assert "environment 0" in line.partition(";")[0].lower()
        assert "restarting environment" in line
        assert line.startswith("Worker 0" if "restarting environments 0, 1" in line else "Env")


@over(SERIAL, PROCESS)
def test_what_is_raised_is_not_logged(setup: Setup, traps: Traps, caplog: Any) -> None:
    with played("sync", trapped(setup, traps), **setup.options) as envs:
        envs.reset()
        traps.set(1, "step", "plain")
        with pytest.raises(agym.EnvError):
            envs.step([0] * 4)
        if setup is PROCESS:
            traps.set(1, "step", "kill")
            envs.reset()
            with pytest.raises(agym.WorkerDied):
                envs.step([0] * 4)
            envs.restart()
    assert not logged(caplog)


def test_many_are_counted(traps: Traps, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_log, "MAX_WARNINGS", 2)
    policy = agym.FaultPolicy("restart", max_restarts=1000)

    def fail(envs: Any, times: int) -> None:
        for _ in range(times):
            traps.set(1, "step", "plain")
            envs.step([0] * 4)
            envs.reset()

    with played("sync", traps.factories(4), on_fault=policy, backend="serial") as envs:
        envs.reset()
        fail(envs, 5)
        first, last = logged(caplog)
        assert first.endswith("restarting environment 1 (1st time in 60 s)")
        assert last.endswith("(2nd time in 60 s); further faults in the next 60 s are only counted")
        monkeypatch.setattr(fault_log, "WARNING_SECONDS", 0.0)  # as if a minute had passed
        fail(envs, 1)
        *_, count, latest = logged(caplog)
        assert count == "3 more faults were recovered, without a warning for each"
        assert "(6th time in 60 s)" in latest
        monkeypatch.undo()
        monkeypatch.setattr(fault_log, "MAX_WARNINGS", 1)
        caplog.clear()
        fail(envs, 2)
        assert not logged(caplog)
    assert logged(caplog) == ["2 more faults were recovered, without a warning for each"]


def test_it_is_seen_without_any_setting(tmp_path: Path) -> None:
    """Python itself prints warnings where logging is not set up."""
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
