"""The CUDA engine, on numba's simulator of a device."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import agym
from tests.rules.books import Steps
from tests.support.patience import patience
from tests.support.scripts import ROOT

pytestmark = pytest.mark.xdist_group("compiled")


@pytest.mark.full
def test_games_on_a_device_are_the_same() -> None:
    """The simulator has to be chosen before numba is imported."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.rules.on_device"],
        capture_output=True, text=True, timeout=patience(20), cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3 + 5 + 3


def test_a_device_is_needed() -> None:
    """And where there is one, it is used."""
    cuda: Any = pytest.importorskip("numba.cuda")
    if cuda.is_available():
        envs = agym.vectorize(Steps, 2, engine="cuda")
        assert envs.reset(seed=0)[0].shape == (2,)
        envs.close()
    else:
        with pytest.raises(agym.UsageError, match=r"engine='cuda' needs an NVIDIA GPU.*'compiled'"):
            agym.vectorize(Steps, 2, engine="cuda")
