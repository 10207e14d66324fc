"""What benchmarks measure with: workloads, systems, neighbours, environments and processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pytest

from agym.api.options.options import OPTION_NAMES
from agym.errors import AgymError, UsageError
from benchmarks.agents.gaps import Heartbeat
from benchmarks.agents.openenv_drill import PATIENCE, drill
from benchmarks.branching.cost import seconds_per_call
from benchmarks.branching.digests import Row, difference, digest
from benchmarks.measuring.computing_envs import BusyEnv, turns_for
from benchmarks.measuring.interleave import in_turns
from benchmarks.measuring.measure import measure
from benchmarks.measuring.neighbours import QUIET, TWO_LOOPS
from benchmarks.measuring.processes import (
    CoreUse,
    core_use,
    descendants_time,
    others_time,
    tree_memory,
)
from benchmarks.measuring.waiting_envs import SleepingEnv, StragglingEnv, WaitingEnv
from benchmarks.measuring.workloads import WORKLOADS, BusyWorkload, Workload, sample_actions
from benchmarks.overhead.measure_startup import measure_startup
from benchmarks.overhead.systems import HostAlone
from benchmarks.reports.results import BOUND, Settings
from benchmarks.systems import rollouts, sb3_startup
from benchmarks.systems.base import MAX_PROCESSES, System
from benchmarks.systems.baseline import BareLoop
from benchmarks.systems.peers import PEERS, TianshouShmem, TorchRLParallel
from benchmarks.systems.rollouts import RolloutWorkload, VectorSerial, buffers
from benchmarks.systems.runners import (
    SYSTEMS,
    AgymOneProcess,
    AgymOther,
    AgymProcess,
    AgymThreads,
    Bare,
    BareAtOnce,
    GymnasiumSync,
)
from benchmarks.systems.variants import COPIES, INFOS, CopiedViews, CopiesWorkload, Views
from benchmarks.throughput import cells, multienv
from benchmarks.throughput.account_parts import per_batch
from benchmarks.throughput.command import parse
from benchmarks.throughput.grid import ENVS, grid_workloads, parse_counts, run_grid
from benchmarks.throughput.multienv import BareResets, LoopResets, MultiWorkload, ProcessResets
from benchmarks.waiting.render_systems import WALL, DrawingAgym, DrawingLoop
from tests.benchmarks.tiny import FEW
from tests.support.patience import patience

# ---------------------------------------------------------------- workloads


def test_works_can_be_written_on_the_command_line() -> None:
    for work in WORKLOADS:
        assert parse(f"{work.env_id}:{work.num_envs}") == work
    assert parse("infos:HumanoidStandup-v5:16") == INFOS
    assert parse("copies:ALE/Pong-v5:64") == COPIES
    assert parse("rollout:CartPole-v1:8") == RolloutWorkload("CartPole-v1", 8)
    assert parse("ppo:CartPole-v1:64") == RolloutWorkload("CartPole-v1", 64, network=True)
    assert parse_counts("8, 1,64,8") == (1, 8, 64)
    assert len({*grid_workloads(ENVS, parse_counts("1,8,64,512"))}) == 48


def test_actions_are_the_same_in_all_forms_and_every_time() -> None:
    work = Workload("Pendulum-v1", 3)
    actions, again = sample_actions(work), sample_actions(work)
    for batch, same, rows in zip(actions.batches, again.batches, actions.rows, strict=True):
        np.testing.assert_array_equal(batch, same)
        np.testing.assert_array_equal(batch, np.stack(rows))
    for kind in FEW:
        chosen = kind.choose(object.__new__(kind), actions)
        np.testing.assert_array_equal(np.asarray(chosen[0]), actions.batches[0])


def test_all_systems_have_a_turn_in_every_repetition() -> None:
    turns = list(in_turns("ABC", 4))
    assert "".join(name for _, name in turns) == "ABCBCACABABC"
    assert [turn for turn, _ in turns] == sorted([0, 1, 2, 3] * 3)


def test_an_environment_that_cannot_be_made_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: object) -> object:
        raise ImportError("no module named jax")

    monkeypatch.setattr("benchmarks.measuring.workloads.gymnasium.make", fail)
    with pytest.raises(UsageError, match="CartPole-v1 cannot be made: no module named jax"):
        sample_actions(Workload("CartPole-v1", 2))


# ---------------------------------------------------------------- systems


@contextmanager
def started(kind: Any, work: Workload, workers: int = 2) -> Iterator[Any]:
    """A system after its reset."""
    with closing(kind(work, sample_actions(work), workers)) as system:
        system.reset()
        yield system


def test_every_system_has_a_name_of_its_own_and_options_that_exist() -> None:
    count = 4 + len(cells.FIXED) + len(cells.OTHERS)
    assert len({kind.name for kind in cells.SYSTEMS}) == len(cells.SYSTEMS) == count
    assert [kind.name for kind in multienv.STEPPING] == [kind.name for kind in multienv.RESETTING]
    for work in (INFOS, COPIES):
        for kind in work.systems:
            assert kind.why_not(work) is not None or {*kind.options} <= {*OPTION_NAMES}


def test_what_is_left_out_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = Workload("CartPole-v1", MAX_PROCESSES), Workload("CartPole-v1", MAX_PROCESSES + 1)
    for system in SYSTEMS:
        if system.process_per_env and system.why_not(few) is None:
            assert system.why_not(many) is not None
    monkeypatch.setattr("benchmarks.systems.peers.installed", lambda package: True)
    for kind in (TianshouShmem, TorchRLParallel):
        assert kind.why_not(Workload("CartPole-v1", kind.max_processes)) is None
        reason = kind.why_not(Workload("CartPole-v1", kind.max_processes + 1))
        assert str(kind.max_processes) in str(reason)
    monkeypatch.setattr("benchmarks.systems.peers.installed", lambda package: False)
    for peer in PEERS:
        reason = peer.why_not(few)
        assert reason == f"{peer.package} is not installed: pip install {peer.package}"


def test_the_bare_environment_takes_a_step_for_its_reset() -> None:
    one, many = Workload("CartPole-v1", 1), Workload("CartPole-v1", 4)
    with started(Bare, many) as bare, started(GymnasiumSync, one) as sync:
        for rows in sample_actions(many).rows:
            bare.step(rows)
            for action in rows:
                sync.step(np.array([action]))
        assert bare._envs.unwrapped.state == pytest.approx(sync._envs.envs[0].unwrapped.state)


def test_the_host_alone_does_what_the_loop_does() -> None:
    """The same actions and the same episodes: it is not something that is only quick."""
    work = Workload("CartPole-v1", 3)
    actions = sample_actions(work).rows[0]
    with started(HostAlone, work, 1) as host, started(BareLoop, work, 1) as loop:
        for _ in range(60):
            host.step(None)
            loop.step(actions)
        for ours, theirs in zip(host._envs.shared.slots, loop._envs._envs, strict=True):
            assert ours.env.unwrapped.state == pytest.approx(theirs.unwrapped.state)


def test_bare_at_once_loops_in_every_worker_and_ends_with_it() -> None:
    with started(BareAtOnce, Workload("CartPole-v1", 3)) as system:
        before = descendants_time()
        assert system.run(0.2) > 0
        assert descendants_time() > before
    assert multiprocessing.active_children() == []


def test_fixed_choices_have_as_many_workers_as_they_say() -> None:
    for kind, workers in ((AgymOneProcess, 1), (AgymProcess, 2), (AgymThreads, 3)):
        with started(kind, Workload("Null-v0", 3)) as system:
            assert len(system._envs.stats().workers) == workers


@pytest.mark.full
def test_another_checkout_is_asked_for_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgymOther, "checkout", Path(__file__).parents[2], raising=False)
    with started(AgymOther, Workload("CartPole-v1", 2)) as other:
        assert other.choice == "twin"
        assert other.run(0.01) > 0


@pytest.mark.full
def test_only_views_are_overwritten() -> None:
    work = CopiesWorkload("CartPole-v1", 2)
    batches = sample_actions(work).batches
    for kind in work.systems:
        with started(kind, work, 1) as system:
            system.step(batches[0])
            kept = system._latest if kind is CopiedViews else system._latest[0]
            first = kept.copy()
            system.step(batches[1])
            assert kind is Views or np.array_equal(kept, first)


@pytest.mark.full
def test_both_ways_step_and_draw_the_same() -> None:
    pytest.importorskip("pygame", reason="CartPole draws with pygame: the extra `render`")
    work = replace(WALL, num_envs=3)
    with started(DrawingLoop, work) as loop, started(DrawingAgym, work) as ours:
        for system in (loop, ours):
            for _ in range(30):
                system.step(next(system._actions))
        # Every environment is reset with another seed by agym, as vector environments are.
        np.testing.assert_array_equal(loop._frames[0], ours._frames[0])


@pytest.mark.parametrize("kind", [BareResets, LoopResets, ProcessResets])
def test_a_step_of_resets_resets_all(kind: type[BareResets]) -> None:
    """The bare environment as often as there are environments, so that its line is linear."""
    work = MultiWorkload("CartPole-v1", 3, resets=True)
    calls: list[Any] = []
    with started(kind, work) as system:
        envs = getattr(system._envs, "_envs", [system._envs])
        for env in envs if kind is not ProcessResets else [system._envs]:
            monkey = env.reset
            env.reset = lambda *, monkey=monkey, **given: calls.append(monkey(**given))
        system.step(sample_actions(work).batches[0])
    assert len(calls) == (1 if kind is ProcessResets else 3)


class Broken(System):
    """A system that cannot run the environment."""

    name = "broken"

    def make(self, work: Workload, workers: int) -> object:
        raise RuntimeError("no such space")


def test_a_system_that_cannot_run_an_environment_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measuring.measure.SYSTEMS", (Bare, Broken, GymnasiumSync))
    told: list[str] = []
    result = measure(Workload("CartPole-v1", 2), Settings(0.001, 2, 2), told.append)
    assert [row.system for row in result.rows] == [Bare.name, BOUND, GymnasiumSync.name]
    assert result.notes == ("broken: failed with RuntimeError('no such space')",)
    turns = [words for words in told if words[0].isdigit()]
    assert turns == [
        "1/2 bare environment", "1/2 Gymnasium Sync", "2/2 Gymnasium Sync", "2/2 bare environment",
    ]  # fmt: skip


@pytest.mark.full
def test_slices_end_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.throughput.grid.SYSTEMS", FEW)
    monkeypatch.setattr("benchmarks.throughput.grid.undecided", lambda work, busy: True)
    for limit, most in ((0.0, 2), (1.0, 1_000)):
        (result,) = run_grid([Workload("Null-v0", 2)], Settings(0.002, 2, 2, limit)).workloads
        counts = {len(row.rates) for row in result.rows}
        assert len(counts) == 1
        assert 2 <= counts.pop() <= most


PEERS_STEP = """
from benchmarks.systems.peers import PEERS
from benchmarks.measuring.workloads import Workload, sample_actions

