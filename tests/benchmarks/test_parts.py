"""The parts of a measurement: workloads, ratios, targets, start-up, optional packages."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

from agym.core._system.extras import require
from agym.errors import AgymError, MissingExtraError, UsageError
from benchmarks.measuring.measure import measure
from benchmarks.measuring.processes import descendants_time, others_time, tree_memory
from benchmarks.measuring.workloads import WORKLOADS, Workload, parse_work, sample_actions
from benchmarks.overhead.measure_startup import STARTUP_WORKLOAD, measure_startup
from benchmarks.reports.results import BOUND, Row, Settings, StartupResult, WorkloadResult
from benchmarks.reports.targets import TARGETS, StartupTarget, Target, judge
from benchmarks.systems import sb3_startup
from benchmarks.systems.base import MAX_PROCESSES, System
from benchmarks.systems.rollouts import ROLLOUTS
from benchmarks.systems.runners import SYSTEMS, Bare, BareAtOnce, GymnasiumSync
from benchmarks.systems.sb3_startup import NAME as SB3_STARTUP
from benchmarks.systems.variants import VARIANTS
from tests.support.scripts import install_command


def test_works_can_be_written_on_the_command_line() -> None:
    for work in WORKLOADS:
        assert parse_work(f"{work.env_id}:{work.num_envs}") == work


@pytest.mark.parametrize("text", ["", ":", ":8", "CartPole-v1", "CartPole-v1:", "CartPole-v1:-1"])
def test_what_is_no_work(text: str) -> None:
    with pytest.raises(UsageError):
        parse_work(text)


def test_actions_are_the_same_in_both_forms_and_every_time() -> None:
    work = Workload("Pendulum-v1", 3)
    actions, again = sample_actions(work), sample_actions(work)
    for batch, same, rows in zip(actions.batches, again.batches, actions.rows, strict=True):
        assert batch.shape == (3, 1)
        np.testing.assert_array_equal(batch, same)
        np.testing.assert_array_equal(batch, np.stack(rows))


def test_bare_environment_takes_a_step_for_its_reset() -> None:
    work = Workload("CartPole-v1", 4)
    actions = sample_actions(work)
    bare, sync = Bare(work, actions, 2), GymnasiumSync(Workload("CartPole-v1", 1), actions, 2)
    for system in (bare, sync):
        system.reset()
    for rows in actions.rows:
        bare.step(rows)
        for action in rows:
            sync.step(np.array([action]))
    assert bare._envs.unwrapped.state == pytest.approx(sync._envs.envs[0].unwrapped.state)
    bare.close()
    sync.close()


def test_bare_at_once_loops_in_every_worker_and_ends_with_it() -> None:
    work = Workload("CartPole-v1", 3)
    system = BareAtOnce(work, sample_actions(work), 2)
    system.reset()
    before = descendants_time()
    assert system.run(0.2) > 0
    assert descendants_time() > before
    system.close()
    assert multiprocessing.active_children() == []


def test_a_process_per_environment_has_a_limit() -> None:
    few, many = Workload("CartPole-v1", MAX_PROCESSES), Workload("CartPole-v1", MAX_PROCESSES + 1)
    for kind in SYSTEMS:
        if kind.process_per_env and kind.why_not(few) is None:
            assert kind.why_not(many) is not None


def test_ratio_is_taken_within_each_repetition() -> None:
    work = WorkloadResult("w", (Row("a", (10.0, 1.0, 6.0)), Row("b", (5.0, 0.5, 2.0))))
    assert work.ratio("a", "b") == 2.0
    assert work.ratio("a", "c") is None
    assert work.rows[0].rate == 6.0
    assert work.rows[0].spread == 1.5


def test_targets_name_systems_and_works_that_exist() -> None:
    systems = {work.name: {kind.name for kind in SYSTEMS} | {BOUND} for work in WORKLOADS}
    contests = (*ROLLOUTS, *VARIANTS)
    systems |= {work.name: {kind.name for kind in work.systems} for work in contests}
    systems[SB3_STARTUP] = {sb3_startup.AGYM, sb3_startup.SUBPROC}
    for target in TARGETS:
        others = [target.against] if isinstance(target.against, str) else target.against
        assert {target.row, *others} <= systems[target.work]


def test_targets_are_judged() -> None:
    targets = [Target("w", "a", "b", 2.0), Target("w", "a", "b", 2.1), Target("w", "a", "c", 1.0)]
    workloads = [WorkloadResult("w", (Row("a", (4.0,)), Row("b", (2.0,))))]
    verdicts = judge(workloads, None, [*targets, Target("another", "a", "b", 1.0)])
    assert [verdict.met for verdict in verdicts] == [True, False, None]
    assert [verdict.measured for verdict in verdicts] == [2.0, 2.0, None]


def test_startup_targets_are_judged() -> None:
    startup = StartupResult(STARTUP_WORKLOAD.name, 2, (1.0, 9.0, 1.2), (90_000_000,) * 3)
    targets = [StartupTarget("seconds", 1.5, "s"), StartupTarget("memory", 80.0, "MB")]
    verdicts = judge([], startup, [], targets)
    assert [(v.measured, v.met) for v in verdicts] == [(1.2, True), (90.0, False)]


@pytest.mark.full
def test_startup_is_measured_in_a_fresh_process() -> None:
    result = measure_startup(Workload("CartPole-v1", 4), workers=2, repeats=2)
    assert len(result.seconds) == len(result.memory) == 2
    assert min(result.seconds) > 0
    # Two Python processes with NumPy and the resource tracker, and not this process with torch.
    assert 10e6 < min(result.memory) <= max(result.memory) < 500e6


def test_startup_that_fails_is_one_sentence() -> None:
    with pytest.raises(AgymError, match=r"start-up of Nowhere-v0 ×2 failed: .*Nowhere") as caught:
        measure_startup(Workload("Nowhere-v0", 2), workers=2, repeats=1)
    assert "\n" not in str(caught.value)


def test_memory_of_the_tree_grows_with_what_is_held() -> None:
    before = tree_memory()
    held = bytearray(os.urandom(50_000_000))
    assert tree_memory() - before > 40_000_000
    del held


BUSY = """
import time
while time.process_time() < 0.5:
    pass
