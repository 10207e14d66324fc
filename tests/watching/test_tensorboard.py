"""What TensorBoard reads is what the environments did, whoever steps them and however."""

from __future__ import annotations

import io
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import av
import gymnasium as gym
import numpy as np
import pytest

import agym
from agym.watching.live.metrics import Metrics
from tests.support.drivers import (
    APIS,
    SERIAL,
    SETUPS,
    Setup,
    attached,
    each_mode,
    everywhere,
    opened,
)
from tests.support.insides import engine_of
from tests.support.patience import patience
from tests.watching.video.test_recording import SHAPE, counters

boards = pytest.importorskip("tensorboardX", reason="the extra tensorboard brings it")
events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder: Path) -> Any:
    """All that was written."""
    found = events.EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    found.Reload()
    return found


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(name)]


def short(length: int = 9) -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(gym.make("CartPole-v1"), length)


def swing(length: int) -> gym.Env[Any, Any]:
    """Rewards that are different in every step, and not exact when they are added up."""
    return gym.wrappers.TimeLimit(gym.make("Pendulum-v1"), length)


SWINGS = [partial(swing, length) for length in (5, 7, 8)]


class Alone:
    """What a plain loop over Gymnasium's own statistics would write after each round."""

    def __init__(self, mode: str, step: int) -> None:
        self.envs = [gym.wrappers.RecordEpisodeStatistics(make()) for make in SWINGS]
        self.over = [False] * len(self.envs)
        self.mode, self.step_count = mode, step
        self.points: list[tuple[int, float, float]] = []
        self.returns: list[float] = []

    def reset(self, seed: int | None, ids: Any) -> None:
        for i in ids:
            self.envs[i].reset(seed=None if seed is None else seed + i)
            self.over[i] = False

    def step(self, actions: Any) -> None:
        ended = []
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if self.over[i]:
                if self.mode == "next_step":
                    env.reset()
                    self.over[i] = False
                continue
            *_, terminated, truncated, info = env.step(action)
            self.step_count += 1
            if terminated or truncated:
                ended.append(info["episode"])
                if self.mode == "same_step":
                    env.reset()
                else:
                    self.over[i] = True
        if ended:
            returns, lengths = ([episode[key] for episode in ended] for key in "rl")
            self.returns += returns
            self.points.append((self.step_count, np.mean(returns), np.mean(lengths)))


@pytest.mark.parametrize("stats", [False, True], ids=["counted", "told"])
@each_mode
@pytest.mark.parametrize("setup", SETUPS)
def test_points_are_those_of_gymnasiums_statistics(
    setup: dict[str, Any], mode: str, stats: bool, tmp_path: Path
) -> None:
    """So are the returns of the live page."""
    alone = Alone(mode, step=5)
    random = np.random.default_rng(0)
    writer = boards.SummaryWriter(str(tmp_path))
    with (
        agym.make(SWINGS, autoreset=mode, episode_stats=stats, **setup) as envs,
        agym.tensorboard(envs, writer, every=1, step=5, prefix="run/") as log,
    ):
        metrics = Metrics(envs.tap)
        metrics.start()
        envs.reset(seed=3)
        alone.reset(3, range(3))
        for k in range(60):
            if k in (9, 17, 20, 33, 34, 46):  # in the midst of episodes, too
                envs.reset(seed=[k, k + 2], env_ids=[0, 2])
                alone.reset(k, [0, 2])
            actions = [*random.uniform(-2, 2, (3, 1)).astype(np.float32)]
            envs.step(actions)
            alone.step(actions)
        assert log.step == alone.step_count
        numbers = metrics.read()
        envs.tap.remove_hook(metrics)
    writer.close()
    shown = [dot[1] for dot in numbers["dots"]]
    assert sorted(shown) == pytest.approx(sorted(alone.returns))
    assert numbers["mean"] == pytest.approx(np.mean(shown[-100:]))
    assert numbers["steps"] == alone.step_count - 5
    returns, lengths = (scalars(tmp_path, f"run/episodes/{name}") for name in ("return", "length"))
    assert len({value for _, value in returns}) > 8
    assert returns == [(step, np.float32(value)) for step, value, _ in alone.points]
    assert lengths == [(step, np.float32(value)) for step, _, value in alone.points]
    ended = scalars(tmp_path, "run/episodes/ended")
    assert ended[-1][0] == alone.step_count


@pytest.mark.parametrize("api", APIS)
@everywhere
def test_clips_show_their_steps(setup: Setup, api: str, tmp_path: Path) -> None:
    """Two rounds of every five, decoded again."""
    clip = {"video_every": 10, "video_length": 2, "fps": 10, "scale": 1}
    with opened(api, counters(setup), **setup.options) as envs:
        envs.reset()
        with attached(envs, partial(agym.tensorboard, writer=tmp_path, **clip)):
            for _ in range(6):
                envs.step([0, 0])
    clips = read(tmp_path).Images("envs/video")
    assert [clip.step for clip in clips] == [0, 10]
    assert [steps_of(clip.encoded_image_string) for clip in clips] == [[0, 1], [5, 6]]


