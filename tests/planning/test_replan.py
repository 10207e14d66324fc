"""``replan``: environments move when their steps take longer than planned, and nobody can tell."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit

import agym
from agym.core import migration
from agym.core.autoreset import parse_mode
from agym.core.engine import Engine
from agym.core.gauges import Gauges
from agym.core.migration import Watch
from agym.executors import doorbell
from agym.executors.base import Placement
from agym.executors.migrating import MigratingExecutor
from agym.executors.process import ProcessExecutor
from agym.executors.serial import SerialExecutor
from agym.executors.thread import ThreadExecutor
from agym.faces import waiting
from agym.faces.sync import Envs
from agym.planning import placing, replanning
from agym.planning.caching import remember_profile
from agym.planning.model import Profile
from agym.planning.transport import typical
from tests.support.drivers import Player, opened
from tests.support.envs.costly_envs import compute, needs_cores
from tests.support.envs.plain_envs import Nested, Result
from tests.support.equality import same

SLOW = 1e-3

# Measuring does not take that long, and what is usual is known by then.
LATE = 0.4

# To be sure that nobody moves, or that all goes on after a move.
MORE = 150


@pytest.fixture(autouse=True)
def looking_often_on_a_usual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "LOOK_SECONDS", 0.04)
    monkeypatch.setattr(placing, "this_machine", typical)
    monkeypatch.setattr(replanning, "known", typical)
    monkeypatch.setattr(replanning, "WORTHWHILE", 1.0)


def bare(envs: Any) -> Any:
    return envs.envs if isinstance(envs, Player) else envs


def backend(envs: Any) -> str:
    return repr(bare(envs)).rpartition("backend=")[2].strip("')")


def seen(factory: Any, step: float = 5e-6) -> Any:
    """A factory whose environments were measured, when a step took so long."""
    remember_profile(factory, Profile("Drifts", 1e-5, 1e-5, step), None)
    return factory


class Drifts(gymnasium.Env[Any, Any]):
    """Takes longer, or less, after a while; what it observes tells how often it was stepped."""

    def __init__(self, before: float = 0.0, then: float = 0.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.begun = time.monotonic()
        self.before, self.then = before, then
        self.steps = 0  # of its life: no reset brings it back
        self.now = 0
        self.length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.now, self.length = 0, int(self.np_random.integers(3, 12))
        return np.array([self.steps, self.np_random.random()]), {"length": self.length}

    def step(self, action: Any) -> Result:
        compute(self.before if time.monotonic() < self.begun + LATE else self.then)
        self.steps += 1
        self.now += 1
        observation = np.array([self.steps, self.np_random.random() + action])
        return observation, self.steps / 8, self.now >= self.length, False, {"now": self.now}


class Leaves(EzPickle, Drifts):
    """Pickled without its state."""

    def __init__(self, before: float = 0.0, then: float = 0.0) -> None:
        EzPickle.__init__(self, before, then)
        Drifts.__init__(self, before, then)


class Locked(Drifts):
    """Cannot be pickled, though its factory can be."""

    def __init__(self, before: float = 0.0, then: float = 0.0) -> None:
        super().__init__(before, then)
        self.lock = threading.Lock()


class Raises(Drifts):
    """Cannot be brought back to life."""

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("told to fail")


class Dies(Drifts):
    """Takes the process with it that brings it back to life."""

    def __setstate__(self, state: Any) -> None:
        os._exit(7)


class Slowly(Drifts):
    """Takes its time to come back to life, and writes down when it is closed."""

    path = ""

    def __setstate__(self, state: Any) -> None:
        Path(state["path"]).touch()
        time.sleep(0.5)
        self.__dict__.update(state)

    def close(self) -> None:
        with Path(self.path + ".closed").open("a") as file:
            file.write("closed\n")


def slowly(path: Path) -> Any:
    """A factory of such."""

    def make() -> Any:
        env = Slowly(0.0, SLOW)
        env.path = str(path)
        return env

    return make


def step_until_they_move(envs: Any, path: Path) -> int:
    """Send steps until new ones come to life; gives how many have not come back."""
    envs.reset(seed=0)
    left = 0
    while not path.exists():
        envs.send([0, 0])
        left = 2
        while left and not path.exists():
            left -= len(envs.recv(min_envs=left, timeout=0.02).env_ids)
    return left


def closed(path: Path) -> int:
    """How many were closed."""
    return len(Path(f"{path}.closed").read_text().splitlines())


def limited(before: float = 0.0, then: float = 0.0) -> Any:
    return TimeLimit(Drifts(before, then), 9)


def play_until_moved(envs: Any, goal: str) -> list[Any]:
    """What steps of all give, until they live elsewhere and for some more."""
    told = play(envs, [1] * 10**6, goal)
    assert backend(envs) == goal
    return told


def play_on(envs: Any) -> list[Any]:
    """What steps of all give for twice as long as it takes to see a drift."""
    end = time.monotonic() + 3 * LATE
    return play(envs, iter(lambda: time.monotonic() < end, False))


def play(envs: Any, rounds: Iterable[Any], goal: str = "") -> list[Any]:
    """What rounds of steps of all give."""
    rng = np.random.default_rng(5)
    told = [envs.reset(seed=3)]
    left = MORE
    for _ in rounds:
        left -= backend(envs) == goal
        if not left:
            break
        actions = rng.integers(0, 3, len(envs))
        result = envs.step(actions)
        told.append((*result[:4], [_untimed(info) for info in result[4]]))
        over = [i for i, (a, b) in enumerate(zip(result[2], result[3], strict=True)) if a or b]
        if over and envs.metadata["autoreset_mode"].name == "DISABLED":
            told.append(envs.reset(env_ids=over))
    return told


def _untimed(info: dict[str, Any]) -> dict[str, Any]:
    """Without what the clock says."""
    told = {**info}
    if "episode" in told:
        told["episode"] = {**told["episode"], "t": 0}
    if "final_info" in told:
        told["final_info"] = _untimed(told["final_info"])
    return told


def rounds_of(told: list[Any]) -> int:
    return sum(len(result) == 5 for result in told)


def oracle(make: Any, num_envs: int, told: list[Any], **options: Any) -> list[Any]:
    """What the same number of rounds gives where nobody moves, and nothing takes long."""
    with agym.make(make, num_envs, backend="serial", **options) as envs:
        return play(envs, range(rounds_of(told)))


@pytest.mark.once
@needs_cores
@pytest.mark.parametrize(
    ("face", "autoreset"),
    [("sync", "next_step"), ("sync", "same_step"), ("sync", "disabled"), ("async", "next_step")],
)
def test_moves_to_processes_and_nobody_can_tell(face: str, autoreset: str) -> None:
    options = {"autoreset": autoreset, "output": "array", "episode_stats": True}
    with opened(face, seen(partial(limited, 0.0, SLOW)), 3, **options) as envs:
        assert backend(envs) != "process"
        told = play_until_moved(envs, "process")
        stats = bare(envs).stats()
    assert same(told, oracle(limited, 3, told, **options))
    assert [env.steps for env in stats.envs] == [rounds_of(told)] * 3
    assert [worker.restarts for worker in stats.workers] == [0] * len(stats.workers)


def test_moves_back_when_steps_are_quick_again() -> None:
    with opened("async", seen(partial(Drifts, SLOW, 0.0), SLOW), 1, autoreset="next_step") as envs:
        assert backend(envs) != "serial"  # it would hold the loop up
        told = play_until_moved(envs, "serial")
        assert [worker.pid for worker in bare(envs).stats().workers] == [os.getpid()]
    assert same(told, oracle(Drifts, 1, told, autoreset="next_step"))


@pytest.mark.once
@pytest.mark.parametrize("kind", [Leaves, Locked, Raises, Dies])
def test_what_cannot_be_moved_whole_stays(kind: Any) -> None:
    with agym.make(seen(partial(kind, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        told = play_on(envs)
        assert backend(envs) == "serial"
    assert same(told, oracle(kind, 2, told, autoreset="next_step"))


def test_stays_where_it_is_told_to() -> None:
    make = seen(partial(Drifts, 0.0, SLOW))
    with agym.make(make, 2, autoreset="next_step", replan=False) as envs:
        play_on(envs)
        assert backend(envs) == "serial"
    with pytest.raises(agym.UsageError, match="replan"):
        agym.make(make, 2, replan="no")


@pytest.mark.full
@needs_cores
def test_what_is_sent_moves_when_all_has_come() -> None:
    left = MORE
    with agym.make(
        seen(partial(Drifts, 0.0, SLOW)), 4, autoreset="next_step", output="array"
    ) as envs:
        envs.reset(seed=0)
        while left:
            left -= backend(envs) == "process"
            envs.send([1] * 3, env_ids=[0, 1, 2])
            envs.send([1], env_ids=[3])
            batch = envs.recv(min_envs=2)
            count = 4 - len(batch.env_ids)
            if count:
                envs.recv(min_envs=count)
        assert envs.reset(env_ids=[1, 2])[0].shape == (4, 2)


@pytest.mark.full
@needs_cores
def test_buffers_and_batches_stay_the_callers() -> None:
    with agym.make(
        seen(partial(Drifts, 0.0, SLOW)), 3, autoreset="next_step", output="array"
    ) as envs:
        buffer = envs.rollout_buffer(16)
        kept = {}
        envs.reset(seed=0)
        t = 0
        while backend(envs) == "serial" or t % 16 < 5:
            result = envs.step([0, 1, 2], out=buffer[t % 16])
            kept[t % 16] = [array.copy() for array in result[:2]]
            t += 1
        for k, (observations, rewards) in kept.items():
            assert same(buffer.observations[k], observations)
            assert same(buffer.rewards[k], rewards)
        more = envs.rollout_buffer(2)
        envs.step([0, 1, 2], out=more[0])
        assert more.observations[0, :, 0].any()


@pytest.mark.full
@needs_cores
def test_a_worker_that_dies_after_the_move_is_brought_back() -> None:
    with agym.make(seen(partial(Drifts, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        play_until_moved(envs, "process")
        pid = envs.stats().workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(agym.WorkerDied):
            play_on(envs)
        envs.restart()
        envs.reset(seed=0)
        # Made as at first, not as it was when it moved.
        assert envs.step([0, 0])[0][0][0] == 1


@pytest.mark.full
@needs_cores
def test_closes_in_the_midst_of_a_move(tmp_path: Path) -> None:
    path = tmp_path / "begun"
    with agym.make(seen(slowly(path)), 2, autoreset="next_step") as envs:
        assert backend(envs) == "serial"
        left = step_until_they_move(envs, path)
        assert left == 2  # they wait for the move
        assert backend(envs) == "serial"
    assert closed(path) == 2


@pytest.mark.full
@needs_cores
def test_each_is_closed_once(tmp_path: Path) -> None:
    path = tmp_path / "begun"
    with agym.make(seen(slowly(path)), 2, autoreset="next_step") as envs:
        play_until_moved(envs, "process")
    assert closed(path) == 2


@pytest.mark.full
def test_a_place_that_does_not_come_up_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "MOVE_SECONDS", 0.1)
    monkeypatch.setattr(doorbell, "RECHECK_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "RECHECK_SECONDS", 0.1)
    path = tmp_path / "begun"
    with agym.make(seen(slowly(path)), 2, autoreset="next_step") as envs:
        play_on(envs)
        assert backend(envs) == "serial"
    assert closed(path) == 2


def test_chaos_knows_where_they_live_and_keeps_them_there() -> None:
    with agym.make(seen(partial(Drifts, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        with pytest.raises(agym.UsageError, match="'serial' it would end this very program"):
            agym.chaos(envs, kill=0.1)
        with agym.chaos(envs, delay=0.1, delay_seconds=0.0):
            play_on(envs)
        assert backend(envs) == "serial"


@pytest.mark.full
@needs_cores
def test_a_restart_calls_a_move_off(tmp_path: Path) -> None:
    path = tmp_path / "begun"
    with agym.make(seen(slowly(path)), 2, autoreset="next_step") as envs:
        step_until_they_move(envs, path)
        assert envs.restart() == []  # none is gone
        assert backend(envs) == "serial"
        assert len(envs.recv(min_envs=2).env_ids) == 2  # what had to wait


class Restless(Watch):
    """Sees a drift whenever it looks."""

    def look(self, gauges: Gauges) -> float | None:
        return 10.0

    def accept(self) -> tuple[float, float]:
        return 10.0, 0.0


@pytest.mark.once
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_on_the_move_all_the_time(autoreset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(migration, "Watch", Restless)
    places = cycle([(ThreadExecutor, 2), (ProcessExecutor, 2), (SerialExecutor, None)])
    moves = []

    def choose(ratio: float, waiting: float) -> Any:
        moves.append(next(places))
        return moves[-1]

    factories, mode = [Nested] * 3, parse_mode(autoreset)
    placement = Placement(factories, mode, start_method="fork")
    executor = MigratingExecutor(placement, (SerialExecutor, None))
    engine = Engine(executor, 3, autoreset=mode, migrate=choose)
    with (
        Envs(engine, executor, "array") as envs,
        agym.make(Nested, 3, backend="serial", autoreset=autoreset, output="array") as others,
    ):
        assert same(wander(envs), wander(others))
    assert len(moves) > 5


def wander(envs: Any) -> list[Any]:
    """What all kinds of calls give, of all environments and of some."""
    rng = np.random.default_rng(1)
    envs.action_space.seed(4)
    envs.single_action_space.seed(5)
    told = [envs.reset(seed=[7, 8, 9])]
    for t in range(250):
        result = envs.step(envs.action_space.sample())
        told.append(result)
        over = np.flatnonzero(result.terminated | result.truncated).tolist()
        kind = rng.integers(0, 8)
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and over:
            told.append(envs.reset(env_ids=over))
        elif kind == 0:
            told.append(envs.reset(env_ids=[int(rng.integers(0, 3))], seed=t))
        elif kind == 1:
            envs.set_attr("mark", [t, t + 1, t + 2])
            told.append(envs.get_attr("mark"))
        elif kind == 2:
            told.append(envs.step([envs.single_action_space.sample()] * 2, env_ids=[0, 2]))
    return told