print("done", flush=True)
input()
"""


def test_time_on_cores_is_that_of_descendants() -> None:
    before, others = descendants_time(), others_time()
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"done\n"
        assert descendants_time() - before > 0.3
        assert others_time() - others > -0.1
        busy.communicate(b"\n")


class Broken(System):
    """A system that cannot run the environment."""

    name = "broken"

    def make(self, work: Workload, workers: int) -> object:
        raise RuntimeError("no such space")


def test_system_that_cannot_run_an_environment_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measuring.measure.SYSTEMS", (Bare, Broken, GymnasiumSync))
    told: list[str] = []
    result = measure(Workload("CartPole-v1", 2), Settings(0.001, 2, 2), told.append)
    assert [row.system for row in result.rows] == [Bare.name, BOUND, GymnasiumSync.name]
    assert result.notes == ("broken: failed with RuntimeError('no such space')",)
    turns = [words for words in told if words[0].isdigit()]
    assert turns == [
        "1/2 bare environment", "1/2 Gymnasium Sync", "2/2 Gymnasium Sync", "2/2 bare environment",
    ]  # fmt: skip


def test_env_that_cannot_be_made_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> object:
        raise ImportError("no module named jax")

    monkeypatch.setattr("benchmarks.measuring.workloads.gymnasium.make", fail)
    with pytest.raises(UsageError, match="CartPole-v1 cannot be made: no module named jax"):
        sample_actions(Workload("CartPole-v1", 2))


def test_missing_package_names_the_extra() -> None:
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package.part", "bench")
    assert str(caught.value) == f"no_such_package is not installed: {install_command('bench')}"
