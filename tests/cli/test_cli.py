from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from gymnasium.envs.classic_control import CartPoleEnv
from rich.console import Group
from rich.table import Table
from typer.testing import CliRunner

import agym
from agym.cli.app import app
from agym.cli.console import console
from benchmarks.app import app as benchmarks
from tests.support.patience import patience

PACKAGE = Path(agym.__file__).parent


def commands(app: typer.Typer, *words: str) -> list[tuple[typer.Typer, list[str]]]:
    """Every command of an app, as words on the command line."""
    found = [[*words]]
    for command in app.registered_commands:
        assert command.callback is not None
        found.append([*words, command.name or command.callback.__name__])
    return [(app, words) for words in found]


COMMANDS = [*commands(app, "agym"), *commands(benchmarks, "python", "-m", "benchmarks")]
each_command = pytest.mark.parametrize(
    ("app", "words"), COMMANDS, ids=[" ".join(words) for _, words in COMMANDS]
)


def arguments_of(words: list[str]) -> list[str]:
    """What follows the program's name."""
    return words[1:] if words[0] == "agym" else words[3:]


@each_command
def test_help_has_examples_that_name_the_command(app: typer.Typer, words: list[str]) -> None:
    result = CliRunner().invoke(app, [*arguments_of(words), "--help"])
    assert result.exit_code == 0
    examples = result.stdout.partition("Examples:")[2]
    assert " ".join(words) in examples


@each_command
def test_options_in_examples_exist(app: typer.Typer, words: list[str]) -> None:
    runner = CliRunner()
    page = runner.invoke(app, [*arguments_of(words), "--help"]).stdout
    names = {name for other, found in COMMANDS if other is app for name in arguments_of(found)}
    for line in page.partition("Examples:")[2].split("\n"):
        if line.strip():
            command = [word for word in arguments_of(line.split())[:1] if word in names]
            shown = runner.invoke(app, [*command, "--help"]).stdout
            for option in re.findall(r"--[a-z-]+", line):
                assert option in shown


def test_it_runs_as_a_module_and_tells_its_version() -> None:
    command = [sys.executable, "-m", "agym", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(5))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"agym \d+\.\d+\.\d+\S*\n", done.stdout)


FOLDER = "no/such/folder/a.json"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("throughput CartPole-v1", "CartPole-v1:8"), ("throughput CartPole-v1:0", "CartPole-v1:0"),
        ("throughput CartPole-v1:-1", "CartPole-v1:8"),
        ("throughput rollout:CartPole-v1", "CartPole-v1:8"), ("account Nowhere-v0 4", "Nowhere-v0"),
        ("throughput Nowhere-v0:8", "Nowhere-v0"), ("overlap Nowhere-v0:8", "Nowhere-v0"),
        ("grid Nowhere-v0", "Nowhere-v0"), ("scale Nowhere-v0", "Nowhere-v0"),
        ("memory Nowhere-v0:2", "Nowhere-v0"), ("multienv Nowhere-v0", "Nowhere-v0"),
        ("startup CartPole-v1", "CartPole-v1:8"), ("grid --num-envs few", "few"),
        ("pool --num-envs 0", "write 1,8,64"), ("grid --num-envs 8;9", "write 1,8,64"),
        *((f"overhead --step-times {time}", "write 1,10,100") for time in ("0", "nan")),
        ("pong CartPole-v1", "agym/PongRally-v0"), ("vectorize CartPole-v1:2", "rule book"),
        ("branching --env Nothing-v0", "CartPole-v1"),
        (f"throughput CartPole-v1:8 --json {FOLDER}", "no/such"),
        *((f"{name} --json {FOLDER}", "no/such") for name in ("io", "overlap", "soak")),
        *((f"{name} --plot no/such/folder/charts", "no/such") for name in ("pool", "all")),
    ],
)  # fmt: skip
def test_usage_error_is_one_sentence_and_exits_2(line: str, names: str) -> None:
    result = CliRunner().invoke(benchmarks, line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert names in result.stderr


def test_a_misspelt_environment_is_one_sentence() -> None:
    result = CliRunner().invoke(app, ["demo", "Nowhere-v0"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "Nowhere-v0" in result.stderr


def test_env_that_cannot_be_made_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium.envs.classic_control.cartpole", None)
    result = CliRunner().invoke(app, ["demo", "CartPole-v1", "-n", "2", "--steps", "1"])
    assert result.exit_code == 1
    assert "environment 0 raised in make" in result.stderr
    assert "Traceback" not in result.stderr


def test_envs_that_raise_are_a_sentence_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPoleEnv, "step", lambda *_: 1 // 0)
    result = CliRunner().invoke(app, ["demo", "CartPole-v1", "-n", "2", "--steps", "1"])
    assert result.exit_code == 1
    for i in range(2):
        assert f"environment {i} raised in step: ZeroDivisionError: " in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_option_exits_2() -> None:
    assert CliRunner().invoke(app, ["demo", "--colour", "red"]).exit_code == 2


def test_titles_cells_and_captions() -> None:
    table = Table("[a] name", title="[b] title", caption="[c] caption")
    table.add_row("cell [d]")
    output: Any = io.StringIO()
    console(file=output, width=80).print(Group(table, "text [e]"))
    assert all(f"[{letter}]" in output.getvalue() for letter in "abcde")


def test_all_is_printed_by_such_a_console() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.name != "console.py":
            text = path.read_text()
            assert "Console(" not in text, path
            assert "TextColumn(" not in text, path
