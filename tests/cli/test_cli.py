from __future__ import annotations

import re
import subprocess
import sys

import pytest
import typer
from gymnasium.envs.classic_control import CartPoleEnv
from typer.testing import CliRunner

from agym.cli.app import app
from benchmarks.app import app as benchmarks
from tests.support.patience import patience


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


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"agym \d+\.\d+\.\d+\S*\n", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["throughput", "CartPole-v1"], "CartPole-v1:8"),
        (["throughput", "CartPole-v1:0"], "CartPole-v1:0"),
        (["throughput", "Nowhere-v0:8"], "Nowhere-v0"),
        (["throughput", "CartPole-v1:8", "--json", "no/such/folder/a.json"], "no/such"),
        (["io", "--json", "no/such/folder/a.json"], "no/such"),
        (["overlap", "Nowhere-v0:8"], "Nowhere-v0"),
        (["overlap", "--json", "no/such/folder/a.json"], "no/such"),
        (["stragglers", "--json", "no/such/folder/a.json"], "no/such"),
        (["grid", "Nowhere-v0"], "Nowhere-v0"),
        (["grid", "--num-envs", "few"], "few"),
        (["overhead", "--step-times", "0"], "--step-times"),
        (["scale", "Nowhere-v0"], "Nowhere-v0"),
        (["startup", "CartPole-v1"], "CartPole-v1:8"),
        (["memory", "Nowhere-v0:2"], "Nowhere-v0"),
        (["pool", "--num-envs", "0"], "write 1,8,64"),
        (["pool", "--plot", "no/such/folder/charts"], "no/such"),
        (["multienv", "Nowhere-v0"], "Nowhere-v0"),
        (["all", "--plot", "no/such/folder/charts"], "no/such"),
        (["soak", "--json", "no/such/folder/a.json"], "no/such"),
    ],
    ids=str,
)
def test_usage_error_is_one_sentence_and_exits_2(arguments: list[str], names: str) -> None:
    result = CliRunner().invoke(benchmarks, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
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
    def fail(self: object, action: object) -> None:
        raise RuntimeError("the pole broke")

    monkeypatch.setattr(CartPoleEnv, "step", fail)
    result = CliRunner().invoke(app, ["demo", "CartPole-v1", "-n", "2", "--steps", "1"])
    assert result.exit_code == 1
    for i in range(2):
        assert f"environment {i} raised in step: RuntimeError: the pole broke" in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_option_exits_2() -> None:
    assert CliRunner().invoke(app, ["demo", "--colour", "red"]).exit_code == 2


def test_command_line_loads_no_optional_package() -> None:
    code = (
        "import sys, agym.cli.app;"
        "print(*{'matplotlib', 'stable_baselines3', 'torch', 'ale_py'} & {*sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == ""


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agym", "--version"],
        capture_output=True,
        text=True,
        timeout=patience(5),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d+\.\d+", done.stdout)
