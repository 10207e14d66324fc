"""Hedged steps: what is late is asked a second time, and the first answer counts."""

from __future__ import annotations

import asyncio
import random
from typing import Any, ClassVar

import pytest

import agym
from agym.hosts.fleet.hedging import Hedge
from tests.support.backends import FORK
from tests.support.envs.plain_envs import Tally
from tests.support.patience import deadline, patience

BACKENDS = [
    pytest.param({"backend": "asyncio"}, id="asyncio"),
    pytest.param({"backend": FORK, "workers": 2}, id="process"),
]
everywhere = pytest.mark.parametrize("options", BACKENDS)


class Asked:
    """Counts how often it is asked; what becomes of a call is told by the action: a list of what
    each call does, the first of the step first.
    """

    idempotent = True

    def __init__(self) -> None:
        self.calls = 0
        self.cancelled = 0
        self.late: list[asyncio.Event] = []

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.calls = 0
        return 0, {}

    async def step(self, action: list[str]) -> Any:
        self.calls += 1
        number = self.calls
        what = action[min(number, len(action)) - 1]
        try:
            if what == "hang":
                await asyncio.Event().wait()
            if what == "raise":
                raise ValueError(f"boom {number}")
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if what == "stubborn":  # goes on when it is cancelled
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
            return "late", 0.0, False, False, {}
        self.calls = 0
        return f"{what} {number}", 1.0, False, False, {}

    async def close(self) -> None:
        pass


def one(options: dict[str, Any], hedge: float = 0.001, **more: Any) -> Any:
    return agym.make(
        Asked, 1, fleet=agym.Fleet(hedge=hedge), **{**options, "workers": None}, **more
    )


@everywhere
@pytest.mark.parametrize("hedge", [0, 0.001])
def test_the_second_call_answers_for_the_first(options: dict[str, Any], hedge: float) -> None:
    with one(options, hedge) as envs:
        envs.reset()
        for _ in range(3):
            assert envs.step([["hang", "second"]]).observations == ["second 2"]
        assert envs.get_attr("cancelled") == [3]
        counts = envs.stats().fleet
    assert (counts.hedged, counts.hedges_won) == (3, 3)


@everywhere
def test_a_call_that_ignores_its_cancellation_changes_no_later_result(
    options: dict[str, Any],
) -> None:
    with one(options) as envs:
        envs.reset()
        for k in range(5):
            assert envs.step([["stubborn", f"answer{k}"]]).observations == [f"answer{k} 2"]
        assert envs.step([["plain"]]).observations == ["plain 1"]


@everywhere
def test_an_answer_beats_an_error(options: dict[str, Any]) -> None:
    with one(options, 0) as envs:
        envs.reset()
        assert envs.step([["raise", "second"]]).observations == ["second 2"]
        envs.reset()
        with pytest.raises(agym.EnvError, match=r"environment 0.*boom 1"):
            envs.step([["raise", "raise"]])


@everywhere
def test_an_error_before_the_second_call_is_raised_at_once(options: dict[str, Any]) -> None:
    with one(options, patience()) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="boom 1"):
            envs.step([["raise", "second"]])


@everywhere
def test_a_deadline_cancels_both_calls(options: dict[str, Any]) -> None:
    with one(options, timeout=deadline(0.2)) as envs:
        envs.reset()
        with pytest.raises(agym.StepTimeout, match="environment 0"):
            envs.step([["hang", "hang"]])
        envs.reset()
        assert envs.step([["plain"]]).observations == ["plain 1"]


@everywhere
def test_closing_ends_both_calls(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with agym.make_async(
            Asked, 2, output="list", fleet=agym.Fleet(hedge=0), **options
        ) as envs:
            await envs.reset()
            envs.step([["hang", "hang"]] * 2)
            while envs.stats().fleet.hedged < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    agym.run(main())


def test_results_are_never_crossed_under_random_delays() -> None:
    """Each call takes its own time, and some ignore their cancellation or raise."""
    draw = random.Random(0)

    async def call(k: int) -> int:
        try:
            await asyncio.sleep(draw.choice([0, 0.001, 0.002]))
        except asyncio.CancelledError:
            if draw.random() < 0.5:
                raise ValueError(k) from None
            return -k
        return k

    async def main() -> None:
        hedge = Hedge(0.0005)
        for k in range(1, 300):
            answer, _ = await hedge.call(lambda k=k: call(k), lambda k=k: call(k))
            assert answer == k
        await hedge.aclose()

    asyncio.run(main())


class Undeclared(Asked):
    """Does not say that a step made twice is as good as one."""

    idempotent = False


class ByMetadata(Undeclared):
    """Says it among its metadata."""

    metadata: ClassVar[dict[str, Any]] = {"idempotent": True}

    def __getattribute__(self, name: str) -> Any:
        if name == "idempotent":
            raise AttributeError(name)
        return super().__getattribute__(name)


@everywhere
def test_only_what_declares_it_is_asked_twice(options: dict[str, Any]) -> None:
    fleet = agym.Fleet(hedge=0)
    with pytest.raises(agym.UsageError, match=r"hedge=.*Undeclared.*idempotent = True"):
        agym.make(Undeclared, 2, fleet=fleet, **options)
    with agym.make(ByMetadata, 2, fleet=fleet, **options) as envs:
        envs.reset()
        envs.step([["plain"]] * 2)
        assert envs.stats().fleet.hedged == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "serial"}, "hedge=.*backend='serial'.*async def step"),
        ({"backend": "thread"}, "hedge=.*backend='thread'.*async def step"),
        ({"backend": FORK}, "hedge=.*Tally.*async def step"),
    ],
)
def test_environments_that_block_are_not_asked_twice(options: dict[str, Any], text: str) -> None:
    with pytest.raises(agym.UsageError, match=text):
        agym.make(Tally, 2, fleet=agym.Fleet(hedge=0.1), **options)


def test_no_delay_is_none_rather_than_false() -> None:
    with pytest.raises(agym.UsageError, match="hedge=False must be"):
        agym.Fleet(hedge=False)


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(agym.UsageError, match="hedge=-1"):
        agym.Fleet(hedge=-1)
