"""A machine that is the same under any load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agym.api.auto import machine
from agym.planning.typical import extremes


@pytest.fixture
def full_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that compute do not slow each other down, whatever else runs here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine.latest, "machine", None)
    monkeypatch.setattr(machine, "measure_machine", lambda *_: replace(extremes()[0], load=0.0))
