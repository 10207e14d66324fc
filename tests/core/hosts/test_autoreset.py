"""The three autoreset modes, and resets of some environments, on both backends."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import agym
from tests.support.drivers import APIS, SETUPS, opened
from tests.support.envs.plain_envs import ReusesBuffer, Tally
from tests.support.equality import same

pytestmark = pytest.mark.parametrize("setup", SETUPS)


def tallies(*lengths: int, truncates: bool = False) -> list[Any]:
    """Environments whose episodes have these lengths; see Tally for what they observe."""
    return [partial(Tally, length=length, truncates=truncates) for length in lengths]


def as_lists(observations: Any) -> list[list[float]]:
    return [list(observation) for observation in observations]


@pytest.mark.parametrize("truncates", [False, True], ids=["terminated", "truncated"])
@pytest.mark.parametrize("api", APIS)
def test_disabled_holds_still(setup: dict[str, Any], api: str, truncates: bool) -> None:
    with opened(api, tallies(1, 3, 2, truncates=truncates), autoreset="disabled", **setup) as envs:
        envs.reset()
        done = [False] * 3
        rounds: list[Any] = []
        while not all(done):
            rounds.append(envs.step([5, 5, 5]))
            done = rounds[-1].truncated if truncates else rounds[-1].terminated
        rounds.append(envs.step([6, 6, 6]))
        assert len(rounds) == 4
        assert [as_lists(r.observations)[0] for r in rounds] == [[1, 1, 5]] * 4
        assert as_lists(rounds[-1].observations) == [[1, 1, 5], [1, 3, 5], [1, 2, 5]]
        assert [r.rewards[0] for r in rounds] == [1 + 1 / 16, 0.0, 0.0, 0.0]
        assert [r.rewards[1] for r in rounds] == [1 + 1 / 16, 1 + 2 / 16, 1 + 3 / 16, 0.0]
        flags = [(True, False), (False, True)][truncates]
        assert [(r.terminated[0], r.truncated[0]) for r in rounds] == [flags] * 4
        assert [r.infos[0] for r in rounds] == [{"now": 1, "action": 5}, {}, {}, {}]
        # The environments themselves were left alone.
        assert envs.get_attr("now") == [1, 3, 2]


@pytest.mark.parametrize("output", ["list", "array"])
def test_a_held_observation_is_the_last_one_though_its_buffer_is_reused(
    setup: dict[str, Any], output: Any
) -> None:
    with agym.make([partial(ReusesBuffer, n) for n in (2, 4)], output=output, **setup) as envs:
        envs.reset()
        actions = np.zeros((2, 2), np.float32)
        seen = [envs.step(actions).observations[0][0] for _ in range(5)]
        assert seen == [1, 2, 2, 2, 2]


def test_reset_ends_a_hold(setup: dict[str, Any]) -> None:
    with agym.make(tallies(1, 1), **setup) as envs:
        envs.reset()
        envs.step([0, 0])
        envs.step([0, 0])
        assert as_lists(envs.reset().observations) == [[2, 0, -1]] * 2
        result = envs.step([3, 3])
        assert as_lists(result.observations) == [[2, 1, 3]] * 2
        assert result.rewards == [2 + 1 / 16] * 2


@pytest.mark.parametrize("api", APIS)
def test_next_step(setup: dict[str, Any], api: str) -> None:
    with opened(api, tallies(2, 3), autoreset="next_step", **setup) as envs:
        envs.reset(seed=7)
        rounds = [envs.step([4, 5]) for _ in range(5)]
        assert [as_lists(r.observations)[0] for r in rounds] == [
            [1, 1, 4],
            [1, 2, 4],
            [2, 0, -1],  # the step that resets ignores its action
            [2, 1, 4],
            [2, 2, 4],
        ]
        assert [r.terminated for r in rounds] == [
            [False, False],
            [True, False],
            [False, True],
            [False, False],
            [True, False],
        ]
        assert rounds[2].rewards == [0.0, 1 + 3 / 16]
        assert rounds[3].rewards == [2 + 1 / 16, 0.0]
        assert rounds[2].infos[0].keys() == {"seed", "options", "draw"}
        assert rounds[2].infos[1] == {"now": 3, "action": 5}


@pytest.mark.parametrize("api", APIS)
def test_same_step(setup: dict[str, Any], api: str) -> None:
    with opened(api, tallies(2, 3), autoreset="same_step", **setup) as envs:
        envs.reset(seed=7)
        rounds = [envs.step([4, 5]) for _ in range(4)]
        assert [as_lists(r.observations)[0] for r in rounds] == [
            [1, 1, 4],
            [2, 0, -1],
            [2, 1, 4],
            [3, 0, -1],
        ]
        end = rounds[1]
        assert end.terminated == [True, False]
        assert end.rewards == [1 + 2 / 16, 1 + 2 / 16]
        assert list(end.infos[0]["final_obs"]) == [1, 2, 4]
        assert end.infos[0]["final_info"] == {"now": 2, "action": 4}
        assert end.infos[0].keys() == {"seed", "options", "draw", "final_obs", "final_info"}
        assert end.infos[1] == {"now": 2, "action": 5}
        assert "final_obs" not in rounds[0].infos[0]
        assert "final_obs" not in rounds[2].infos[0]


def test_a_final_observation_is_not_overwritten(setup: dict[str, Any]) -> None:
    env = partial(ReusesBuffer, 2)
    with agym.make(env, 2, autoreset="same_step", output="array", **setup) as envs:
        envs.reset()
        actions = np.zeros((2, 2), np.float32)
        ends = [r for r in (envs.step(actions) for _ in range(6)) if r.terminated.any()]
        assert len(ends) == 3
        for end in ends:
            assert end.observations.tolist() == [[0] * 4] * 2
            assert [info["final_obs"].tolist() for info in end.infos] == [[2] * 4] * 2


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_options_are_given_again_at_automatic_resets(setup: dict[str, Any], mode: Any) -> None:
    options = {"length": 1, "nested": {"a": [1]}}
    with agym.make(Tally, 2, autoreset=mode, **setup) as envs:
        _, infos = envs.reset(options=options)
        assert [info["options"] for info in infos] == [options] * 2
        for _ in range(3):
            envs.step([0, 0])
            infos = envs.step([0, 0]).infos
        last = [info for info in infos if "options" in info]
        assert [info["options"] for info in last] == [options] * 2
        envs.reset()
        envs.step([0, 0])
        infos = envs.step([0, 0]).infos
        assert [info["options"] for info in infos] == [None] * 2


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_seeds_are_not_given_again(setup: dict[str, Any], mode: Any) -> None:
    bare = Tally()
    draws = [bare.reset(seed=11)[1]["draw"], *(bare.reset()[1]["draw"] for _ in range(3))]
    assert len(set(draws)) == 4
    with agym.make(tallies(1), autoreset=mode, **setup) as envs:
        infos = [*envs.reset(seed=11).infos]
        while len(infos) < 4:
            infos += [info for info in envs.step([0]).infos if "draw" in info]
        assert [info["draw"] for info in infos] == draws
        assert [info["seed"] for info in infos] == [11, None, None, None]


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_an_explicit_reset_after_the_end_is_the_only_one(setup: dict[str, Any], mode: Any) -> None:
    with agym.make(tallies(1, 5), autoreset=mode, **setup) as envs:
        envs.reset()
        envs.step([0, 0])
        begun = 3 if mode == "same_step" else 2
        assert as_lists(envs.reset().observations) == [[begun, 0, -1], [2, 0, -1]]
        assert as_lists(envs.step([0, 3]).observations)[1] == [2, 1, 3]
        episodes = envs.get_attr("episode")
        assert episodes == [4 if mode == "same_step" else 2, 2]


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("by", ["env_ids", "mask"])
@pytest.mark.parametrize("api", APIS)
def test_reset_of_some(setup: dict[str, Any], api: str, by: str, mode: Any) -> None:
    with opened(api, tallies(9, 9, 9, 9, 9), autoreset=mode, **setup) as envs:
        envs.reset(seed=0)
        before = envs.step([1, 2, 3, 4, 5])
        mask = np.array([False, True, False, False, True])
        if by == "mask":
            observations, infos = envs.reset(seed=40, options={"reset_mask": mask, "x": 1})
        else:
            observations, infos = envs.reset(seed=40, options={"x": 1}, env_ids=[4, 1])
        assert as_lists(observations) == [
            [1, 1, 1],
            [2, 0, -1],
            [1, 1, 3],
            [1, 1, 4],
            [2, 0, -1],
        ]
        assert [infos[i] for i in (0, 2, 3)] == [{}] * 3
        assert [infos[i]["seed"] for i in (1, 4)] == [41, 44]
        assert [infos[i]["options"] for i in (1, 4)] == [{"x": 1}] * 2
        assert as_lists(before.observations)[1] == [1, 1, 2], "the batch given before has changed"
        after = envs.step([1, 2, 3, 4, 5])
        assert as_lists(after.observations) == [
            [1, 2, 1],
            [2, 1, 2],
            [1, 2, 3],
            [1, 2, 4],
            [2, 1, 5],
        ]
        assert after.terminated == [False] * 5


@pytest.mark.parametrize("by", ["env_ids", "mask"])
def test_seeds_of_some(setup: dict[str, Any], by: str) -> None:
    with agym.make(Tally, 4, **setup) as envs:
        envs.reset()
        if by == "env_ids":
            infos = envs.reset(seed=[30, None, 10], env_ids=[3, 2, 1]).infos
        else:  # Gymnasium's form: a seed for each environment, also for those left alone
            mask = np.array([False, True, True, True])
            options = {"reset_mask": mask}
            infos = envs.reset(seed=[99, 10, None, 30], options=options).infos
            assert options["reset_mask"] is mask, "the caller's options were changed"
        assert [info.get("seed", "none") for info in infos] == ["none", 10, None, 30]


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_a_finished_environment_may_be_reset_alone(setup: dict[str, Any], mode: Any) -> None:
    with agym.make(tallies(1, 1, 4), autoreset=mode, **setup) as envs:
        envs.reset()
        envs.step([0, 0, 0])
        envs.reset(env_ids=[1])
        observations, rewards, terminated, _, _ = envs.step([7, 7, 7])
        assert as_lists(observations)[1:] == [[2, 1, 7], [1, 2, 7]]
        assert rewards[0] == 0.0
        assert as_lists(observations)[0] == ([2, 0, -1] if mode == "next_step" else [1, 1, 0])
        assert terminated == [mode == "disabled", True, False]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_gymnasiums_enumeration_is_understood(setup: dict[str, Any], mode: AutoresetMode) -> None:
    with agym.make(Tally, 2, autoreset=mode, **setup) as envs:
        assert envs.metadata["autoreset_mode"] is mode
    named = mode.name.lower()
    with agym.make(Tally, 2, autoreset=named, **setup) as envs:
        assert envs.metadata["autoreset_mode"] is mode


def test_a_seeded_reset_repeats_everything(setup: dict[str, Any]) -> None:
    with agym.make("CartPole-v1", 3, autoreset="next_step", output="array", **setup) as envs:

        def play() -> list[Any]:
            envs.action_space.seed(3)
            reset = envs.reset(seed=[5, 6, 7])
            return [reset, *(envs.step(envs.action_space.sample()) for _ in range(60))]

        assert same(play(), play())
