"""Every wrapper of ``gymnasium.wrappers.vector`` does what it does over SyncVectorEnv."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers as single
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import agym
from tests.support.envs.plain_envs import Nested
from tests.support.equality import same_values


def cartpole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", max_episode_steps=20, render_mode="rgb_array")


def pendulum() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", max_episode_steps=20)


class Image(gymnasium.Env[Any, Any]):
    """Observes noise as a picture."""

    observation_space = gymnasium.spaces.Box(0, 255, (24, 16, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: Any) -> Any:
        return self._picture(), 1.0, bool(self.np_random.random() < 0.1), False, {}

    def _picture(self) -> Any:
        return self.np_random.integers(0, 256, (24, 16, 3), np.uint8)


def half(values: Any) -> Any:
    return values / 2


# For each wrapper of Gymnasium's: around which environment, and with which arguments.
PLAIN: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "DictInfoToList": (cartpole, {}),
    "RecordEpisodeStatistics": (cartpole, {}),
    "NormalizeObservation": (cartpole, {}),
    "NormalizeReward": (pendulum, {}),
    "ClipReward": (pendulum, {"min_reward": -1.0, "max_reward": 0.0}),
    "TransformReward": (pendulum, {"func": half}),
    "VectorizeTransformReward": (pendulum, {"wrapper": single.TransformReward, "func": half}),
    "TransformObservation": (cartpole, {"func": half}),
    "VectorizeTransformObservation": (
        cartpole,
        {"wrapper": single.TransformObservation, "func": half, "observation_space": None},
    ),
    "FilterObservation": (Nested, {"filter_keys": ["id"]}),
    "FlattenObservation": (cartpole, {}),
    "GrayscaleObservation": (Image, {}),
    "ResizeObservation": (Image, {"shape": (12, 8)}),
    "ReshapeObservation": (cartpole, {"shape": (2, 2)}),
    "RescaleObservation": (Image, {"min_obs": np.float32(0), "max_obs": np.float32(1)}),
    "DtypeObservation": (cartpole, {"dtype": np.float64}),
    "TransformAction": (pendulum, {"func": half}),
    "VectorizeTransformAction": (
        pendulum,
        {"wrapper": single.TransformAction, "func": half, "action_space": None},
    ),
    "ClipAction": (pendulum, {}),
    "RescaleAction": (pendulum, {"min_action": np.float32(-1), "max_action": np.float32(1)}),
}
ELSEWHERE = {
    "NumpyToTorch", "ArrayConversion", "JaxToNumpy", "JaxToTorch",  # libraries of their own
    "RecordVideo", "HumanRendering",  # give files and windows
}  # fmt: skip


def test_no_wrapper_is_forgotten() -> None:
    known = {name for name in wrappers.__all__ if name[0].isupper()} - {
        "VectorObservationWrapper", "VectorActionWrapper", "VectorRewardWrapper",
    }  # fmt: skip
    assert known == PLAIN.keys() | ELSEWHERE


def without_times(info: Any) -> Any:
    """What took how long differs."""
    if isinstance(info, dict):
        return {key: without_times(value) for key, value in info.items() if key not in ("t", "_t")}
    if isinstance(info, np.ndarray) and info.dtype.hasobject:
        return info.tolist()
    return [without_times(one) for one in info] if isinstance(info, list) else info


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("name", PLAIN)
def test_wrappers(name: str, mode: AutoresetMode) -> None:
    factory, arguments = PLAIN[name]
    wrap = partial(getattr(wrappers, name), **arguments)
    if name == "ResizeObservation":
        pytest.importorskip("cv2")
    ours: Any = agym.AgymVectorEnv([factory] * 3, workers=2, autoreset_mode=mode, context="fork")
    theirs: Any = SyncVectorEnv([factory] * 3, autoreset_mode=mode)
    with closing(ours), closing(theirs):
        try:
            theirs = wrap(theirs)
        except (AssertionError, ValueError) as refused:  # same-step is not for this one
            with pytest.raises(type(refused)):
                wrap(ours)
            return
        ours = wrap(ours)
        assert ours.observation_space == theirs.observation_space
        assert same_values(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
        theirs.action_space.seed(1)
        for _ in range(60):
            actions = theirs.action_space.sample()
            a, b = ours.step(actions.copy()), theirs.step(actions)  # some change them
            assert same_values(a[:4], b[:4])
            assert same_values(without_times(a[4]), without_times(b[4]))


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    with closing(wrappers.NumpyToTorch(agym.make_vec("CartPole-v1", 3))) as envs:
        observations, _ = envs.reset(seed=0)
        assert isinstance(observations, torch.Tensor)
        _, rewards, *_ = envs.step(torch.tensor([0, 1, 0]))
        assert rewards.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.full
def test_videos(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    folder = tmp_path / "videos"
    made = agym.AgymVectorEnv([cartpole] * 2, context="fork")
    with closing(wrappers.RecordVideo(made, str(folder), episode_trigger=lambda k: k == 0)) as envs:
        envs.reset(seed=0)
        for _ in range(40):
            envs.step(envs.action_space.sample())
    assert [path.suffix for path in folder.iterdir() if path.suffix == ".mp4"]
