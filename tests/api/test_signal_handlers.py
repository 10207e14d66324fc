"""Calls from a signal handler while a step is under way."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

import agym
from agym.api import waiting
from agym.backends.process.mailbox import Mailbox
from tests.support.backends import FORK
from tests.support.envs.gated_envs import Gates
from tests.support.envs.plain_envs import Tally

STEPS = 60


def play(envs: agym.Envs[Any, Any]) -> list[Any]:
    seen = [envs.reset(seed=3).observations.tolist()]
    for k in range(STEPS):
        result = envs.step([k % 7] * 3)
        seen.append([column.tolist() for column in result[:4]])
    return seen


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_may_ask_while_the_end_of_a_step_is_watched(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes in the step's completions, which must not get lost."""
    options: Any = {"autoreset": "next_step", "output": "array"}
    with agym.make(Tally, 3, backend="serial", **options) as envs:
        expected = play(envs)
    answers: list[Any] = []
    watch = Mailbox.watch
    with agym.make(Tally, 3, backend=FORK, workers=2, **options) as envs:

        def asking(mailbox: Mailbox, end: float) -> bool:
            over = when == "after" and watch(mailbox, end)
            answers.append(envs.get_attr("now"))  # as a handler would, between two bytecodes
            return over if when == "after" else watch(mailbox, end)

        monkeypatch.setattr(Mailbox, "watch", asking)
        assert play(envs) == expected
    assert answers


@pytest.mark.parametrize("backend", ["thread", FORK])
def test_a_sleep_goes_on_after_a_handler_that_slept(
    backend: Any, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers ring for the step that was interrupted, too."""
    monkeypatch.setattr(waiting, "RECHECK_SECONDS", 1e4)  # no second look
    seen: list[Any] = []

    def open_later(*ids: int) -> None:
        threading.Timer(0.05, lambda: [gates.open(i) for i in ids]).start()

    def handler(*_: Any) -> None:
        open_later(2)
        seen.append(envs.step([1], env_ids=[2]).rewards)
        open_later(0, 1)

    with agym.make(gates.factories, backend=backend, workers=3) as envs:
        envs.reset()
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            seen.append(envs.step([1, 1], env_ids=[0, 1]).rewards)
        finally:
            signal.signal(signal.SIGALRM, before)
    assert [len(rewards) for rewards in seen] == [1, 2]
