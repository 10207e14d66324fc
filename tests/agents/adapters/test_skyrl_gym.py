"""SkyRL-Gym's environments in agym, and agym's in SkyRL-Gym, with its release."""

from __future__ import annotations

from typing import Any

import pytest
import skyrl_gym

import agym
from tests.support.envs.text_envs import Guess

adapter = agym.adapters.skyrl_gym

TASKS = [
    {
        "prompt": [{"role": "user", "content": f"What is {n} times 7?"}],
        "reward_spec": {"ground_truth": str(n * 7)},
        "max_turns": 2,
    }
    for n in range(5)
]


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_episodes_are_those_of_skyrl(backend: str) -> None:
    factory = adapter.factory("gsm8k_multi_turn", TASKS)
    with agym.make(factory, 5, backend=backend) as envs:
        for i, env in enumerate(envs):
            observation, info = env.reset(options={"task": i})
            assert observation == TASKS[i]["prompt"]
            assert info["task"] == i
        step = envs.step(["#### 14"] * 5)
        assert step.rewards == [0.1, 0.1, 1.0, 0.1, 0.1]
        assert step.terminated == [False, False, True, False, False]
        assert step.observations[0][0]["role"] == "user"
        assert step.infos[2]["metrics"] == {"steps": 1}
        step = envs.step(["I do not know"] * 4, env_ids=[0, 1, 3, 4])
        assert step.rewards == [0.0] * 4
        assert (step.terminated, step.truncated) == ([True] * 4, [False] * 4)
        assert step.observations == [[]] * 4


def test_seeds_draw_the_tasks() -> None:
    factory = adapter.factory("gsm8k", TASKS)
    with agym.make(factory, 64) as envs:
        drawn = [info["task"] for info in envs.reset(seed=1).infos]
        assert [info["task"] for info in envs.reset(seed=1).infos] == drawn
        assert {*drawn} == {0, 1, 2, 3, 4}
        again = [info["task"] for info in envs.reset().infos]
        assert again != drawn


def test_an_environment_that_refuses_a_task_is_a_fault_of_it() -> None:
    factory = adapter.factory("gsm8k", [{"prompt": []}])
    with agym.make(factory) as envs, pytest.raises(agym.EnvError, match="reward_spec"):
        envs.reset()


def test_an_environment_of_agym_is_one_of_skyrl() -> None:
    adapter.register("agym-guess", Guess, most=9, turns=3)
    prompt = [{"role": "system", "content": "You guess."}]
    env = skyrl_gym.make("agym-guess", extras={"seed": 4})
    chat, info = env.init(prompt)
    assert chat == [*prompt, {"role": "user", "content": "guess a number up to 9"}]
    output = env.step("0")
    assert output["observations"] == [{"role": "user", "content": "higher"}]
    assert (output["reward"], output["done"]) == (0.0, False)
    output = env.step(str(info["number"]))
    assert (output["reward"], output["done"], output["observations"]) == (1.0, True, [])
    assert output["metadata"]["final_observation"] == "right"
    assert env.get_metrics() == {"turns": 2, "terminated": 1.0, "truncated": 0.0}
    assert env.aggregate_metrics([env.get_metrics()] * 2)["turns"] == 2
    env.close()
    with pytest.raises(agym.UsageError, match="already"):
        adapter.register("agym-guess", Guess)


@pytest.mark.parametrize("limit", [None, 1])
def test_limits_of_turns_cut_off(limit: int | None) -> None:
    extras: dict[str, Any] = {"options": {"number": 3}, "max_turns": limit}
    name = f"agym-guess-{limit}"
    adapter.register(name, Guess, turns=2)
    with skyrl_gym.make(name, extras=extras) as env:
        env.init([])
        output = [env.step("1") for _ in range(limit or 2)][-1]
        assert output["done"]
        assert (output["metadata"]["terminated"], output["metadata"]["truncated"]) == (False, True)


@pytest.mark.parametrize("task", [-1, 10**6, "6", 1.5, True])
def test_a_task_that_there_is_not(task: Any) -> None:
    with (
        agym.make(adapter.factory("gsm8k", TASKS)) as envs,
        pytest.raises(agym.EnvError, match=r"options\['task'\]=.* must be an integer from 0 to"),
    ):
        envs.reset(options={"task": task})
