"""A machine that is the same under any load, and a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from agym.core.planning import choosing


@pytest.fixture
def full_cores(empty_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other program keeps a core busy, whatever else runs here; nothing is known yet."""
    monkeypatch.setattr(choosing, "busy_cores", lambda: 0)


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder; nothing is known of any environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