@pytest.mark.parametrize("package", ["tensorboardX", "torch.utils.tensorboard"])
@pytest.mark.parametrize("derived", [False, True])
def test_clips_are_written_by_either_librarys_writer(
    derived: bool, package: str, tmp_path: Path
) -> None:
    kind = pytest.importorskip(package, reason=f"{package} is missing").SummaryWriter
    if derived:
        kind = type("Logger", (kind,), {"__module__": __name__})
    writer = kind(str(tmp_path))
    with agym.make(counters(SERIAL), backend="serial") as envs:
        envs.reset()
        with agym.tensorboard(envs, writer, video_every=10, video_length=2, scale=1):
            for _ in range(3):
                envs.step([0, 0])
    writer.close()
    (clip,) = read(tmp_path).Images("envs/video")
    assert steps_of(clip.encoded_image_string) == [0, 1]


def steps_of(gif: bytes) -> list[int]:
    """How often the first environment had stepped, in each picture."""
    with av.open(io.BytesIO(gif)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert all(picture.shape == (66, 48, 3) for picture in pictures)
    return [int(picture[3, 3, 0]) // 20 for picture in pictures]


class Sink:
    """Another writer, which may be slow, or raise."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may = threading.Event()
        self.error = error
        self.scalars: list[tuple[str, float, int]] = []
        self.videos: list[Any] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        assert self.may.wait(patience())
        if self.error is not None:
            raise self.error
        self.scalars.append((tag, value, step))

    def add_video(self, tag: str, clip: Any, step: int, fps: float) -> None:
        self.videos.append((tag, clip, step, fps))


def test_steps_do_not_wait_for_a_slow_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no episode is lost: later points stand for more of them."""
    monkeypatch.setattr("agym.watching.log.MAX_WAITING", 4)
    monkeypatch.setattr("agym.watching.log.STATS_SECONDS", 0.0)
    sink = Sink()
    with agym.make([short] * 2, backend="serial", autoreset="same_step") as envs:
        envs.reset(seed=0)
        with agym.tensorboard(envs, sink, every=1) as log:
            for _ in range(40):
                envs.step([0, 1])
            assert sink.scalars == []
            sink.may.set()
    by_name: dict[str, list[tuple[int, float]]] = {}
    for tag, value, step in sink.scalars:
        by_name.setdefault(tag, []).append((step, value))
    assert len(by_name["episodes/ended"]) <= 6
    assert sum(value for _, value in by_name["episodes/ended"]) >= 8
    assert by_name["episodes/ended"][-1][0] == log.step == 80
    assert by_name["envs/steps_per_second"][-1][1] > 0
    assert {tag for tag in by_name if tag.startswith("envs/")} == {
        f"envs/{name}"
        for name in (
            "steps_per_second", "busy", "faults", "restarts", "memory_mb",
            "queue_us", "work_us", "transport_us", "caller_us",
        )
    }  # fmt: skip


@pytest.mark.parametrize("module", [__name__, "torch.nn"])
def test_other_writers_get_videos_as_tensors(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a class of torch that is not its SummaryWriter."""
    monkeypatch.setattr(Sink, "__module__", module)
    sink = Sink()
    sink.may.set()
    with agym.make(counters(), backend="serial") as envs:
        envs.reset()
        with agym.tensorboard(envs, sink, video_every=8, video_length=3, env_ids=[1]):
            for _ in range(3):
                envs.step([0, 0])
    ((tag, clip, step, fps),) = sink.videos
    assert (tag, step, fps) == ("envs/video", 0, 30.0)
    assert (clip.dtype, clip.shape) == (np.uint8, (1, 3, 3, *SHAPE[:2]))
    assert clip[0, :, 0, 5, 5].tolist() == [0, 20, 40]


@pytest.mark.parametrize("api", APIS)
def test_what_was_there_is_written_when_the_block_raises(api: str, tmp_path: Path) -> None:
    attach = partial(agym.tensorboard, writer=tmp_path)
    with opened(api, [short] * 2, backend="serial", autoreset="same_step") as envs:
        envs.reset(seed=0)
        with pytest.raises(ZeroDivisionError), attached(envs, attach):  # noqa: PT012
            for _ in range(10):
                envs.step([0, 0])
            raise ZeroDivisionError
    assert [count for _, count in scalars(tmp_path, "episodes/ended")] == [2.0]


def test_what_writing_raises_is_told_at_the_end() -> None:
    sink = Sink(OSError("no space left"))
    sink.may.set()
    with agym.make([short] * 2, **SERIAL.options) as envs:
        envs.reset()
        with (
            pytest.raises(OSError, match="no space"),
            agym.tensorboard(envs, sink, every=1),
        ):
            envs.step([0, 0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every"), ({"step": -1}, "step"), ({"env_ids": [2]}, "env_ids"),
        ({"video_every": 0}, "video_every"), ({"video_every": 9}, "render_mode"),
        ({"writer": object()}, "add_scalar"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with agym.make([short] * 2, backend="serial") as envs:
        with pytest.raises(agym.UsageError, match=words):
            agym.tensorboard(envs, **{"writer": tmp_path, **options})
        assert not engine_of(envs).hooks.all
    assert not [*tmp_path.iterdir()]


def test_tensorboard_is_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with (
        agym.make([short] * 2, backend="serial") as envs,
        pytest.raises(agym.MissingExtraError, match=r'^tensorboardX is not .*\[tensorboard\]"$'),
    ):
        agym.tensorboard(envs, tmp_path)
