"""PPO's rollouts in ``throughput``: what is named, what is collected, what is judged."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np
import pytest

from agym.errors import UsageError
from benchmarks.measuring.measure import measure
from benchmarks.measuring.workloads import Workload, sample_actions
from benchmarks.reports.results import Row, Settings, WorkloadResult
from benchmarks.reports.targets import TARGETS, judge
from benchmarks.systems import rollouts, sb3_startup
from benchmarks.systems.rollouts import RolloutWorkload, VecEnvProcess, VectorSerial, buffers
from benchmarks.throughput.command import parse

pytest.importorskip("stable_baselines3", reason="the extra sb3 brings it")


@pytest.fixture(autouse=True)
def fresh_buffers() -> Iterator[None]:
    """Have no room left over from another test."""
    buffers.cache_clear()
    yield
    buffers.cache_clear()


def test_names() -> None:
    assert parse("rollout:CartPole-v1:8") == RolloutWorkload("CartPole-v1", 8)
    assert parse("ppo:CartPole-v1:64") == RolloutWorkload("CartPole-v1", 64, network=True)
    assert parse("CartPole-v1:8") == Workload("CartPole-v1", 8)
    assert RolloutWorkload("CartPole-v1", 8).name == "rollout CartPole-v1 ×8"
    with pytest.raises(UsageError, match="is not a work"):
        parse("rollout:CartPole-v1")


@pytest.mark.full
@pytest.mark.parametrize("network", [False, True])
def test_every_system_collects(monkeypatch: pytest.MonkeyPatch, network: bool) -> None:
    monkeypatch.setattr(rollouts, "STEPS", 32)
    monkeypatch.setattr(rollouts, "RUN_IN_STEPS", 4)
    # Those with a process per environment leave a fork server behind for the next ones.
    for name in ("ROLLOUT_SYSTEMS", "NETWORK_SYSTEMS"):
        systems = [kind for kind in getattr(rollouts, name) if not kind.process_per_env]
        monkeypatch.setattr(rollouts, name, tuple(systems))
    work = RolloutWorkload("CartPole-v1", 2, network=network)
    result = measure(work, Settings(seconds=0.01, repeats=1, workers=2), lambda _: None)
    assert [row.system for row in result.rows] == [kind.name for kind in work.systems]
    assert all(median(row.rates) > 0 for row in result.rows)
    assert not result.notes


def test_a_rollout_is_so_many_steps() -> None:
    work = RolloutWorkload("CartPole-v1", 2)
    system = VectorSerial(work, sample_actions(work), 1)
    system.reset()
    first = system._latest
    system.collect(50)
    kept, rewards, _ = buffers(first.shape, first.dtype)
    assert np.array_equal(kept[0], first)
    assert rewards[:50].any(axis=1).all()
    assert not np.array_equal(kept[49], kept[48])
    system.close()


def test_only_the_latest_pictures_are_kept() -> None:
    kept, *_ = buffers((8, 210, 160, 3), np.dtype(np.uint8))
    assert kept.nbytes <= rollouts.ROOM


def test_targets_are_held_against_the_better_one() -> None:
    target = next(
        target for target in TARGETS
        if target.row == VecEnvProcess.name and target.work == "rollout CartPole-v1 ×8"
    )  # fmt: skip
    rows = tuple(
        Row(name, (rate,))
        for name, rate in ((VecEnvProcess.name, 16.0), ("SB3 Dummy", 10.0), ("SB3 Subproc", 20.0))
    )
    (verdict,) = judge([WorkloadResult(target.work, rows)], targets=[target])
    assert verdict.measured == 0.8
    assert verdict.met is False


def test_sb3_environments_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sb3_startup, "NUM_ENVS", 2)
    assert sb3_startup.start(sb3_startup.AGYM, 2) > 0
