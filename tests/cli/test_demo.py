from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
from typer.testing import CliRunner

from agym.cli.app import app
from agym.cli.demo import DemoResult, verdict
from tests.support.patience import patience


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
    results = [DemoResult("serial", None, 0.1, serial), DemoResult("process", 2, 0.1, process)]
    winner = "process" if process > serial else "serial"
    sentence = verdict("CartPole-v1", 8, results)
    assert sentence.startswith(f"{winner} is 2.00 times as fast")
    assert f'backend="{winner}")' in sentence


STEPPING = """
import agym.cli.demo, rich.progress
from agym.cli.app import app

run, update = agym.cli.demo.run, rich.progress.Progress.update

def tell(self, *args, **kwargs):
    print("stepping", flush=True)
    update(self, *args, **kwargs)

rich.progress.Progress.update = tell
agym.cli.demo.run = lambda *args: run("process", *args[1:4], 2, args[5])  # with workers at once
app(["demo", "CartPole-v1", "-n", "2", "--steps", "1000000"])
"""


@pytest.mark.full
def test_ctrl_c_leaves_nothing_behind() -> None:
    demo = subprocess.Popen(
        [sys.executable, "-c", STEPPING],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "stepping\n"
        workers = psutil.Process(demo.pid).children()
        assert len(workers) >= 2
        os.killpg(demo.pid, signal.SIGINT)
        _, stderr = demo.communicate(timeout=patience(6))
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.communicate()
    assert demo.returncode == 130
    assert stderr.rstrip().endswith("stopped")
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(workers, timeout=patience(3))
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]
