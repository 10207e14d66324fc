"""The drill of answers that are given up: it finds a client that shifts them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.agents.openenv import Drilled, OpenEnvReport, show_openenv
from benchmarks.agents.openenv_drill import PATIENCE, Tally, drill
from benchmarks.app import app


class Naive:
    """A client that asks on after a timeout, and so takes the late answer for the next one."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[int] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    async def reset(self, value: int) -> int:
        return await self.step(value, 0.0)

    async def step(self, value: int, delay: float) -> int:
        task = asyncio.ensure_future(self._serve(value, delay))
        self._tasks.add(task)
        async with asyncio.timeout(PATIENCE):
            return await self._answers.get()

    async def _serve(self, value: int, delay: float) -> None:
        async with self._turn:  # a server answers in order
            await asyncio.sleep(delay)
            self._answers.put_nowait(value)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks)


async def test_the_drill_finds_a_client_that_shifts() -> None:
    tally = await drill(Naive, sessions=4, give_up=40, seed=0)
    assert tally.given_up >= 40
    assert tally.shifted > 0


def report(tally: Tally) -> OpenEnvReport:
    row = Drilled("agym", "agym", tally, 1.0)
    return OpenEnvReport({}, 4, 10, "", [row, replace(row, server="OpenEnv")])


@pytest.mark.parametrize(
    ("tally", "met"),
    [
        (Tally(answered=9, timeouts=5, cancelled=6), True),
        (Tally(answered=9, timeouts=5, cancelled=4), False),
        (Tally(answered=9, timeouts=5, cancelled=6, shifted=1), False),
        (Tally(answered=9, timeouts=5, cancelled=6, errors={"Broken": 1}), False),
    ],
)
def test_what_is_good_enough(tally: Tally, met: bool) -> None:
    assert [target.met for target in report(tally).targets] == [met, met, None]
    assert show_openenv(report(tally))


def test_a_client_that_costs_more_is_not_good_enough() -> None:
    for ours, met in ((10.0, True), (30.0, False)):
        measured = replace(report(Tally()), pace={"agym": [ours], "OpenEnv": [20.0]})
        assert measured.targets[-1].met is met
        assert show_openenv(measured)


def test_what_was_not_measured_is_not_judged() -> None:
    nothing = replace(report(Tally()), drills=())
    assert [target.met for target in nothing.targets] == [None, None, None]


def test_agym_at_agym(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    arguments = ["openenv", "--part", "drill", "--give-up", "50", "--sessions", "4"]
    done = CliRunner().invoke(app, [*arguments, "--json", str(file)])
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(file.read_text())
    tally = result["drills"][0]["tally"]
    assert tally["timeouts"] + tally["cancelled"] >= 50
    assert tally["answered"] > 0
    assert result["targets"][0]["met"] is True
    if not result["peer"]:
        assert "pass --peer-python" in done.output
