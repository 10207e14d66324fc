"""``agym demo``: each part shows what it says, and a slower backend is explained."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from agym.cli import demo
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
    assert f'agym.make("{env}", 3) chooses ' in sentence
    assert "15/15 steps" in result.stderr


@pytest.mark.parametrize(("serial", "process"), [(10.0, 20.0), (20.0, 10.0)])
def test_verdict_names_the_faster_one_and_says_why(serial: float, process: float) -> None:
    results = [
        DemoResult("serial", "serial", None, 0.1, serial),
        DemoResult("process", "process", 2, 0.1, process),
        DemoResult("auto", "twin", None, 0.1, 60.0),
    ]
    sentence = verdict("CartPole-v1", 8, results)
    if process > serial:
        assert sentence.startswith("process is 2.00 times as fast as serial. ")
    else:
        why = "because a step takes only 50000 µs: to hand it to a worker costs more. "
        assert sentence.startswith(f"serial is 2.00 times as fast as process, {why}")
    factor = 60 / serial
    assert sentence.endswith(f"8) chooses twin, which is {factor:.2f} times as fast as serial.")


@pytest.mark.once
def test_the_tour_shows_a_twin_a_kill_and_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MEASURED", 0.1)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    assert "equal, bit for bit" in text
    assert re.search(r"Environments 0 to 3 were back in a new worker after \d+\.\d\d s", text)
    (others,) = re.findall(r"the other 4 environments made ([\d,]+) steps", text)
    assert int(others.replace(",", "")) > 4
    assert re.search(r"If it waits during the step: \d+, \d\.\d times as many", text)


def test_options_of_the_comparison_need_an_environment() -> None:
    result = CliRunner().invoke(app, ["demo", "-n", "4"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "need an environment, as in `agym demo CartPole-v1`" in result.stderr.replace("\n", " ")
