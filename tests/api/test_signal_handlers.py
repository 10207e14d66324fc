"""Calls from a signal handler while a step is under way."""

from __future__ import annotations

from typing import Any

import pytest

import agym
from agym.backends.process.mailbox import Mailbox
from tests.support.backends import FORK
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
