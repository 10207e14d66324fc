"""What every test of pages stands on."""

from __future__ import annotations

import pytest

from tests.support.patience import patience


@pytest.fixture(autouse=True)
def nobody_is_hung_up_on_for_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Viewers say nothing while a test waits for something else."""
    monkeypatch.setattr("agym.watching.live.web_app.SILENT_SECONDS", patience(60))
