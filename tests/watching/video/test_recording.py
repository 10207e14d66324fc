"""Videos are decoded again: each picture is there, in its time, whatever becomes of the caller."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import av
import numpy as np
import pytest
from typer.testing import CliRunner

import agym
from agym.cli.app import app
from agym.watching.video.movie import Movie, check_path
from agym.watching.video.writer import MAX_WAITING, Writer
from tests.support.drivers import APIS, FORKED, SERIAL, Setup, attached, everywhere, opened
from tests.support.envs.faulty_envs import Raises
from tests.support.envs.painting_envs import Painter
from tests.support.patience import patience

SHAPE = (32, 48, 3)
Picture = np.ndarray[Any, Any]


class Counter(Painter):
    """Its pictures have one colour, which says how often it stepped, and who it is."""

    def render(self) -> Any:
        self.canvas[:] = 20 * self.steps, 60 * self.me, 128
        return self.canvas


def counters(setup: Setup = SERIAL, count: int = 2) -> list[Any]:
    return [setup.adapt(partial(Counter, i, shape=SHAPE)) for i in range(count)]


@pytest.fixture
def envs() -> Iterator[Any]:
    """Two environments in this thread, after a reset."""
    with agym.make(counters(), backend="serial") as envs:
        envs.reset()
        yield envs


def decoded(path: Path) -> list[tuple[float, Picture]]:
    """Seconds and picture of each frame."""
    with path.open("rb") as file, av.open(file) as container:
        return [
            (float(frame.time), frame.to_ndarray(format="rgb24"))
            for frame in container.decode(video=0)
        ]


def steps_in(pictures: list[tuple[float, Picture]]) -> list[list[int]]:
    """How often each environment of a row of two had stepped, in each picture."""
    found = []
    for _, picture in pictures:
        assert picture.shape == (32, 98, 3)
        tiles = picture[:, :48], picture[:, 50:]
        colours = [tile[4:-4, 4:-4].reshape(-1, 3).mean(axis=0) for tile in tiles]
        for i, colour in enumerate(colours):
            assert abs(colour[1] - 60 * i) <= 6
        found.append([round(colour[0] / 20) for colour in colours])
    return found


@pytest.mark.parametrize("form", ["mp4", "gif"])
@pytest.mark.parametrize("api", APIS)
@everywhere
def test_each_step_is_a_picture(setup: Setup, api: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.{form}"
    with opened(api, counters(setup), **setup.options) as envs:
        envs.reset()
        with attached(envs, partial(agym.record, path=path, fps=10)):
            for _ in range(5):
                envs.step([0, 0])
        envs.reset()
    pictures = decoded(path)
    assert steps_in(pictures) == [[n, n] for n in range(6)]
    np.testing.assert_allclose([seconds for seconds, _ in pictures], np.arange(6) / 10, atol=0.01)


def test_gif_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "exact.gif"
    frames: list[Picture] = []
    with agym.make([partial(Painter, i, shape=(9, 11, 3)) for i in range(2)], **FORKED) as envs:
        envs.reset()
        with agym.record(envs, path, columns=2):
            for _ in range(4):
                frames.append(agym.mosaic(envs.render(), 2))
                envs.step([0, 0])
    pictures = [picture for _, picture in decoded(path)]
    assert len(pictures) == 5
    for picture, frame in zip(pictures, frames, strict=False):
        np.testing.assert_array_equal(picture, frame)


def test_every_so_many_steps_of_chosen_environments(tmp_path: Path) -> None:
    path = tmp_path / "some.gif"
    with agym.make(counters(count=4), backend="serial") as envs:
        envs.reset()
        options = {"env_ids": [1, 0], "every": 3, "fps": 20}
        with agym.record(envs, path, **options) as recording:
            for _ in range(7):
                envs.step([0] * 4)
            envs.step([0, 0], env_ids=[2, 3])  # they are not in the picture
        assert recording.frames == 4
        envs.step([0] * 4)
    assert steps_in(decoded(path)) == [[0, 0], [3, 3], [6, 6], [7, 7]]


def test_a_file_for_each_environment(envs: Any, tmp_path: Path) -> None:
    with agym.record(envs, tmp_path / "one.gif", mosaic=False, env_ids=[1]):
        envs.step([0, 0])
    (path,) = tmp_path.iterdir()
    assert path.name == "one-1.gif"
    (_, first), (_, second) = decoded(path)
    assert first.shape == SHAPE
    assert (first[3, 3].tolist(), second[3, 3].tolist()) == ([0, 60, 128], [20, 60, 128])


def test_steps_of_a_group_are_seen_whatever_call_makes_them(tmp_path: Path) -> None:
    path = tmp_path / "run.gif"
    with agym.make(counters(count=4), **FORKED, workers=2) as envs:
        envs.reset()
        group = envs.split(2)[1]
        with agym.record(group, path, env_ids=[0, 1]):
            group.step([0, 0])
            for env in envs:
                env.step(0)
            envs.send([0] * 4)
            envs.recv(min_envs=4)
        ids = group.env_ids[:2]
    pictures = decoded(path)
    assert len(pictures) == 4
    assert pictures[0][1][3, 60].tolist()[1] == 60 * ids[1]


def test_rewards_and_observations_are_those_without_a_recording(tmp_path: Path) -> None:
    def play(*, recorded: bool) -> list[Any]:
        with agym.make("CartPole-v1", 2, render_mode="rgb_array", **FORKED) as envs:
            results = [envs.reset(seed=1)[0]]
            recording = agym.record(envs, tmp_path / "a.mp4", scale=0.1) if recorded else None
            results += [envs.step([k % 2, 1])[:4] for k in range(12)]
            if recording is not None:
                recording.close()
        return results

    for ours, theirs in zip(play(recorded=True), play(recorded=False), strict=True):
        np.testing.assert_equal(ours, theirs)


class Slow(Movie):
    """Encodes once it may."""

    def __init__(self) -> None:
        self.may, self.began = threading.Event(), threading.Event()
        self.positions: list[int] = []

    def add(self, picture: Picture, position: int) -> None:
        self.began.set()
        assert self.may.wait(patience())
        self.positions.append(position)

    def close(self) -> None:
        self.positions.append(-1)


def test_a_writer_holds_a_few_renders_only() -> None:
    movie = Slow()
    writer = Writer([movie], lambda frames: frames)
    frame = np.zeros(SHAPE, np.uint8)
    writer.put(0, [frame])
    movie.began.wait()
    for k in range(1, MAX_WAITING):
        writer.put(k, [frame])
    assert (writer.has_room(0), writer.has_room(1)) == (True, False)
    writer.put(MAX_WAITING, [np.broadcast_to(frame, (100_000, *SHAPE))])  # hundreds of MB
    assert not writer.has_room(0)
    movie.may.set()
    writer.wait_for_room(1)
    writer.finish()
    assert movie.positions == [*range(MAX_WAITING + 1), -1]
    assert (writer.has_room(1), writer.has_room(2)) == (True, False)


def test_what_is_dropped_leaves_the_picture_before_it(
    envs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "run.gif"
    with agym.record(envs, path, fps=10) as recording:
        for k in range(6):
            full = k in (2, 3)
            monkeypatch.setattr(Writer, "has_room", lambda *_, full=full: not full)
            envs.step([0, 0])
    assert recording.dropped == 2
    pictures = decoded(path)
    assert steps_in(pictures) == [[n, n] for n in (0, 1, 4, 5, 6)]
    np.testing.assert_allclose([t for t, _ in pictures], [0, 0.1, 0.4, 0.5, 0.6], atol=0.01)


def test_without_drop_steps_wait_for_the_encoding(tmp_path: Path) -> None:
    with agym.make(counters(), **FORKED, workers=2) as envs:
        envs.reset()
        with agym.record(envs, tmp_path / "run.mp4", drop=False, scale=8) as recording:
            for _ in range(40):
                envs.step([0, 0])
    assert recording.frames == 41
    assert len(decoded(tmp_path / "run.mp4")) == 41


class Strange(Painter):
    def render(self) -> Any:
        return np.zeros((3, 4, 5), np.uint8)


@pytest.mark.parametrize(
    ("env", "error", "words"),
    [
        (partial(Raises, "render"), ExceptionGroup, "render"),
        (Strange, agym.UsageError, "is not a picture"),
    ],
)
def test_a_recording_without_any_picture_is_told_at_the_end(
    env: Any, error: Any, words: str, tmp_path: Path
) -> None:
    with agym.make([env] * 2, backend="serial") as envs:
        envs.reset()
        with (
            pytest.raises(error, match=words),
            agym.record(envs, tmp_path / "none.gif") as recording,
        ):
            envs.step([0, 0])
        assert error is agym.UsageError or recording.dropped == 2
    assert not (tmp_path / "none.gif").exists()


@pytest.mark.parametrize("chaos_first", [True, False])
def test_what_is_replaced_meanwhile_is_recorded_on(chaos_first: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.gif"
    policy = agym.FaultPolicy("restart", max_restarts=100)
    options: dict[str, Any] = {"on_fault": policy, "autoreset": "next_step"}
    with agym.make(counters(), **FORKED, workers=2, **options) as envs:
        envs.reset()
        attach = [partial(agym.chaos, error=0.3, seed=1), partial(agym.record, path=path)]
        with ExitStack() as stack:
            things = [stack.enter_context(it(envs)) for it in attach[:: 1 if chaos_first else -1]]
            for _ in range(20):
                envs.step([0, 0])
            with pytest.raises(agym.UsageError, match="already have an agym"):
                agym.chaos(envs, error=0.3)
    chaos, recording = things[:: 1 if chaos_first else -1]
    assert chaos.injected["error"] > 0
    assert recording.frames + recording.dropped == 21
    assert len(decoded(path)) == recording.frames > 5


LONG = f"{'long' * 99}.gif"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "run.avi"}, r"\.mp4 or \.gif"), ({"path": ""}, r"\.mp4 or \.gif"),
        ({"path": "nowhere/run.mp4"}, "a folder that does not"),
        ({"path": LONG}, "cannot be written: File name too long"),
        ({"fps": 0}, "fps"), ({"fps": 0.0001}, r"0\.01 to 1000"), ({"fps": math.nan}, "fps=nan"),
        ({"every": 10_000}, r"0\.01 to 1000"), ({"every": 0}, "every"),
        ({"env_ids": [2]}, "env_ids"), ({"columns": 0}, "columns"), ({"labels": ["a"]}, "labels"),
        ({"scale": -1}, "scale"), ({"scale": 1e9}, "at most 1000"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    envs: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = tmp_path / options.get("path", "run.gif")
    with pytest.raises(agym.UsageError, match=words):
        agym.record(envs, **{**options, "path": path})
    envs.step([0, 0])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("own", ["many", [30], True, 1e9])
def test_an_own_rate_that_is_none(own: Any, tmp_path: Path) -> None:
    class Odd(Counter):
        metadata: ClassVar[dict[str, Any]] = {**Counter.metadata, "render_fps": own}

    with agym.make([partial(Odd, 0, shape=SHAPE)], backend="serial") as envs:
        with pytest.raises(agym.UsageError, match="fps="):
            agym.record(envs, tmp_path / "run.gif")
        envs.reset()
        with agym.record(envs, tmp_path / "run.gif", fps=10):
            envs.step([0])


@pytest.mark.parametrize("mosaic", [True, False])
def test_a_folder_in_its_place(envs: Any, mosaic: bool, tmp_path: Path) -> None:
    (tmp_path / ("run.gif" if mosaic else "run-1.gif")).mkdir()
    with pytest.raises(agym.UsageError, match="Is a directory"):
        agym.record(envs, tmp_path / "run.gif", mosaic=mosaic)


@pytest.mark.parametrize("name", ["old.gif", "link.gif", "new.gif"])
def test_a_check_leaves_files_as_they_are(name: str, tmp_path: Path) -> None:
    (tmp_path / "old.gif").write_bytes(b"before")
    (tmp_path / "link.gif").symlink_to(tmp_path / "old.gif")
    check_path(tmp_path / name)
    assert (tmp_path / "old.gif").read_bytes() == b"before"
    assert {path.name for path in tmp_path.iterdir()} == {"old.gif", "link.gif"}


@pytest.mark.parametrize("form", ["mp4", "gif"])
def test_what_the_disk_refuses_later_is_one_sentence(form: str, tmp_path: Path) -> None:
    movie = Movie(tmp_path / "gone" / f"run.{form}", Fraction(10))
    with (
        pytest.raises(agym.UsageError, match="cannot be written: No such file"),
        closing(movie),  # an encoder may hold pictures back until then
    ):
        movie.add(np.zeros(SHAPE, np.uint8), 0)


async def test_async_recordings_drop_and_record_what_is_rendered(tmp_path: Path) -> None:
    async with agym.make_async(counters(), backend="serial") as envs:
        with pytest.raises(agym.UsageError, match="event loop"):
            agym.record(envs, tmp_path / "run.gif", drop=False)
    with (
        agym.make("CartPole-v1", 1, backend="serial") as blind,
        pytest.raises(agym.UsageError, match="render_mode='rgb_array'"),
    ):
        agym.record(blind, tmp_path / "run.gif")


def test_the_command_records(tmp_path: Path) -> None:
    path = tmp_path / "cartpole.mp4"
    arguments = ["record", "CartPole-v1", "-n", "3", "--steps", "7", "--scale", "0.1", "-o"]
    result = CliRunner().invoke(app, [*arguments, str(path)])
    assert result.exit_code == 0, result.output
    assert "8 frames of 3 environments (CartPole-v1)" in result.output
    pictures = decoded(path)
    assert len(pictures) == 8
    assert pictures[0][1].mean() > 150  # the sky
    assert any((picture != pictures[0][1]).any() for _, picture in pictures[1:])
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "cartpole.avi")])
    assert result.exit_code == 2
