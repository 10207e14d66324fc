"""Sessions of a server: rounds of many are measured, and echoes beside OpenEnv's server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.tiny import run


@pytest.mark.full
def test_sessions_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra `serve`")
    done = run(tmp_path, "serving", "--quick", "--part", "sessions", "--sessions", "8")
    assert "seconds of a round" in done.stdout
    assert "failed steps" in done.stdout
    failed = next(each for each in done.data["targets"] if each["target"] == "failed steps")
    assert failed["measured"] == 0
