"""Results equal the results of plain environments, and never change."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
from gymnasium import Space, spaces
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agym.errors import EnvError
from agym.testing.law import assert_same, law, play
from agym.testing.random_env import RandomEnv
from agym.testing.strategies import any_spaces
from agym.testing.worlds import World

EXAMPLES = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@law("single")
def batches_of_any_spaces_equal_those_of_serial(world: World) -> None:
    """The same seeds and actions produce the same batches, for any spaces."""

    @settings(EXAMPLES, max_examples=world.examples)
    @given(any_spaces(), any_spaces(), st.integers(1, 5), st.integers(0, 1000))
    def compare(
        observation_space: Space[Any], action_space: Space[Any], num_envs: int, seed: int
    ) -> None:
        env = partial(RandomEnv, observation_space, action_space)
        with (
            world.open_envs(world.adapt(env), num_envs, output="list") as ours,
            world.serial.open_envs(env, num_envs, output="list") as theirs,
        ):
            assert_same(ours.reset(seed=seed), theirs.reset(seed=seed))
            ours.action_space.seed(seed)
            for _ in range(15):
                actions = ours.action_space.sample()
                assert_same(ours.step(actions), theirs.step(actions))
            assert ours.render() == theirs.render()
            some = list(range(0, num_envs, 2))
            arguments = {"seed": seed, "options": {"difficulty": seed}, "env_ids": some}
            assert_same(ours.reset(**arguments), theirs.reset(**arguments))

    compare()


@law()
def a_run_equals_that_of_serial(world: World) -> None:
    """The sync API on ``serial`` returns the same arrays and infos.

    The infos include the final observation and info of ``same_step``. Those of a vector
    environment have another form.
    """
    for truncates in (False, True):
        with (
            world.open(5, truncates=truncates) as ours,
            world.serial.open(5, truncates=truncates) as theirs,
        ):
            for one, other in zip(play(ours), play(theirs), strict=True):
                assert_same(one[:-1], other[:-1])
                if "single" in world.has:
                    assert_same(one.infos, other.infos)


@law()
def returned_batches_never_change(world: World) -> None:
    """A batch does not change while environments step, nor when they are closed."""
    for output in ("array", "list"):
        with world.open(4, output=output) as envs:
            results = [envs.reset(seed=0)]
            copies = [copy.deepcopy(results[0])]
            for k in range(8):
                results.append(envs.step([k] * 4))
                copies.append(copy.deepcopy(results[-1]))
            if "single" in world.has:
                envs.reset(env_ids=[1])
                envs[0].step(0)
        assert_same(results, copies)


@law()
def views_are_valid_until_the_next_but_one_batch(world: World) -> None:
    """With ``copy=False``; calls for some environments are not batches of all."""
    with world.with_options(copy=False).open(3, length=99) as envs:
        latest = [envs.reset()]
        copies = copy.deepcopy(latest)
        for k in range(6):
            latest = [*latest[-1:], envs.step([k] * 3)]
            copies = [*copies[-1:], copy.deepcopy(latest[-1])]
            assert_same(latest, copies)
        if "single" in world.has:
            envs.reset(env_ids=[0])
            envs[1].step(0)
            assert_same(latest, copies)


@law()
def lists_hold_the_values_of_arrays(world: World) -> None:
    """``output="list"`` returns the same values as ``output="array"``."""
    with world.open(4) as arrays, world.open(4, output="list") as lists:
        for of_arrays, of_lists in zip(play(arrays), play(lists), strict=True):
            for array, values in zip(of_arrays[:-1], of_lists[:-1], strict=True):
                assert type(values) is not type(array)
                assert array.tolist() == [
                    value.tolist() if hasattr(value, "tolist") else value for value in values
                ]


@law("single")
def episode_statistics_count_all_steps(world: World) -> None:
    """``info["episode"]`` comes with the last step; steps of some and sent steps count as well."""

    def told(info: dict[str, Any]) -> Any:
        assert info.keys() <= {"final_obs", "final_info", "episode"}
        episode = info.get("final_info", info).get("episode", {})
        return episode.get("r"), episode.get("l")

    with world.with_options(infos="episode").open(3, length=4) as envs:
        observations, infos = envs.reset(seed=0)
        expected = [(pytest.approx(4 * row[0] + 10 / 16), 4) for row in observations]
        assert infos == [{}] * 3
        envs.step([0, 0, 0])
        envs.step([0, 0], env_ids=[0, 2])
        envs.send([0, 0, 0])
        assert envs.recv(min_envs=3).infos == [{}] * 3
        infos = envs.step([0, 0, 0]).infos
        assert [*map(told, infos)] == [expected[0], (None, None), expected[2]]
        assert told(envs.step([0], env_ids=[1]).infos[0]) == expected[1]
        assert envs.reset(env_ids=[1]).infos == [{}] * 3
        steps = [envs.step([0], env_ids=[1]) for _ in range(4)]
        total = pytest.approx(4 * steps[0].observations[0, 0] + 10 / 16)
        assert [told(step.infos[0]) for step in steps] == [(None, None)] * 3 + [(total, 4)]


@law("single")
def an_episode_that_a_fault_ends_has_no_statistics(world: World) -> None:
    """The next episode of the environment has them again."""
    options = {"infos": "episode", "on_fault": "restart"}
    with world.with_options(**options).open(2, length=3) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        envs.script.set(1, "step", "raise")
        info = envs.step([0, 0]).infos[1]
        assert "fault" in info
        assert "episode" not in {**info, **info.get("final_info", {})}
        if world.autoreset == "disabled":
            envs.reset(env_ids=[1])
        elif world.autoreset == "next_step":
            envs.step([0], env_ids=[1])
        infos = [envs.step([0], env_ids=[1]).infos[0] for _ in range(3)]
        episodes = [info.get("final_info", info).get("episode", {}) for info in infos]
        assert [episode.get("l") for episode in episodes] == [None, None, 3]


@law("processes")
def a_replayed_episode_has_the_statistics_of_all_its_steps(world: World) -> None:
    """The steps before the death of the worker count as well."""
    options = {"workers": 1, "infos": "episode", "on_fault": "replay"}
    with world.with_options(**options).open(2, length=5) as envs:
        draw = envs.reset(seed=0).observations[0, 0]
        envs.script.set(1, "step", "kill", after=2)
        info = [envs.step([0, 0]) for _ in range(5)][-1].infos[0]
        assert envs.stats().workers[0].restarts == 1
        episode = info.get("final_info", info)["episode"]
        assert (episode["r"], episode["l"]) == (pytest.approx(5 * draw + 15 / 16), 5)


@law()
def infos_are_left_out_on_demand(world: World) -> None:
    """``infos="none"`` returns the same batches, and of all infos only final observations."""
    with world.with_options(infos="none").open(2) as ours, world.open(2) as theirs:
        for one, other in zip(play(ours), play(theirs), strict=True):
            assert_same(one[:-1], other[:-1])
            for info, full in zip(one.infos, other.infos, strict=True):
                assert_same(info.pop("final_obs", None), full.get("final_obs"))
                assert info.pop("final_info", {}) == info == {}


@law("single")
def a_fault_is_reported_without_other_infos(world: World) -> None:
    """Under ``infos="none"``, the info of a fault has the fault alone."""
    with world.with_options(infos="none", on_fault="restart").open(2) as envs:
        envs.reset()
        envs.script.set(1, "step", "raise")
        info = envs.step([0, 0]).infos[1]
        assert {"fault"} <= info.keys() <= {"fault", "final_obs", "final_info"}
        assert info.get("final_info", {}) == {}


@law("single")
def infos_of_earlier_steps_do_not_come_back(world: World) -> None:
    """A step without an info has an empty one, and a step after an error has its own."""
    with world.open(3, length=99) as envs:
        envs.reset()
        envs.send([0] * 3)
        envs.recv(min_envs=3)
        for empty in ([1], [0, 1, 2], [0, 1]):
            for i in empty:
                envs.script.set(i, "step", "no info")
            infos = envs.step([0] * 3).infos
            assert [bool(info) for info in infos] == [i not in empty for i in range(3)]
            envs.script.set(1, "step", "no info")
            assert envs.step([0], env_ids=[1]).infos == [{}]
        envs.script.set(1, "step", "raise")
        with pytest.raises(EnvError):
            envs.step([0] * 3)
        envs.reset(env_ids=[1])
        assert [info["now"] for info in envs.step([0] * 3).infos] == [6, 1, 6]


@law("single")
def values_without_a_fixed_size_come_as_they_are(world: World) -> None:
    """Texts and nested values are returned as the environment returned them."""
    space = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Text(4))
    env = partial(RandomEnv, space, spaces.Discrete(3))
    with world.open_envs(world.adapt(env), 3) as ours, world.serial.open_envs(env, 3) as theirs:
        assert_same(ours.reset(seed=1), theirs.reset(seed=1))
        for k in range(6):
            assert_same(ours.step([k % 3] * 3), theirs.step([k % 3] * 3))
