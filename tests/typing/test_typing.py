"""What users see under mypy and pyright: ``users/`` holds what they write, their mistakes too.

A line with a mistake carries a ``type: ignore`` that both checkers honour, and both are told to
report one that is not needed: so a mistake that goes unnoticed fails here.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import agym

USERS = Path(__file__).parent / "users"
# Not the project's cache: other options, and agym is seen as an installed package.
MYPY_CACHE = Path(__file__).parents[2] / ".mypy_cache" / "users"

CHECKERS = {
    "mypy": ["mypy", "--strict", "--config-file=", f"--cache-dir={MYPY_CACHE}", "."],
    "pyright": ["pyright", f"--pythonpath={sys.executable}"],
}


@pytest.mark.full
@pytest.mark.timeout(300)  # without a cache mypy reads NumPy and Gymnasium first
@pytest.mark.parametrize("checker", CHECKERS)
def test_users_see_what_is_promised(checker: str) -> None:
    # pyright comes with its package and Node.js with another: it has nothing to look up or fetch.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYRIGHT_")}
    checked = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]],
        cwd=USERS,
        env={**env, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, f"{checker} says:\n{checked.stdout}"


@pytest.mark.parametrize("name", ["Envs", "AsyncEnvs", "EnvHandle", "AsyncEnvHandle", "Rollout"])
def test_types_may_be_named_and_left_out_at_run_time(name: str) -> None:
    kind = getattr(agym, name)
    assert kind[np.ndarray, list[int]].__origin__ is kind
    assert kind[np.ndarray].__origin__ is kind


def test_generic_results_are_plain_tuples() -> None:
    batch = agym.Batch[list[str]]([0], ["a"], [0.0], [False], [False], [{}])
    assert type(batch) is agym.Batch
    assert batch == ([0], ["a"], [0.0], [False], [False], [{}])
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert not hasattr(batch, "__dict__")
