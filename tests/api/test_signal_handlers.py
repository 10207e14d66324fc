"""Calls from a signal handler while a step is under way."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

import agym
from agym.api import waiting
from agym.testing import Script
from tests.support.backends import FORK


@pytest.mark.once
@pytest.mark.parametrize("backend", ["thread", FORK])
def test_a_sleep_goes_on_after_a_handler_that_slept(
    backend: Any, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers ring for the step that was interrupted, too."""
    monkeypatch.setattr(waiting, "RECHECK_SECONDS", 1e4)  # no second look
    seen: list[Any] = []

    def open_later(*ids: int) -> None:
        threading.Timer(0.05, lambda: [script.open(i) for i in ids]).start()

    def handler(*_: Any) -> None:
        open_later(2)
        seen.append(envs.step([1], env_ids=[2]).rewards)
        open_later(0, 1)

    with agym.make(script.factories(3), backend=backend, workers=3) as envs:
        envs.reset()
        for i in range(3):
            script.set(i, "step", "wait")
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            seen.append(envs.step([1, 1], env_ids=[0, 1]).rewards)
        finally:
            signal.signal(signal.SIGALRM, before)
    assert [len(rewards) for rewards in seen] == [1, 2]
