"""``replan``: environments move when their steps take longer than planned, and nobody can tell."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import EzPickle
from gymnasium.wrappers import TimeLimit

import agym
from agym.core import migration
from agym.core.machine import available_cores
from agym.planning import placing, replanning
from agym.planning.transport import typical

from ..envs import Result
from ..faces import Blocking, opened
from ..same import same
from .envs import compute

needs_cores = pytest.mark.skipif(available_cores() < 2, reason="one core gains nothing")

SLOW = 1e-3

# Measuring makes fewer steps.
LATE = 600
ROUNDS = LATE + 200


@pytest.fixture(autouse=True)
def looking_often_on_a_usual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "LOOK_SECONDS", 0.04)
    monkeypatch.setattr(placing, "this_machine", typical)
    monkeypatch.setattr(replanning, "known", typical)
    monkeypatch.setattr(replanning, "WORTHWHILE", 1.0)


def bare(envs: Any) -> Any:
    return envs.envs if isinstance(envs, Blocking) else envs


def backend(envs: Any) -> str:
    return repr(bare(envs)).rpartition("backend=")[2].strip("')")


class Drifts(gymnasium.Env[Any, Any]):
    """Takes longer, or less, from a step on; what it observes tells how often it was stepped."""

    def __init__(self, after: int, before: float = 0.0, then: float = 0.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.after, self.before, self.then = after, before, then
        self.steps = 0  # of its life: no reset brings it back
        self.now = 0
        self.length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.now, self.length = 0, int(self.np_random.integers(3, 12))
        return np.array([self.steps, self.np_random.random()]), {"length": self.length}

    def step(self, action: Any) -> Result:
        compute(self.before if self.steps < self.after else self.then)
        self.steps += 1
        self.now += 1
        observation = np.array([self.steps, self.np_random.random() + action])
        return observation, self.steps / 8, self.now >= self.length, False, {"now": self.now}


class Leaves(EzPickle, Drifts):
    """Pickled without its state."""

    def __init__(self, after: int, before: float, then: float) -> None:
        EzPickle.__init__(self, after, before, then)
        Drifts.__init__(self, after, before, then)


class Locked(Drifts):
    """Cannot be pickled, though its factory can be."""

    def __init__(self, after: int, before: float, then: float) -> None:
        super().__init__(after, before, then)
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
    """Takes its time to come back to life."""

    def __setstate__(self, state: Any) -> None:
        Path(state["path"]).touch()
        time.sleep(0.5)
        self.__dict__.update(state)


def limited(after: int, before: float, then: float) -> Any:
    return TimeLimit(Drifts(after, before, then), 9)


def play(envs: Any, rounds: int) -> list[Any]:
    """What ``rounds`` steps of all give."""
    rng = np.random.default_rng(5)
    told = [envs.reset(seed=3)]
    for _ in range(rounds):
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


@needs_cores
@pytest.mark.parametrize(
    ("face", "autoreset"),
    [("sync", "next_step"), ("sync", "same_step"), ("sync", "disabled"), ("async", "next_step")],
)
def test_moves_to_processes_and_nobody_can_tell(face: str, autoreset: str) -> None:
    make = partial(limited, LATE, 0.0, SLOW)
    options = {"autoreset": autoreset, "output": "array", "episode_stats": True}
    with opened(face, make, 3, backend="serial", **options) as envs:
        expected = play(envs, ROUNDS)
    with opened(face, make, 3, **options) as envs:
        assert backend(envs) == "serial"
        found = play(envs, ROUNDS)
        assert backend(envs) == "process"
        stats = bare(envs).stats()
    assert same(found, expected)
    assert [env.steps for env in stats.envs] == [ROUNDS] * 3
    assert [worker.restarts for worker in stats.workers] == [0] * len(stats.workers)


def test_moves_back_when_steps_are_quick_again() -> None:
    make = partial(Drifts, 150, SLOW, 0.0)
    with opened("async", make, 1, autoreset="next_step", backend="serial") as envs:
        expected = play(envs, 3_000)
    with opened("async", make, 1, autoreset="next_step") as envs:
        assert backend(envs) != "serial"  # it would hold the loop up
        found = play(envs, 3_000)
        assert backend(envs) == "serial"
        assert [worker.pid for worker in bare(envs).stats().workers] == [os.getpid()]
    assert same(found, expected)


@pytest.mark.parametrize("kind", [Leaves, Locked, Raises, Dies])
def test_what_cannot_be_moved_whole_stays(kind: Any) -> None:
    make = partial(kind, LATE, 0.0, SLOW)
    with agym.make(make, 2, autoreset="next_step", backend="serial") as envs:
        expected = play(envs, ROUNDS)
    with agym.make(make, 2, autoreset="next_step") as envs:
        found = play(envs, ROUNDS)
        assert backend(envs) == "serial"
    assert same(found, expected)


def test_stays_where_it_is_told_to() -> None:
    make = partial(Drifts, LATE, 0.0, SLOW)
    with agym.make(make, 2, autoreset="next_step", replan=False) as envs:
        play(envs, ROUNDS)
        assert backend(envs) == "serial"
    with pytest.raises(agym.UsageError, match="replan"):
        agym.make(make, 2, replan="no")


@needs_cores
def test_what_is_received_one_by_one_moves_too() -> None:
    make = partial(Drifts, LATE, 0.0, SLOW)
    steps = np.zeros(4, int)
    with agym.make(make, 4, autoreset="next_step", output="array") as envs:
        envs.reset(seed=0)
        envs.send([1] * 4)
        for _ in range(10 * ROUNDS):
            if backend(envs) == "process" and min(steps) > ROUNDS:
                break
            batch = envs.recv(min_envs=2)
            for i, observation in zip(batch.env_ids, batch.observations, strict=True):
                steps[i] += 1
                if observation[0] != 0:
                    assert observation[0] <= steps[i]
            envs.send([1] * len(batch.env_ids), env_ids=batch.env_ids)
        assert backend(envs) == "process"
        envs.recv(min_envs=4)


@needs_cores
def test_buffers_and_batches_stay_the_callers() -> None:
    make = partial(Drifts, LATE, 0.0, SLOW)
    with agym.make(make, 3, autoreset="next_step", output="array") as envs:
        buffer = envs.rollout_buffer(ROUNDS)
        envs.reset(seed=0)
        kept = [envs.step([0, 1, 2], out=buffer[t]) for t in range(ROUNDS)]
        assert backend(envs) == "process"
        more = envs.rollout_buffer(2)
        envs.step([0, 1, 2], out=more[0])
        assert more.observations[0, :, 0].any()
    rewards = np.stack([result.rewards for result in kept])
    assert same(buffer.rewards, rewards)


@needs_cores
def test_a_worker_that_dies_after_the_move_is_brought_back() -> None:
    make = partial(Drifts, LATE, 0.0, SLOW)
    with agym.make(make, 2, autoreset="next_step") as envs:
        play(envs, ROUNDS)
        assert backend(envs) == "process"
        pid = envs.stats().workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(agym.WorkerDied):
            play(envs, ROUNDS)
        envs.restart()
        envs.reset(seed=0)
        # Made as at first, not as it was when it moved.
        assert envs.step([0, 0])[0][0][0] == 1


@needs_cores
def test_closes_in_the_midst_of_a_move(tmp_path: Path) -> None:
    path = tmp_path / "begun"

    def make() -> Any:
        env = Slowly(LATE, 0.0, SLOW)
        vars(env)["path"] = str(path)
        return env

    with agym.make(make, 2, autoreset="next_step") as envs:
        assert backend(envs) == "serial"
        envs.reset(seed=0)
        while not path.exists():
            envs.send([0, 0])
            left = 2
            while left and not path.exists():
                left -= len(envs.recv(min_envs=left, timeout=0.02).env_ids)
        assert left == 2  # they wait for the move
        assert backend(envs) == "serial"
