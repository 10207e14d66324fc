"""JAX's tests run in a process of their own: where it is loaded, it warns of every later fork."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agym.core._system.extras import installed
from tests.support.patience import patience

ROOT = Path(__file__).parents[3]


@pytest.mark.full
@pytest.mark.skipif(not installed("jax"), reason="the extra `jax`")
def test_the_suite_with_jax() -> None:
    suite = "tests/api/output/jax_suite.py"
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "60", "--timeout-method", "signal"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, suite],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience(11),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b\d+ passed in", done.stdout), done.stdout  # and nothing else
