"""The two ways of a step: through how few files and calls they go."""

from __future__ import annotations

import time

import pytest

from benchmarks.overhead.calls import LIMITS, calls_of_a_step, files_of
from tests.support.patience import patience


@pytest.mark.once
@pytest.mark.parametrize("way", LIMITS)
def test_a_step_is_short(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a worker goes to sleep before the next step and has to be woken, and a late
    # worker makes the caller look whether the cores are crowded. Both take more calls.
    for module in ("process_pool", "process_port"):
        monkeypatch.setattr(f"agym.core.backends.process.{module}.WATCH_SECONDS", 1.0)
    most_files, most_calls = LIMITS[way]
    end = time.monotonic() + patience()
    calls = calls_of_a_step(way)
    while (files_of(calls) > most_files or len(calls) > most_calls) and time.monotonic() < end:
        calls = min(calls, calls_of_a_step(way), key=lambda calls: (files_of(calls), len(calls)))
    assert files_of(calls) <= most_files, calls
    assert len(calls) <= most_calls, calls
