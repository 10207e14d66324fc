from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from typer.testing import CliRunner

from agym.cli import app
from agym.demo import Result, verdict


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_demo_ends_with_a_table_and_a_sentence(env: str) -> None:
    result = CliRunner().invoke(app, ["demo", env, "-n", "3", "--steps", "5", "--workers", "2"])
    assert result.exit_code == 0, result.stderr
    table, sentence = result.stdout.strip().rsplit("\n", 1)
    for word in ("backend", "workers", "steps per second", "speed", "start-up", "1.00 ×"):
        assert word in table
    assert "serial" in table
    assert "process" in table
    assert f'agym.make("{env}", 3, backend=' in sentence
    assert "15/15 steps" in result.stderr


@pytest.mark.parametrize(("serial", "process"), [(10.0, 20.0), (20.0, 10.0)])
def test_verdict_names_the_faster_one(serial: float, process: float) -> None:
    results = [Result("serial", None, 0.1, serial), Result("process", 2, 0.1, process)]
    winner = "process" if process > serial else "serial"
    sentence = verdict("CartPole-v1", 8, results)
    assert sentence.startswith(f"{winner} won, 2.00 times")
    assert f'backend="{winner}")' in sentence


def test_ctrl_c_leaves_nothing_behind() -> None:
    command = ["demo", "CartPole-v1", "-n", "2", "--steps", "1000000", "--workers", "2"]
    code = f"""
import agym.demo
from agym.cli import app
run = agym.demo.run
agym.demo.run = lambda *a: run("process", *a[1:4], 2, a[5])  # the one with workers at once
app({command!r})
"""
    demo = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        workers: list[psutil.Process] = []
        deadline = time.monotonic() + 30
        while len(workers) < 3 and time.monotonic() < deadline:  # two and the resource tracker
            workers = psutil.Process(demo.pid).children()
            time.sleep(0.05)
        assert len(workers) == 3
        time.sleep(0.5)
        os.killpg(demo.pid, signal.SIGINT)
        stdout, stderr = demo.communicate(timeout=30)
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.communicate()
    assert demo.returncode == 130
    assert stdout == ""
    assert stderr.rstrip().endswith("stopped")
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
