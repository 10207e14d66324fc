"""The curves of this machine: a table and a picture of what is measured elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from agym.planning.typical import typical
from benchmarks.overhead.machine import save_curves, show_machine
from tests.benchmarks.tiny import PNG, run


def test_each_curve_has_a_table() -> None:
    console = Console(width=120, record=True)
    console.print(show_machine(typical(4)))
    text = console.export_text()
    for title in ("1 worker process:", "2 worker processes:", "4 worker processes:"):
        assert title in text
    assert "3.31 (2.82)" in text  # four times 6 ms in 7.26 ms, or in 8.52 ms
    assert "These are a typical machine's costs, for 4 cores." in text


@pytest.mark.parametrize("cores", [1, 4])
def test_curves_are_drawn(cores: int, tmp_path: Path, fonts: None) -> None:
    save_curves(typical(cores), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(PNG)


@pytest.mark.full
def test_command_measures_this_machine(tmp_path: Path, fonts: None) -> None:
    done = run(tmp_path, "machine", plot="machine.png")
    assert "The costs were measured on this machine" in done.stdout
    curve = done.data["costs"]["curves"]["1"]
    assert len(curve["work"]) == len(curve["usual"]) == len(curve["worst"])
    assert (tmp_path / "machine.png").read_bytes().startswith(PNG)
