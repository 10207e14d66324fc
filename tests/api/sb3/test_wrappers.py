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


@each_place
def test_videos(options: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("pygame", reason="rendering CartPole needs pygame: the extra `render`")
    moviepy = pytest.importorskip("moviepy", reason="VecVideoRecorder needs moviepy")
    pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # no thread that watches progress bars
    make = partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")
    found = []
    for k, kind in enumerate((partial(agym.sb3.AgymVecEnv, **options), vec_envs.DummyVecEnv)):
        folder = str(tmp_path / str(k))
        course(vec_envs.VecVideoRecorder(kind([make] * 2), folder, lambda k: k == 2, 4), 12)
        (path,) = Path(folder).glob("*.mp4")
        with moviepy.VideoFileClip(str(path)) as clip:
            found.append((path.name, clip.n_frames, clip.fps, clip.size))
    assert found[0] == found[1]
