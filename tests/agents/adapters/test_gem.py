"""GEM's environments in agym, and agym's in GEM, with GEM's release."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import gem
import numpy as np
import pytest
from gem.vector.sync_vector_env import SyncVectorEnv
from gem.vector.vector_env import AutoresetMode

import agym
from tests.support.envs.text_envs import Guess, Meeting

adapter = agym.adapters.gem
GAME = "game:Game2048-v0-hard"  # a random tile follows each move
MOVES = [rf"\boxed{{{move}}}" for move in ("left", "up", "right", "down", "left", "up")]


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_episodes_are_those_of_gem_whatever_runs_beside(backend: str) -> None:
    expected = []
    for seed in (5, 6, 7):
        env = gem.make(GAME)
        expected.append([env.reset(seed=seed), *map(env.step, MOVES)])
    with agym.make(adapter.factory(GAME), 3, backend=backend) as envs:
        played: list[tuple[Any, ...]] = [envs.reset(seed=5)]
        played += [envs.step([move] * 3) for move in MOVES]
    for i in range(3):
        assert [tuple(part[i] for part in each) for each in played] == expected[i]


def test_without_a_state_of_its_own_it_draws_from_the_process() -> None:
    with agym.make(adapter.factory(GAME, own_random=False), backend="serial") as envs:
        envs.reset(seed=5)
        before = random.getstate()
        envs.step(MOVES[:1])
        assert random.getstate() != before


def test_ends_are_those_of_gem() -> None:
    game = adapter.factory("game:GuessTheNumber-v0-easy", max_turns=2)
    with agym.make(game, 2) as envs:
        envs.reset(seed=[0, 0])
        random.seed(0)
        number = random.randint(1, 10)
        wrong = [n for n in range(1, 11) if n != number]
        step = envs.step([rf"\boxed{{{number}}}", rf"\boxed{{{wrong[0]}}}"])
        assert (step.terminated, step.truncated) == ([True, False], [False, False])
        assert step.rewards[0] == 1.0
        step = envs.step([rf"\boxed{{{wrong[1]}}}"], env_ids=[1])
        assert (step.terminated, step.truncated) == ([True], [True])


def shouted(env: Any) -> Any:
    """A wrapper."""
    inner = env.step
    env.step = lambda action: (inner(action)[0].upper(), *inner(action)[1:])
    return env


def test_wrappers_and_random_actions() -> None:
    game = adapter.factory("game:GuessTheNumber-v0-easy", wrappers=[shouted])
    with agym.make(game, 2, backend="process") as envs:
        envs.reset(seed=0)
        actions = envs.call("sample_random_action")
        assert all(action.startswith(r"\boxed{") for action in actions)
        assert all(text == text.upper() for text in envs.step(actions).observations)


def test_what_a_script_registers_reaches_worker_processes() -> None:
    gem.register(
        "test:Easy-v0", "gem.envs.game_env.guess_the_number:GuessTheNumberEnv", max_turns=1
    )
    backend = agym.backends.Process(start_method="spawn")
    with agym.make(adapter.factory("test:Easy-v0"), 2, backend=backend) as envs:
        assert "within 1 turns" in envs.reset(seed=0).observations[1]


def test_an_environment_of_agym_is_one_of_gem() -> None:
    adapter.register("test:Guess-v0", Guess, most=9, turns=2, parse=str.strip)
    env = gem.make("test:Guess-v0")
    assert isinstance(env, gem.Env)
    observation, info = env.reset(seed=4)
    assert observation == "guess a number up to 9"
    assert env.spawn().reset(seed=4)[1] == info
    assert env.step(f" {info['number']} ") == ("right", 1.0, True, False, {"left": 1})
    env.reset(seed=4)
    env.step("0")
    assert env.step("0")[2:4] == (False, True)
    with pytest.raises(agym.UsageError, match="already registered with GEM"):
        adapter.register("test:Guess-v0", Guess)
    with pytest.raises(agym.UsageError, match="snapshot"):
        env.spawn(same_state=True)
    env.close()


def test_vectors_of_gem_hold_environments_of_agym() -> None:
    adapter.register("test:Guess-v1", Guess)
    envs = gem.make_vec(["test:Guess-v1"] * 3, async_mode=True, seed=7)
    _, infos = envs.reset()
    with agym.make(Guess, 3) as ours:
        assert ours.reset(seed=7).infos == infos
    _, rewards, terminated, _, _ = envs.step({1: str(infos[1]["number"])})
    assert (rewards.tolist(), terminated.tolist()) == ([1.0], [True])
    for env in envs.envs:
        env.close()
    envs.thread_pool_executer.shutdown()


def test_a_vector_of_agym_steps_all_at_once() -> None:
    envs = adapter.VectorEnv(Meeting, 16, parties=16)
    envs.reset()
    _, rewards, *_ = envs.step(["now"] * 16)
    assert rewards.tolist() == [1.0] * 16
    envs.close()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_of_agym_resets_as_those_of_gem(mode: AutoresetMode) -> None:
    class Game(gem.Env):
        """What :class:`Guess` does."""

        def __init__(self) -> None:
            self.inner = Guess(3, 2)

        def reset(self, seed: int | None = None) -> Any:
            random.seed(seed)
            return agym.run(self.inner.reset(seed=seed))

        def step(self, action: str) -> Any:
            return agym.run(self.inner.step(action))

    theirs = SyncVectorEnv(["a", "b"], [Game, Game], autoreset_mode=mode)
    ours = adapter.VectorEnv(partial(Guess, 3, 2), 2, autoreset_mode=mode)
    assert isinstance(ours, gem.vector.vector_env.VectorEnv)
    seeds = [3, 9]
    assert theirs.reset(seed=seeds) == tuple(ours.reset(seed=seeds))
    for actions in (["1", "2"], ["3", "1"], ["2", "2"], ["1", "3"]):
        expected, got = theirs.step(actions), ours.step(actions)
        assert expected[0] == got[0]
        for part in (1, 2, 3):
            assert np.array_equal(expected[part], got[part])
    ours.reset(seed=seeds)
    theirs.reset(seed=seeds)
    expected, got = theirs.step({1: "2", 0: "3"}), ours.step({1: "2", 0: "3"})
    assert [list(part) for part in expected[:4]] == [list(part) for part in got[:4]]
    assert [len(part) for part in ours.step({1: "2"})] == [1] * 5
    with pytest.raises(agym.UsageError, match="step needs 2 actions"):
        ours.step(["1"])
    ours.close()
