"""The two ways of a step: through how few files and calls they go."""

from __future__ import annotations

import pytest

from benchmarks.overhead.calls import LIMITS, calls_of_a_step, files_of


@pytest.mark.once
@pytest.mark.parametrize("way", LIMITS)
def test_a_step_is_short(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a worker goes to sleep before the next step and has to be woken, and a late
    # worker makes the caller look whether the cores are crowded. Both take more calls.
    monkeypatch.setattr("agym.core.backends.process.process_pool.WATCH_SECONDS", 1.0)
    calls = min(
        (calls_of_a_step(way) for _ in range(5)), key=lambda calls: (files_of(calls), len(calls))
    )
    most_files, most_calls = LIMITS[way]
    assert files_of(calls) <= most_files, calls
    assert len(calls) <= most_calls, calls
