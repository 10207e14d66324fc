"""``replan``: environments move when their steps take longer than planned, and nobody can tell."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, repeat
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
from tests.support.insides import stays_for_good, usual_of

SLOW = 1e-3

# To be sure that nobody moves, or that all goes on after a move.
MORE = 150


@pytest.fixture(autouse=True)
def looking_often_on_a_usual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "LOOK_SECONDS", 0.04)
    monkeypatch.setattr(placing, "this_machine", typical)
    monkeypatch.setattr(replanning, "known", typical)
    monkeypatch.setattr(replanning, "WORTHWHILE", 1.0)


@pytest.fixture
def late(tmp_path: Path) -> Path:
    """A file that is not there yet, from which on steps take another time."""
    return tmp_path / "late"


def bare(envs: Any) -> Any:
    return envs.envs if isinstance(envs, Player) else envs


def backend(envs: Any) -> str:
    return repr(bare(envs)).rpartition("backend=")[2].strip("')")


def seen(factory: Any, step: float = 5e-6) -> Any:
    """A factory whose environments were measured, when a step took so long."""
    remember_profile(factory, Profile("Drifts", 1e-5, 1e-5, step), None)
    return factory


class Drifts(gymnasium.Env[Any, Any]):
    """Takes longer, or less, once a file is there; observes how often it was stepped."""

    def __init__(self, late: Path = Path(), before: float = 0.0, then: float = 0.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.late = late
        self.before, self.then = before, then
        self.steps = 0  # of its life: no reset brings it back
        self.now = 0
        self.length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.now, self.length = 0, int(self.np_random.integers(3, 12))
        return np.array([self.steps, self.np_random.random()]), {"length": self.length}

    def step(self, action: Any) -> Result:
        compute(self.then if self.late.exists() else self.before)
        self.steps += 1
        self.now += 1
        observation = np.array([self.steps, self.np_random.random() + action])
        return observation, self.steps / 8, self.now >= self.length, False, {"now": self.now}


class Leaves(EzPickle, Drifts):
    """Pickled without its state."""

    def __init__(self, late: Path = Path(), before: float = 0.0, then: float = 0.0) -> None:
        EzPickle.__init__(self, late, before, then)
        Drifts.__init__(self, late, before, then)


class Locked(Drifts):
    """Cannot be pickled, though its factory can be."""

    def __init__(self, late: Path = Path(), before: float = 0.0, then: float = 0.0) -> None:
        super().__init__(late, before, then)
        self.lock = threading.Lock()


class Raises(Drifts):
    """Cannot be brought back to life."""

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("told to fail")


class Dies(Drifts):
    """Takes the process with it that brings it back to life."""

    def __setstate__(self, state: Any) -> None:
        os._exit(7)


class Waits(Drifts):
    """Comes back to life once there is a file for that, which it leaves behind when it is closed.

    It writes down that it begins to, and that it is closed.
    """

    def __setstate__(self, state: Any) -> None:
        state["late"].with_name("begun").touch()
        while not state["late"].with_name("go on").exists():
            time.sleep(0.01)
        self.__dict__.update(state)

    def close(self) -> None:
        self.late.with_name("go on").touch()
        with self.late.with_name("closed").open("a") as file:
            file.write("closed\n")


def step_until_they_move(envs: Any, late: Path) -> int:
    """Send steps until new ones come to life; gives how many then do not come back."""
    envs.reset(seed=0)
    left = 0
    for _ in rounds_until(late.with_name("begun").exists, envs, late, more=1):
        if not left:
            envs.send([0, 0])
            left = 2
        left -= len(envs.recv(min_envs=left, timeout=0.02).env_ids)
    return left


def closed(late: Path) -> int:
    """How many were closed."""
    return len(late.with_name("closed").read_text().splitlines())


def limited(late: Path = Path(), before: float = 0.0, then: float = 0.0) -> Any:
    return TimeLimit(Drifts(late, before, then), 9)


def rounds_until(
    there: Callable[[], bool], envs: Any, late: Path, more: int = MORE
) -> Iterator[None]:
    """Rounds until it is so and for some more, in which steps drift once the usual is known."""
    while more:
        if usual_of(bare(envs)) is not None:
            late.touch()
        more -= there()
        yield


def rounds_until_at(goal: str, envs: Any, late: Path, more: int = MORE) -> Iterator[None]:
    """Such rounds until they live elsewhere."""
    return rounds_until(lambda: backend(envs) == goal, envs, late, more)


def play_until_moved(envs: Any, goal: str, late: Path) -> list[Any]:
    """What steps of all give, until they live elsewhere and for some more."""
    told = play(envs, rounds_until_at(goal, envs, late))
    assert backend(envs) == goal
    return told


def play_until_given_up(envs: Any, late: Path) -> list[Any]:
    """What steps of all give, until it was tried to move them and for some more."""
    told = play(envs, rounds_until(lambda: stays_for_good(envs), envs, late))
    assert backend(envs) == "serial"
    return told


def play(envs: Any, rounds: Iterable[Any]) -> list[Any]:
    """What rounds of steps of all give."""
    rng = np.random.default_rng(5)
    told = [envs.reset(seed=3)]
    for _ in rounds:
        actions = rng.integers(0, 3, len(envs))
        result = envs.step(actions)
        told.append((*result[:4], [_untimed(info) for info in result[4]]))
        over = [i for i, (a, b) in enumerate(zip(result[2], result[3], strict=True)) if a or b]
        if over and envs.metadata["autoreset_mode"].name == "DISABLED":
            told.append(envs.reset(env_ids=over))
    return told


def stays_beside(envs: Any, make: Any, late: Path) -> None:
    """Step two environments until two others of their kind have moved; they stay."""
    with agym.make(make, 2, autoreset="next_step", start_method="fork") as others:
        envs.reset()
        others.reset()
        for _ in rounds_until_at("process", others, late):
            envs.step([1, 1])
            others.step([1, 1])
    assert backend(envs) == "serial"


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
def test_moves_to_processes_and_nobody_can_tell(face: str, autoreset: str, late: Path) -> None:
    options = {"autoreset": autoreset, "output": "array", "episode_stats": True}
    with opened(face, seen(partial(limited, late, 0.0, SLOW)), 3, **options) as envs:
        assert backend(envs) != "process"
        told = play_until_moved(envs, "process", late)
        stats = bare(envs).stats()
    assert same(told, oracle(limited, 3, told, **options))
    assert [env.steps for env in stats.envs] == [rounds_of(told)] * 3
    assert [worker.restarts for worker in stats.workers] == [0] * len(stats.workers)


def test_moves_back_when_steps_are_quick_again(late: Path) -> None:
    make = seen(partial(Drifts, late, SLOW, 0.0), SLOW)
    with opened("async", make, 1, autoreset="next_step") as envs:
        assert backend(envs) != "serial"  # it would hold the loop up
        told = play_until_moved(envs, "serial", late)
        assert [worker.pid for worker in bare(envs).stats().workers] == [os.getpid()]
    assert same(told, oracle(Drifts, 1, told, autoreset="next_step"))


@pytest.mark.once
@needs_cores
@pytest.mark.parametrize("kind", [Leaves, Locked, Raises, Dies])
def test_what_cannot_be_moved_whole_stays(kind: Any, late: Path) -> None:
    with agym.make(seen(partial(kind, late, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        told = play_until_given_up(envs, late)
    assert same(told, oracle(kind, 2, told, autoreset="next_step"))


@needs_cores
def test_stays_where_it_is_told_to(late: Path) -> None:
    make = seen(partial(Drifts, late, 0.0, SLOW))
    options = {"autoreset": "next_step", "start_method": "fork"}
    with agym.make(make, 2, replan=False, **options) as envs:
        stays_beside(envs, make, late)
    with pytest.raises(agym.UsageError, match="replan"):
        agym.make(make, 2, replan="no")


@pytest.mark.full
@needs_cores
def test_what_is_sent_moves_when_all_has_come(late: Path) -> None:
    with agym.make(
        seen(partial(Drifts, late, 0.0, SLOW)), 4, autoreset="next_step", output="array"
    ) as envs:
        envs.reset(seed=0)
        for _ in rounds_until_at("process", envs, late):
            envs.send([1] * 3, env_ids=[0, 1, 2])
            envs.send([1], env_ids=[3])
            batch = envs.recv(min_envs=2)
            count = 4 - len(batch.env_ids)
            if count:
                envs.recv(min_envs=count)
        assert envs.reset(env_ids=[1, 2])[0].shape == (4, 2)


@pytest.mark.full
@needs_cores
def test_buffers_and_batches_stay_the_callers(late: Path) -> None:
    with agym.make(
        seen(partial(Drifts, late, 0.0, SLOW)), 3, autoreset="next_step", output="array"
    ) as envs:
        buffer = envs.rollout_buffer(16)
        kept = {}
        envs.reset(seed=0)
        for t, _ in enumerate(rounds_until_at("process", envs, late, more=5)):
            result = envs.step([0, 1, 2], out=buffer[t % 16])
            kept[t % 16] = [array.copy() for array in result[:2]]
        for k, (observations, rewards) in kept.items():
            assert same(buffer.observations[k], observations)
            assert same(buffer.rewards[k], rewards)
        more = envs.rollout_buffer(2)
        envs.step([0, 1, 2], out=more[0])
        assert more.observations[0, :, 0].any()


@pytest.mark.full
@needs_cores
def test_a_worker_that_dies_after_the_move_is_brought_back(late: Path) -> None:
    with agym.make(seen(partial(Drifts, late, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        play_until_moved(envs, "process", late)
        pid = envs.stats().workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(agym.WorkerDied):
            play(envs, repeat(None))
        envs.restart()
        envs.reset(seed=0)
        # Made as at first, not as it was when it moved.
        assert envs.step([0, 0])[0][0][0] == 1


@pytest.mark.full
@needs_cores
def test_closes_in_the_midst_of_a_move(late: Path) -> None:
    with agym.make(seen(partial(Waits, late, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        assert backend(envs) == "serial"
        assert step_until_they_move(envs, late) == 2  # they wait for the move
        assert backend(envs) == "serial"
    assert closed(late) == 2


@pytest.mark.full
@needs_cores
def test_each_is_closed_once(late: Path) -> None:
    late.with_name("go on").touch()
    with agym.make(seen(partial(Waits, late, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        play_until_moved(envs, "process", late)
    assert closed(late) == 2


@pytest.mark.full
@needs_cores
def test_a_place_that_does_not_come_up_is_given_up(
    late: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "MOVE_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "RECHECK_SECONDS", 0.1)
    with agym.make(seen(partial(Waits, late, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        play_until_given_up(envs, late)
    assert closed(late) == 2


@needs_cores
def test_chaos_knows_where_they_live_and_keeps_them_there(late: Path) -> None:
    make = seen(partial(Drifts, late, 0.0, SLOW))
    with agym.make(make, 2, autoreset="next_step", start_method="fork") as envs:
        with pytest.raises(agym.UsageError, match="'serial' it would end this very program"):
            agym.chaos(envs, kill=0.1)
        with agym.chaos(envs, delay=0.1, delay_seconds=0.0):
            stays_beside(envs, make, late)


@pytest.mark.full
@needs_cores
def test_a_restart_calls_a_move_off(late: Path) -> None:
    with agym.make(seen(partial(Waits, late, 0.0, SLOW)), 2, autoreset="next_step") as envs:
        step_until_they_move(envs, late)
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
