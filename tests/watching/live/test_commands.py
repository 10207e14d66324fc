"""``agym watch`` and ``agym play``, as a whole."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agym.cli.app import app
from tests.support.patience import patience
from tests.support.viewers import looking, started


@pytest.mark.full
def test_watch_with_a_policy(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "async def act(observations):\n    return (observations[:, 2] > 0).astype(int)\n"
    )
    words = ["watch", "CartPole-v1", "-n", "3", "--policy", "agent:act", "--steps", "60"]
    words += ["--speed", "0.1", "--workers", "1"]
    with started(*words, folder=tmp_path) as (url, process), looking(url) as look:
        assert look.next("about")["title"] == "CartPole-v1"
        assert look.next("picture").ids == range(3)
        assert look.next("numbers")["speed"] == 0.1
        look.say("speed", value=None)
        assert process.wait(patience(3)) == 0


@pytest.mark.full
def test_play_until_ctrl_c(tmp_path: Path) -> None:
    words = ["play", "CartPole-v1", "--keys", "ArrowLeft=0 ArrowRight=1", "--wait", "--seed", "0"]
    with started(*words, folder=tmp_path) as (url, process):
        with looking(url) as look:
            assert look.next("about")["legend"] == "←: 0\n→: 1"
            look.next("picture")  # of how it begins: no key was pressed
            assert look.next("numbers")["steps"] == 0
            look.say("keys", down=["ArrowLeft"])
            look.next("numbers", lambda numbers: numbers["dots"])  # it falls to one side
            look.say("keys", down=[])
        process.send_signal(signal.SIGINT)
        assert process.wait(patience(3)) == 130


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, words)


CODES = {"raises": "1 / 0", "syntax": "def (", "exits": "import sys; sys.exit(3)",
         "imports": "import nowhere"}  # fmt: skip


@pytest.mark.parametrize(
    "policy",
    ["agent", "no_such_module:act", "math:no_such", "math:pi", ".:x", ":x",
     *(f"{name}_agent:act" for name in CODES)],
)  # fmt: skip
def test_a_policy_that_cannot_be_loaded_is_one_sentence(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in CODES.items():
        (tmp_path / f"{name}_agent.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    result = invoke("watch", "CartPole-v1", "--policy", policy)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"--policy {policy}")
    assert result.stderr.count("\n") == 1


def test_an_environment_that_is_none() -> None:
    for command in ("watch", "play"):
        assert invoke(command, "NoSuch-v0").exit_code == 2
    assert "--keys" in invoke("play", "Pendulum-v1").stderr
