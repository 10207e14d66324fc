"""Words in brackets, such as the name of an extra, are printed: none is taken for rich's markup."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Group
from rich.table import Table

import agym
from agym.cli.console import console
from tests.support.scripts import install_command, run

PACKAGE = Path(agym.__file__).parent


def command(folder: Path, line: str, without: str) -> tuple[int, str, str]:
    """Run a command where a package is not installed; what it prints, in one line each."""
    code = f"""
        import sys

        sys.modules[{without!r}] = None  # it is as if it were not there
        from agym.cli.app import app as agym
        from benchmarks.app import app as benchmarks

        program, *words = {line.split()!r}
        {{"agym": agym, "benchmarks": benchmarks}}[program](words)
    """
    code_, out, err = run(folder, code)
    return code_, " ".join(out.split()), " ".join(err.split())


def test_a_table_names_the_extra(tmp_path: Path) -> None:
    code, out, err = command(tmp_path, "benchmarks overlap CartPole-v1:2", "torch")
    assert code == 0, err
    assert f"torch is not installed: {install_command('sb3')}" in out


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "without", "hint"),
    [
        ("agym record CartPole-v1 -o a.mp4 --steps 2", "av", install_command("video")),
        ("benchmarks overlap --json no/folder.json", "torch", "no/folder.json"),
        ("agym trace no[b].json", "matplotlib", "no[b].json"),
    ],
)
def test_an_error_names_the_extra(tmp_path: Path, line: str, without: str, hint: str) -> None:
    code, _, err = command(tmp_path, line, without)
    assert code in (1, 2)
    assert "Traceback" not in err
    assert hint in err


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