if __name__ == "__main__":
    workloads = Workload("CartPole-v1", 2), Workload("Pendulum-v1", 2)
    for work in workloads:
        actions = sample_actions(work)
        for kind in PEERS:
            if kind.why_not(work) is None and not (kind.process_per_env and work != workloads[0]):
                system = kind(work, actions, 2)
                system.reset()
                assert system.run(0.05) > 0
                system.close()
                print(kind.name)
"""


@pytest.mark.full
def test_every_peer_that_is_installed_steps(tmp_path: Path) -> None:
    """In a process of its own, since some leave fork servers, or write where they run."""
    script = tmp_path / "peers_step.py"
    script.write_text(PEERS_STEP)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True,
        timeout=patience(5.5),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = {kind.name for kind in PEERS if kind.why_not(Workload("CartPole-v1", 2)) is None}
    assert {*done.stdout.split("\n")} - {""} == wanted


# ---------------------------------------------------------------- rollouts of PPO


@pytest.fixture
def fresh_buffers() -> Iterator[None]:
    """Start and end without buffers of other tests."""
    pytest.importorskip("stable_baselines3", reason="the extra sb3 brings it")
    buffers.cache_clear()
    yield
    buffers.cache_clear()


@pytest.mark.full
@pytest.mark.parametrize("network", [False, True])
def test_every_system_collects_rollouts(
    monkeypatch: pytest.MonkeyPatch, network: bool, fresh_buffers: None
) -> None:
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


def test_a_rollout_keeps_its_steps(fresh_buffers: None) -> None:
    with started(VectorSerial, RolloutWorkload("CartPole-v1", 2), 1) as system:
        first = system._latest
        system.collect(50)
        kept, rewards, _ = buffers(first.shape, first.dtype)
        assert np.array_equal(kept[0], first)
        assert rewards[:50].any(axis=1).all()
        assert not np.array_equal(kept[49], kept[48])
    kept, *_ = buffers((8, 210, 160, 3), np.dtype(np.uint8))
    assert kept.nbytes <= rollouts.ROOM  # only the latest pictures are kept


def test_sb3_environments_start(monkeypatch: pytest.MonkeyPatch, fresh_buffers: None) -> None:
    monkeypatch.setattr(sb3_startup, "NUM_ENVS", 2)
    assert sb3_startup.start(sb3_startup.AGYM, 2) > 0


# ---------------------------------------------------------------- environments


async def test_environments_return_what_their_spaces_say() -> None:
    waiting, sleeping = WaitingEnv(0.0), SleepingEnv(0.0)
    for observation, _ in (await waiting.reset(seed=0), sleeping.reset(seed=0)):
        assert observation in waiting.observation_space
    for step in (await waiting.step(0), await asyncio.to_thread(sleeping.step, 0)):
        assert step[0] in sleeping.observation_space
        assert step[1:] == (0.0, False, False, {})


async def test_stragglers_are_drawn_from_the_seed() -> None:
    async def delays(env: StragglingEnv, seed: int) -> list[float]:
        await env.reset(seed=seed)
        return [env._next_delay() for _ in range(400)]

    env = StragglingEnv(0.5, 0.1, 4.0)
    drawn = await delays(env, 1)
    assert {*drawn} == {0.5, 2.0}
    assert drawn.count(2.0) < 100
    assert drawn == await delays(env, 1)
    assert drawn != await delays(env, 2)
    assert {*await delays(StragglingEnv(0.5, 0.0, 4.0), 1)} == {0.5}


def test_a_busy_environment_computes_for_as_long_as_it_is_asked_to() -> None:
    env = BusyEnv(turns_for(2e-3))
    env.reset(seed=0)
    taken = []
    for _ in range(20):
        begun = time.thread_time()
        env.step(0)
        taken.append(time.thread_time() - begun)
    assert 0.5e-3 < min(taken) < 20e-3
    work = BusyWorkload.of(20.0, 3)
    assert work.name == "steps of 20 µs ×3"
    assert work.factory().unwrapped._turns == work.turns > 0
    assert BusyWorkload.of(0.0, 3).spec.id == "Null-v0"


# ---------------------------------------------------------------- processes and time


def test_neighbours_end_with_the_benchmark() -> None:
    with TWO_LOOPS.running() as pids:
        programs = [psutil.Process(pid) for pid in pids]
        assert len(programs) == 2
        assert not {*programs} & {*psutil.Process().children(recursive=True)}
    for program in programs:
        with suppress(psutil.NoSuchProcess):
            while program.status() != psutil.STATUS_ZOMBIE:  # whoever adopted it may not reap it
                time.sleep(0.01)
    with QUIET.running() as pids:
        assert pids == []


def test_use_of_the_cores_is_read_where_the_system_reports_it(tmp_path: Path) -> None:
    for pid, text in ((1, "5000 1000 3\n"), (2, "7000 2000 4\n"), (3, "0 0 0\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "schedstat").write_text(text)
    assert core_use([1, 2], tmp_path) == CoreUse(12.0, 3.0, 7)
    assert core_use([3], tmp_path) is core_use([1, 4], tmp_path) is None
    before, after = CoreUse(10.0, 2.0, 1), CoreUse(30.0, 6.0, 3)
    assert per_batch(before, after, 4) == CoreUse(5.0, 1.0, 0.5)
    assert per_batch(None, after, 4) is per_batch(before, None, 4) is None


@pytest.mark.full
def test_start_up_is_measured_in_a_fresh_process() -> None:
    result = measure_startup(Workload("CartPole-v1", 4), workers=2, repeats=2)
    assert len(result.seconds) == len(result.memory) == 2
    assert min(result.seconds) > 0
    # Two Python processes with NumPy and the resource tracker, and not this process with torch.
    assert 10e6 < min(result.memory) <= max(result.memory) < 500e6


def test_a_start_up_that_fails_is_one_sentence() -> None:
    with pytest.raises(AgymError, match=r"start-up of Nowhere-v0 ×2 failed: .*Nowhere") as caught:
        measure_startup(Workload("Nowhere-v0", 2), workers=2, repeats=1)
    assert "\n" not in str(caught.value)


BUSY = """
import time
while time.process_time() < 0.5:
    pass
