"""The short way of a step: through how few files and calls it goes."""

from __future__ import annotations

import pytest

import agym
from benchmarks.overhead.calls import LIMITS, calls_of_a_step, files_of

BACKENDS = {"serial": agym.backends.Serial(), "process": agym.backends.Process(workers=2)}


@pytest.mark.once
@pytest.mark.parametrize("name", LIMITS)
def test_a_step_is_short(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a worker goes to sleep before the next step, and has to be woken.
    monkeypatch.setattr("agym.backends.process.backend.WATCH_SECONDS", 1.0)
    calls = calls_of_a_step(BACKENDS[name])
    most_files, most_calls = LIMITS[name]
    assert files_of(calls) <= most_files, calls
    assert len(calls) <= most_calls, calls
