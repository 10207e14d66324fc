"""What twins need that not every installation has."""

from __future__ import annotations

import gymnasium
import pytest


def needs(env_id: str) -> None:
    """Skip a test if the twin of an environment can't be used here."""
    kind = str(gymnasium.spec(env_id).entry_point).split(".")[2]
    if kind == "classic_control":
        pytest.importorskip("numba", reason="the extra `vectorize`")
    elif kind == "mujoco":
        pytest.importorskip("mujoco.batch", reason="the extra `mujoco`, version 4")
