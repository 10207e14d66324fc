"""The sync API: ``Envs`` with and without the types of a batch."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import agym

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def arrays() -> None:
    envs: agym.Envs[Floats, Ints]
    with agym.make("CartPole-v1", 8, output="array") as envs:
        assert_type(envs.reset(seed=0), agym.ResetResult[Floats])
        observations, infos = envs.reset(seed=[1, None, 3], options={"low": -0.1}, env_ids=[0, 2])
        assert_type(observations, Floats)
        assert_type(infos, list[dict[str, Any]])

        result = envs.step(np.zeros(8, np.int64))
        assert_type(result.observations, Floats)
        observations, rewards, terminated, truncated, infos = result
        assert_type(observations, Floats)
        print(rewards.sum(), terminated | truncated)

        assert_type(envs.render(), list[Any])
        assert_type(envs.call("seed"), list[Any])
        assert_type(envs.stats().envs[0].p50, float | None)
        assert_type(envs.num_envs, int)
        assert_type(envs.render_mode, str | None)
        envs.step(envs.action_space.sample())
        print(envs.gravity, envs.unwrapped.gravity)


def lists(envs: agym.Envs[list[str], list[int]]) -> None:
    observations, _ = envs.reset()
    assert_type(observations[0], str)
    assert_type(envs.step([len(text) for text in observations]).observations, list[str])


def first_k(envs: agym.Envs[Floats, Ints]) -> None:
    envs.send(np.zeros(8, np.int64))
    batch = envs.recv(4, timeout=1.0)
    assert_type(batch, agym.Batch[Floats])
    assert_type(batch.observations, Floats)
    for batch in envs.as_completed(min_envs=2, max_envs=4):
        assert_type(batch.observations, Floats)
        envs.send(np.zeros(len(batch.infos), np.int64), batch.env_ids)


def groups(envs: agym.Envs[Floats, Ints]) -> None:
    for group in envs.split(2):
        assert_type(group, agym.Envs[Floats, Ints])


def handles(envs: agym.Envs[Floats, Ints]) -> None:
    env: agym.EnvHandle[Floats, int] = envs[0]
    assert_type(env.reset(seed=0), tuple[Floats, dict[str, Any]])
    observation, reward, terminated, truncated, info = env.step(1)
    assert_type(observation, Floats)
    assert_type(reward, float)
    assert_type(terminated, bool)
    assert_type(truncated, bool)
    assert_type(info, dict[str, Any])
    for other in envs:
        assert_type(other, agym.EnvHandle[Any, Any])


def without_types(envs: agym.Envs, env: agym.EnvHandle, batch: agym.Batch) -> None:
    """Plain names are complete annotations: everything in a batch is ``Any``."""
    assert_type(envs.reset(), agym.ResetResult[Any])
    assert_type(envs.step([0, 1]).observations, Any)
    assert_type(env.reset(), tuple[Any, dict[str, Any]])
    assert_type(batch.observations, Any)
    assert_type(envs[0], agym.EnvHandle[Any, Any])


def one_type(envs: agym.Envs[Floats]) -> None:
    """The type of actions may be left out."""
    assert_type(envs.step([0, 1]).observations, Floats)


def look(envs: agym.Envs[object, Ints]) -> object:
    return envs.reset().observations


def variance(envs: agym.Envs[Floats, list[int] | Ints], few: agym.Envs[Floats, list[int]]) -> None:
    """What takes more actions and gives more particular observations will do."""
    look(envs)
    look(few)  # type: ignore[arg-type]


def mistakes(envs: agym.Envs[Floats, Ints], env: agym.EnvHandle[Floats, int]) -> None:
    envs.step("left")  # type: ignore[arg-type]
    envs.send([0, 1])  # type: ignore[arg-type]
    envs.reset(seed="now")  # type: ignore[arg-type]
    envs.reset(1, None, [0])  # type: ignore[call-arg]
    envs.recv(min_envs="all")  # type: ignore[arg-type]
    text: str = envs.reset().observations  # type: ignore[assignment]
    print(text)
    envs.step(np.zeros(8, np.int64)).states  # type: ignore[attr-defined]
    env.step(np.zeros(1, np.int64))  # type: ignore[arg-type]
    env.reset(0)  # type: ignore[call-arg]
    agym.make("CartPole-v1", 8, "process")  # type: ignore[call-overload]
    agym.make("CartPole-v1", output="tensor")  # type: ignore[call-overload]
    agym.make("CartPole-v1", workers="all")  # type: ignore[call-overload]
    agym.make(3)  # type: ignore[call-overload]
