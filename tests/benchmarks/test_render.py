"""What looking costs: every part is measured, and judged where there is an target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measuring.workloads import sample_actions
from benchmarks.reports.results import Row, WorkloadResult
from benchmarks.waiting import render
from benchmarks.waiting.render import arithmetic, cost_while_off, judge_render, share_of_ideal
from benchmarks.waiting.render_systems import (
    BESIDE,
    DRAWING,
    FEW,
    RENDER_WORKLOADS,
    STILL,
    TRACED,
    WALL,
    WATCHED,
    DrawingAgym,
    DrawingAsync,
    DrawingLoop,
    OnlyDrawingAtOnce,
    Stepping,
    SteppingAndDrawing,
    StillAgym,
    Traced,
    Untraced,
    Unwatched,
    Watchable,
    Watched,
)
from tests.benchmarks.tiny import run

pytest.importorskip("pygame", reason="CartPole draws with pygame: the extra `render`")


@pytest.mark.full
def test_every_part_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What has a process per environment would leave a fork server behind.
    workloads = tuple(work for work in RENDER_WORKLOADS if work is not FEW)
    monkeypatch.setattr(render, "RENDER_WORKLOADS", workloads)
    done = run(
        tmp_path, "render", "--num-envs", "2", "--seconds", "0.002", "--repeats", "2",
        "--workers", "1",
    )  # fmt: skip
    assert [work["work"] for work in done.data["workloads"]] == [
        f"{DRAWING} CartPole-v1 ×2", "finished pictures of Still-v0 ×2",
        "render beside CartPole-v1 ×2", "timeline of CartPole-v1 ×2",
        "live page of CartPole-v1 ×2",
    ]  # fmt: skip
    for work, measured in zip(workloads, done.data["workloads"], strict=True):
        assert [row["system"] for row in measured["rows"]] == [kind.name for kind in work.systems]
        for row in measured["rows"]:
            assert len(row["rates"]) == 2
            assert min(row["rates"]) > 0
            assert row["system"] in done.stdout
    assert "20 rounds of steps take" in done.stdout
    assert done.data["targets"] == []  # they are for other numbers


@pytest.mark.full
def test_both_ways_step_and_draw_the_same() -> None:
    work = replace(WALL, num_envs=3)
    loop, ours = (kind(work, sample_actions(work), 2) for kind in (DrawingLoop, DrawingAgym))
    for system in (loop, ours):
        system.reset()
        for _ in range(30):
            system.step(next(system._actions))
    # Every environment is reset with another seed by agym, as vector environments are.
    np.testing.assert_array_equal(loop._frames[0], ours._frames[0])
    assert [frame.shape for frame in loop._frames] == [frame.shape for frame in ours._frames]
    for system in (loop, ours):
        system.close()


def result(name: str, **rates: tuple[float, ...]) -> WorkloadResult:
    return WorkloadResult(name, tuple(Row(key, each) for key, each in rates.items()))


def test_targets() -> None:
    workloads = [
        result(WALL.name, **{DrawingLoop.name: (10.0, 20.0), DrawingAgym.name: (19.0, 38.0)}),
        result(FEW.name, **{DrawingAsync.name: (10.0,), DrawingAgym.name: (12.0,)}),
        result(STILL.name, **{StillAgym.name: (20_000.0,)}),
        result(BESIDE.name, **{
            # 20 steps in 2 ms and a picture in 3 ms are together as long as 20 steps at 4,000/s.
            Stepping.name: (10_000.0,), OnlyDrawingAtOnce.name: (1000 / 3,),
            SteppingAndDrawing.name: (3_200.0,),
        }),
        result(WATCHED.name, **{
            Unwatched.name: (100.0,), Watchable.name: (99.5,), Watched.name: (90.0,),
        }),
        result(TRACED.name, **{Untraced.name: (1e6,), Traced.name: (0.99e6,)}),
    ]  # fmt: skip
    verdicts = [*judge_render(workloads)]
    assert [target.wanted for target in verdicts] == [
        1.85, 1.3, 60.0, 0.9, 0.99, 0.95, 1.03, 0.5,
    ]  # fmt: skip
    assert [target.met for target in verdicts[:7]] == [
        True, False, True, False, True, False, True,
    ]  # fmt: skip
    measured = [target.measured for target in verdicts[:7]]
    assert measured == pytest.approx([1.9, 1.2, 50, 0.8, 0.995, 0.9, 1 / 0.99])
    assert share_of_ideal(workloads[3]) == pytest.approx(0.8)
    words = arithmetic(workloads[3])
    assert all(word in words for word in ("128.0 ms", "192.0 ms", "320.0 ms", "400.0 ms", "0.80"))
    assert share_of_ideal(workloads[0]) is None
    assert arithmetic(workloads[0]) == ""
    assert cost_while_off() > 0
