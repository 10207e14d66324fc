"""What no command can do is refused before any work, in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agym.cli.app import app
from tests.support.patience import patience

MAKERS = ["agym.cli.demo.make", "agym.cli.record.make", "agym.cli.watch.make_async",
          "agym.cli.play.make_async", "agym.cli.plan.plan"]  # fmt: skip


def refused(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> str:
    """What a command says that makes no environments."""

    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("it began to work")

    for name in MAKERS:
        monkeypatch.setattr(name, work)
    result = CliRunner().invoke(app, words, terminal_width=200)
    assert (result.exit_code, result.stdout) == (2, ""), result.exception
    return result.stderr


@pytest.mark.parametrize(
    "line",
    ["demo -n 10000000000", "demo -n 99999999999999999999", "plan CartPole-v1 1000000000000",
     "plan CartPole-v1 --workers 0", "record CartPole-v1 -o a.gif -n 1000001",
     "record CartPole-v1 -o a.gif --seed -1", "record CartPole-v1 -o a.gif --fps 0.0001",
     "record CartPole-v1 -o a.gif --fps inf", "record CartPole-v1 -o a.gif --scale 0",
     "record CartPole-v1 -o a.gif --scale inf", "record CartPole-v1 -o a.gif --every 1000001",
     "watch CartPole-v1 --seed -1", "watch CartPole-v1 -n 1000001", "watch CartPole-v1 --port -1",
     "watch CartPole-v1 --port 65536", "play CartPole-v1 --seed -1"],
)  # fmt: skip
def test_a_number_out_of_bounds(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Invalid value" in refused(monkeypatch, line.split())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("play CartPole-v1 --fps inf", "--fps inf must be a finite number"),
        ("watch CartPole-v1 --speed inf", "--speed inf must be a finite number"),
        ("rerun a.agym --timeout inf", "--timeout inf must be a finite number"),
        ("record CartPole-v1 -o no/such/a.gif", "a folder that does not exist"),
        ("record CartPole-v1 -o folder.mp4", "Is a directory"),
        ("record CartPole-v1 -n2 --single -o each.mp4", "Is a directory"),
        ("record CartPole-v1 -o /proc/a.mp4", "cannot be written"),
        ("trace run.json -o folder.png", "Is a directory"),
        ("trace run.json -o /proc/a.png", "cannot be written"),
        ("trace run.json -o no/such/a.png", "a folder that does not exist"),
        ("trace run.json -o a.jpg", "must end in .png"),
        ("record CartPole-v1 -o closed/a.gif", "cannot be written: Permission denied"),
        ("trace a -o closed/a.png", "cannot be written: Permission denied"),
    ],
)
def test_it_is_one_sentence(
    line: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, *_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for name in ("folder.mp4", "folder.png", "each-1.mp4", "closed"):
        (tmp_path / name).mkdir()
    before = {*tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    if "closed/" in line:
        monkeypatch.setattr(Path, "open", denied)  # root may write anywhere
    said = refused(monkeypatch, line.split())
    assert sentence in said
    assert said.count("\n") == 1
    assert {*tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "options",
    [["--scale", "1000"], ["-n", "2", "--columns", "100000"], ["--single", "--scale", "20"]],
    ids=" ".join,
)
def test_pictures_that_are_too_large(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    result = CliRunner().invoke(app, ["record", "CartPole-v1", "-o", str(path), *options])
    assert result.exit_code == 2
    assert "pixels is too large" in result.stderr
    assert not [*tmp_path.iterdir()]


def test_a_plan_that_fails_says_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("agym.cli.plan.plan", plan)
    result = CliRunner().invoke(app, ["plan", "CartPole-v1"])
    assert result.exit_code == 2
    assert "CartPole-v1 cannot be measured: MemoryError()" in result.stderr


def agym(line: str, out: Any = subprocess.PIPE, **variables: str) -> Any:
    """Run a command as it is run from a shell."""
    mine = {key: value for key, value in os.environ.items() if not key.startswith("SDL_")}
    return subprocess.run(
        [sys.executable, "-m", "agym", *line.split()], env={**mine, **variables},
        stdout=out, stderr=subprocess.PIPE, text=True, timeout=patience(10),
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("line", ["demo CartPole-v1 -n 2 --steps 2 --workers 1", "record --help"])
def test_characters_that_the_terminal_lacks(line: str) -> None:
    done = agym(line, PYTHONIOENCODING="ascii")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert " ? " in done.stdout


@pytest.mark.once
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("line", ["--help", "demo CartPole-v1 -n 2 --steps 2 --workers 1"])
def test_an_output_that_is_full(line: str, buffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = agym(line, full, PYTHONUNBUFFERED=buffered)
    assert done.returncode == 1
    assert done.stderr.endswith("the output cannot be written: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_sdl_looks_for_no_display(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    done = agym(f"record CartPole-v1 -n 2 --steps 3 -o {path}", DISPLAY=":77", XDG_RUNTIME_DIR="")
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert path.exists()
