"""SB3's own wrappers over AgymVecEnv do what they do over DummyVecEnv."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agym
from tests.support.training import assert_same, course, each_place, random_envs, vec_envs

WRAPPERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "VecNormalize": ("box", vec_envs.VecNormalize),
    "VecMonitor": ("box", vec_envs.VecMonitor),
    "VecFrameStack": ("image", partial(vec_envs.VecFrameStack, n_stack=3)),
    "VecTransposeImage": ("image", vec_envs.VecTransposeImage),
    "VecCheckNan": ("box", partial(vec_envs.VecCheckNan, raise_exception=True)),
    "VecExtractDictObs": ("dict", partial(vec_envs.VecExtractDictObs, key="b")),
    "several": ("box", lambda env: vec_envs.VecFrameStack(vec_envs.VecNormalize(env), n_stack=2)),
}


@each_place
@pytest.mark.parametrize(("observations", "wrapper"), WRAPPERS.values(), ids=WRAPPERS)
def test_wrapped(observations: str, wrapper: Any, options: dict[str, Any]) -> None:
    functions = random_envs(observations)
    ours = wrapper(agym.sb3.AgymVecEnv(functions, **options))
    assert_same(course(ours, 100), course(wrapper(vec_envs.DummyVecEnv(functions)), 100))


def test_statistics_are_saved_and_loaded(tmp_path: Path) -> None:
    vec_env = vec_envs.VecNormalize(agym.sb3.AgymVecEnv(random_envs("box"), backend="serial"))
    course(vec_env, 20)
    vec_env.save(str(tmp_path / "normalize.pkl"))
    other = agym.sb3.AgymVecEnv(random_envs("box"), backend="serial")
    loaded = vec_envs.VecNormalize.load(str(tmp_path / "normalize.pkl"), other)
    assert loaded.obs_rms.mean.tolist() == vec_env.obs_rms.mean.tolist()
    loaded.close()


@each_place
def test_videos(options: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("pygame", reason="rendering CartPole needs pygame: the extra `render`")
    moviepy = pytest.importorskip("moviepy", reason="VecVideoRecorder needs moviepy")
    pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # no thread that watches progress bars
    make = partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")
    shapes = []
    for name, vec_env in (("ours", agym.sb3.AgymVecEnv([make] * 2, **options)),
                          ("theirs", vec_envs.DummyVecEnv([make] * 2))):  # fmt: skip
        folder = tmp_path / name
        recorder = vec_envs.VecVideoRecorder(vec_env, str(folder), lambda k: k == 2, video_length=4)
        course(recorder, 12)
        (path,) = folder.glob("*.mp4")
        with moviepy.VideoFileClip(str(path)) as clip:
            shapes.append((path.name, clip.n_frames, clip.fps, clip.size))
    assert shapes[0] == shapes[1]
