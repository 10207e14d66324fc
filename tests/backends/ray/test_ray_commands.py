"""``agym plan --cluster`` and the parts of ``python -m benchmarks ray``, on next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import agym
from agym.api.options.environments import make_factories
from agym.cli.app import app
from agym.planning.caching import remember_profile
from agym.planning.model import Profile
from agym.planning.typical import typical
from benchmarks.ray.command import judge_scale, judge_workloads, show_ray
from benchmarks.ray.scale import measure_messages, measure_scale
from benchmarks.ray.systems import AgymRay, LocalWorkload, LoopsWorkload, RayActorEach, RayLoop
from benchmarks.reports.results import Settings
from benchmarks.throughput.grid import run_workloads
from tests.support.envs.plain_envs import Tally

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


class Slow(Tally):
    """It is said to be slow."""


def takes(env: Any, step: float) -> Any:
    """An environment of which it is known how long a step takes.

    Where it is measured and other processes compete, it takes longer, and seems to wait.
    """
    remember_profile(make_factories(env, 1, {})[0], Profile(str(env), 1e-5, 1e-5, step), None)
    return env


def test_plan_says_that_a_cluster_pays_for_slow_steps(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = typical(2)  # fewer cores than the cluster has
    monkeypatch.setattr("agym.api.auto.plan.this_machine", lambda on_progress: machine)
    plan = agym.plan(takes(Slow, 0.5), 64, cluster=True)
    assert (plan.backend, plan.workers) == ("ray", 8)
    assert "A cluster of 8 CPUs pays" in plan.why


def test_plan_says_that_it_does_not_for_quick_ones(cluster: Cluster) -> None:
    command = ["plan", takes("CartPole-v1", 5e-6), "4", "--cluster", "--address", cluster.address]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "A cluster of 8 CPUs does not pay" in done.stdout
    assert "a message to an actor and back takes" in done.stdout


def test_plan_takes_an_address_only_of_a_cluster() -> None:
    with pytest.raises(agym.UsageError, match=r"use .*agym\.backends\.Ray\(address="):
        agym.plan("CartPole-v1", 4, address="auto")


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
