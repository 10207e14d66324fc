from __future__ import annotations

import pytest
from typer.testing import CliRunner

from agym.cli.app import app
from agym.cli.demo import DemoResult, verdict


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