print("done", flush=True)
input()
"""


def test_time_and_memory_are_those_of_descendants() -> None:
    before, others, memory = descendants_time(), others_time(), tree_memory()
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"done\n"
        assert descendants_time() - before > 0.3
        assert others_time() - others > -0.1
        busy.communicate(b"\n")
    held = bytearray(os.urandom(50_000_000))
    assert tree_memory() - memory > 40_000_000
    del held


def test_a_heartbeat_sees_a_loop_that_is_blocked() -> None:
    async def main() -> list[float]:
        with Heartbeat(asyncio.get_running_loop()) as heart:
            await asyncio.sleep(0.02)
            time.sleep(0.1)  # noqa: ASYNC251
            await asyncio.sleep(0.02)
            time.sleep(0.15)  # noqa: ASYNC251  # after which no beat comes
        return heart.gaps

    gaps = sorted(asyncio.run(main()))
    assert gaps[-1] >= 0.15
    assert gaps[-2] >= 0.1


def test_a_call_is_timed_at_least_once() -> None:
    calls: list[int] = []
    assert seconds_per_call(lambda: calls.append(1), 0.0) > 0
    assert len(calls) == 1


def test_a_backward_pass_gives_torch_its_threads_back() -> None:
    pytest.importorskip("torch", reason="the extra sb3 brings torch")
    code = (
        "import torch; torch.set_num_threads(2)\n"
        "from benchmarks.waiting.backward import backward_pass\n"
        "with backward_pass(1e-3) as backward:\n"
        "    backward()\n"
        "    print(torch.get_num_threads())\n"
        "print(torch.get_num_threads())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "2"]


# ---------------------------------------------------------------- equality and order


def test_digests_are_exact() -> None:
    nan, other_nan = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    values: list[Any] = [
        nan, other_nan, 0.0, -0.0, 0, False, None, "", [], (), {}, [[], []], [[[]]], ["a", "b"],
        ["ab"], {"a": 1}, {"a": 2}, np.zeros(2), np.zeros((2, 1)), np.zeros(2, np.float32),
        np.float64(0.0), np.array([None]), b"", np.zeros(0),
    ]  # fmt: skip
    assert len({digest(value) for value in values}) == len(values)
    shared = "a b"
    assert digest([shared, shared]) == digest(["a b", " ".join("ab")])  # whichever are one object
    assert digest(np.arange(6)[::2]) == digest(np.array([0, 2, 4]))
    row = Row.of([1.0], 0.0, False, False, {"a": np.nan})
    assert difference([row, row], [row, row]) == ""
    assert difference([row, row], [row, row._replace(truncated=True)]) == "truncated of step 2"
    assert row._replace(terminated=True).ends > row.ends


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


async def test_the_drill_finds_a_client_that_shifts_answers() -> None:
    tally = await drill(Naive, sessions=4, give_up=40, seed=0)
    assert tally.given_up >= 40
    assert tally.shifted > 0
