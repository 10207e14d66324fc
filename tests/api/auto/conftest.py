"""A machine that is the same under any load."""

from __future__ import annotations

from pathlib import Path

import pytest

from agym.core.planning import choosing


@pytest.fixture
def full_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other program keeps a core busy, whatever else runs here; nothing is known yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choosing, "busy_cores", lambda: 0)
