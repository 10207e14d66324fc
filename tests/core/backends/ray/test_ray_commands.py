"""The parts of ``python -m benchmarks ray``, on next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.ray.command import judge_scale, judge_workloads, show_ray
from benchmarks.ray.scale import measure_messages, measure_scale
from benchmarks.ray.systems import AgymRay, LocalWorkload, LoopsWorkload, RayActorEach, RayLoop
from benchmarks.reports.results import Settings
from benchmarks.throughput.grid import run_workloads

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


def test_bench_measures_and_judges(cluster: Cluster) -> None:
    workloads = LoopsWorkload("CartPole-v1", 2), LocalWorkload("CartPole-v1", 4)
    report = run_workloads(workloads, Settings(0.02, 2, 2))
    loops, local = report.workloads
    assert {row.system for row in loops.rows} == {
        AgymRay.name, RayLoop.name, RayActorEach.name,
    }  # fmt: skip
    assert local.row(AgymRay.name) is not None
    assert [target.wanted for target in judge_workloads(report.workloads)] == [1.0, 20.0, 0.85]
    message = measure_messages(workloads[1], 2, 0.1)
    assert message.cost < message.batch
    scales = measure_scale((1, 2), 4, 0.01, 0.2)
    assert [scale.num_envs for scale in scales] == [4, 8]
    assert all(scale.rate > 0 for scale in scales)
    targets = tuple(judge_scale(scales))
    assert [target.wanted for target in targets] == [0.9]
    console = Console(record=True, width=120)
    console.print(show_ray(report, [message], scales))
    assert "driver, of a core" in console.export_text()
