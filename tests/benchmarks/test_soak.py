"""The soak: a short one, its accountant, and its verdicts."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.cli.console import console
from agym.core.hosts.fault_injection import ChaosError
from agym.errors import Fault
from benchmarks.soak.accountant import Accountant
from benchmarks.soak.command import judge_soak, show_soak
from benchmarks.soak.probes import ChaoticEnv, CounterEnv
from benchmarks.soak.records import Plan, SoakResult
from tests.support.patience import patience


class Row(NamedTuple):
    """What a step of one environment gave."""

    shown: int
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def play(seed: int, steps: int, **how: Any) -> list[Row]:
    """The rows of one environment with next-step autoreset."""
    env = CounterEnv(informs=True, **how)
    env.reset(seed=seed)
    rows: list[Row] = []
    for _ in range(steps):
        if rows and (rows[-1].terminated or rows[-1].truncated):
            observation, info = env.reset()
            rows.append(Row(observation, 0.0, False, False, info))
        else:
            rows.append(Row(*env.step(0)))
    return rows


def audit(rows: list[Row], *, on: Accountant | None = None) -> Accountant:
    """Have the rows of an environment checked; another one beside it is always fine."""
    account = on or Accountant(2)
    ids = np.arange(2)
    account.reset([0, 1], np.zeros(2, np.int64), [{}, {}])
    for row, other in zip(rows, play(99, len(rows)), strict=True):
        account.send(ids, np.zeros(2, np.int64))
        columns: list[Any] = [np.array(column) for column in zip(row[:4], other[:4], strict=True)]
        account.receive(ids, *columns, [row.info, other.info])
    return account


def errors(account: Accountant) -> tuple[int, int]:
    return account.lost, account.duplicated


def fault(kind: str = "raised", culprit: int | None = None) -> dict[str, Any]:
    return {"fault": Fault(0, kind, "step", "it broke", culprit=culprit)}


def cut(rows: list[Row], at: int, info: dict[str, Any]) -> list[Row]:
    """A fault after so many rows, and other rows behind it."""
    last = rows[at - 1].shown if at else 0
    reset = Row(0, 0.0, False, False, {"count": 0})
    return [*rows[:at], Row(last, 0.0, False, True, info), reset, *play(7, 20)]


@given(st.integers(0, 1000), st.integers(1, 20), st.integers(0, 60))
def test_nothing_is_wrong_where_nothing_is_wrong(seed: int, length: int, at: int) -> None:
    rows = play(seed, 60, length=length)
    assert errors(audit(rows)) == (0, 0)
    account = audit(cut(rows, at, fault()))
    assert errors(account) == (0, 0)
    assert account.faults == {"raised": 1}


SPOILT: dict[str, Callable[[list[Row], int], list[Row]]] = {
    "lost": lambda rows, at: [*rows[:at], *rows[at + 1 :]],
    "doubled": lambda rows, at: [*rows[: at + 1], *rows[at:]],
    "swapped": lambda rows, at: [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]],
}


@pytest.mark.parametrize("how", SPOILT)
@given(st.integers(0, 1000), st.integers(1, 20), st.integers(0, 58))
def test_rows_that_are_lost_doubled_or_moved_are_found(
    how: str, seed: int, length: int, at: int
) -> None:
    rows = play(seed, 60, length=length)
    account = audit(SPOILT[how](rows, at))
    assert sum(errors(account)) > 0
    assert how != "doubled" or account.duplicated > 0
    ends = rows[at].terminated or rows[at].truncated
    assert how != "lost" or ends or not rows[at].shown or account.lost == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row._replace(reward=row.reward + 1),
        lambda row: row._replace(info={**row.info, "count": row.shown - 1}),
        lambda row: row._replace(info={**row.info, "action": 1}),
        lambda row: row._replace(info=fault()),  # of a transition that was none
        lambda row: row._replace(truncated=True, terminated=True),
        lambda row: row._replace(shown=row.shown - 1, reward=0.0, truncated=True, info={}),
        lambda row: row._replace(shown=row.shown - 1, truncated=True, info=fault()),
        lambda row: row._replace(reward=0.0, truncated=True, info=fault()),
    ],
)
def test_a_row_put_together_from_two_is_found(spoil: Callable[[Row], Row]) -> None:
    rows = play(0, 20, length=1000)
    spoilt = [*rows[:9], spoil(rows[9]), *rows[10:]]
    assert sum(errors(audit(spoilt))) > 0
    after_a_cut = [*rows[:9], Row(9, 0.0, False, True, fault()), *rows[9:]]
    assert sum(errors(audit(after_a_cut))) > 0


def test_what_was_not_sent_or_not_asked_for_is_found() -> None:
    account = Accountant(1)
    account.reset([0], np.zeros(1, np.int64), [{}])
    row: list[Any] = [np.array([value]) for value in (1, 1.0, False, False)]
    account.receive(np.array([0]), *row, [{}])
    assert account.duplicated == 1
    account.send(np.array([0]), np.array([0]))
    assert account.missing == 1
    account.reset([0], np.ones(1, np.int64), [fault("died")])
    assert account.duplicated == 2
    assert account.faults == {"died": 1}


def test_bystanders_are_told_from_culprits() -> None:
    rows = play(0, 10, length=1000)
    assert audit(cut(rows, 5, fault("died", culprit=0))).bystanders == 0
    spoilt = cut(rows, 5, fault("died", culprit=1))
    assert audit(spoilt).bystanders == 1
    # What is over already cannot be cut off once more.
    assert audit([*spoilt[:6], spoilt[5], *spoilt[6:]]).bystanders == 2


def test_survived_is_who_steps_on() -> None:
    rows = cut(play(0, 10, length=1000), 5, fault())
    account = Accountant(2)
    account.inject([0, 0])
    audit(rows[:0], on=account)
    assert (account.unresolved, account.survived) == (2, 0)
    audit(rows[5:6], on=account)  # no step
    assert (account.unresolved, account.survived) == (2, 0) if rows[5].truncated else (0, 2)
    audit(play(0, 1), on=account)
    assert (account.unresolved, account.survived) == (0, 2)


FINE = SoakResult(
    steps=10, seconds=5.0, injections={"kill": 200}, injected=200, survived=200,
    descriptors=[9, 20, 21, 9],
)  # fmt: skip


@pytest.mark.parametrize(
    ("spoilt", "missed"),
    [
        ({}, []),
        ({"lost": 1}, ["transitions lost"]),
        ({"duplicated": 1}, ["transitions duplicated"]),
        ({"survived": 199}, ["faults survived, of those injected"]),
        ({"descriptors": [9, 20, 20, 10]}, ["descriptors open at the end, as before"]),
        ({"left": 1}, ["processes left"]),
        ({"errors": ["[red]a callback"]}, ["errors in callbacks of the event loop"]),
        ({"injected": 199, "survived": 199}, ["faults injected"]),
        ({"bystanders": 1}, ["bystanders that were not replayed"]),
    ],
)
def test_requirements_that_are_missed_are_shown(spoilt: dict[str, Any], missed: list[str]) -> None:
    plan, result = Plan(on_fault="replay"), replace(FINE, **spoilt)
    verdicts = judge_soak(plan, result)
    assert [each.what for each in verdicts if not each.met] == missed
    assert "faults injected" not in [each.what for each in judge_soak(Plan(seconds=5), result)]
    output = console(width=120, file=io.StringIO())
    with output.capture() as capture:
        output.print(show_soak(plan, result, verdicts, {}))
    shown = capture.get()
    assert ("missed" in shown) is bool(missed)
    assert all(text in shown for text in (*missed, *result.errors))


@pytest.mark.full
@pytest.mark.parametrize("on_fault", ["restart", "replay"])
def test_a_short_soak(on_fault: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", "soak", "--seconds", "4"),
            *("--num-envs", "16", "--on-fault", on_fault, "--json", str(path)),
        ],
        capture_output=True, text=True, timeout=patience(11),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text(encoding="utf-8"))
    result = report["result"]
    assert result["injected"] == result["survived"] > 0
    assert result["steps"] > 16
    assert result["lost"] == result["duplicated"] == 0
    for requirement in report["requirements"]:
        assert requirement["met"]
        assert requirement["what"] in done.stdout
    assert report["settings"]["on_fault"] == on_fault


# ---------------------------------------------------------------- the probes


def test_chaotic_environments_write_down_what_their_seed_says(tmp_path: Path) -> None:
    def deeds(seed: int, diary: Path) -> str:
        env = ChaoticEnv(error=0.03, leak=0.02, size=10, name="it", diary=str(diary), length=20)
        env.reset(seed=seed)
        for _ in range(300):
            try:
                done = any(env.step(0)[2:4])
            except ChaosError:
                done = True
            if done:
                env.reset()
        return diary.read_text()

    first = deeds(0, tmp_path / "a")
    assert {*first.splitlines()} == {"it error", "it leak"}
    assert deeds(0, tmp_path / "b") == first
    assert deeds(1, tmp_path / "c") != first


def test_chaotic_environments_crash(tmp_path: Path) -> None:
    code = (
        "from benchmarks.soak.probes import ChaoticEnv\n"
        f"env = ChaoticEnv(crash=1.0, name='x', diary={str(tmp_path / 'diary')!r})\n"
        "env.reset(seed=0)\n"
        "env.step(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -11
    assert (tmp_path / "diary").read_text() == "x crash\n"
