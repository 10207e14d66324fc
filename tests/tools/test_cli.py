from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from gymnasium.envs.classic_control import CartPoleEnv
from typer.testing import CliRunner

from agym.cli import app


def commands(app: typer.Typer, *words: str) -> Iterator[list[str]]:
    """Every command and group, as words after ``agym``."""
    yield [*words]
    for command in app.registered_commands:
        assert command.callback is not None
        yield [*words, command.name or command.callback.__name__]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        assert group.name is not None
        yield from commands(group.typer_instance, *words, group.name)


COMMANDS = [*commands(app)]
WORDS = {word for command in COMMANDS for word in command}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples_that_name_the_command(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    examples = result.stdout.partition("Examples:")[2]
    assert " ".join(["agym", *command]) in examples


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_options_in_examples_exist(command: list[str]) -> None:
    runner = CliRunner()
    page = runner.invoke(app, [*command, "--help"]).stdout
    for line in page.partition("Examples:")[2].split("\n"):
        words = line.split()
        if words:
            names = [w for w in words[1:3] if w in WORDS]
            shown = runner.invoke(app, [*names, "--help"]).stdout
            for option in re.findall(r"--[a-z-]+", line):
                assert option in shown


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"agym \d+\.\d+\.\d+\S*\n", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["demo", "Nowhere-v0"], "Nowhere-v0"),
        (["bench", "throughput", "CartPole-v1"], "CartPole-v1:8"),
        (["bench", "throughput", "CartPole-v1:0"], "CartPole-v1:0"),
        (["bench", "throughput", "Nowhere-v0:8"], "Nowhere-v0"),
        (["bench", "throughput", "CartPole-v1:8", "--json", "no/such/folder/a.json"], "no/such"),
        (["bench", "io", "--json", "no/such/folder/a.json"], "no/such"),
        (["bench", "overlap", "Nowhere-v0:8"], "Nowhere-v0"),
        (["bench", "overlap", "--json", "no/such/folder/a.json"], "no/such"),
        (["bench", "stragglers", "--json", "no/such/folder/a.json"], "no/such"),
        (["bench", "grid", "Nowhere-v0"], "Nowhere-v0"),
        (["bench", "grid", "--num-envs", "few"], "few"),
        (["bench", "overhead", "--step-times", "0"], "--step-times"),
        (["bench", "scale", "Nowhere-v0"], "Nowhere-v0"),
        (["bench", "startup", "CartPole-v1"], "CartPole-v1:8"),
        (["bench", "memory", "Nowhere-v0:2"], "Nowhere-v0"),
        (["bench", "pool", "--num-envs", "0"], "write 1,8,64"),
        (["bench", "pool", "--plot", "no/such/folder/charts"], "no/such"),
        (["bench", "multienv", "Nowhere-v0"], "Nowhere-v0"),
        (["bench", "all", "--plot", "no/such/folder/charts"], "no/such"),
        (["bench", "soak", "--json", "no/such/folder/a.json"], "no/such"),
    ],
    ids=str,
)
def test_usage_error_is_one_sentence_and_exits_2(arguments: list[str], names: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert names in result.stderr


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
        "import sys, agym.cli;"
        "print(*{'matplotlib', 'stable_baselines3', 'torch', 'ale_py'} & {*sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == ""
