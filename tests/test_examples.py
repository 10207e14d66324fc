"""Every example runs, and asserts its own result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

# Options that make a run short but whole; an example that is not here is a failure.
SHORT = {
    "quickstart.py": ["--num-envs", "12", "--episodes", "1", "--verbose"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHORT)


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_example(name: str, backend: str) -> None:
    options = [*SHORT[name], "--backend", backend]
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *options],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_quickstart_renders() -> None:
    pytest.importorskip("pygame", reason="rendering CartPole needs pygame: the extra `render`")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py", *SHORT["quickstart.py"], "--render"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
