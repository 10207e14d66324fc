"""Frames are what the environments painted, and the caller's for ever, on every backend."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.core.protocol.frames import FrameLeases, FrameShelf, ShelvedFrame
from agym.testing import Script
from tests.support.drivers import (
    APIS,
    FORKED,
    Setup,
    apart,
    each_api,
    everywhere,
    opened,
)
from tests.support.envs.painting_envs import SHAPES, Painter
from tests.support.equality import same
from tests.support.insides import backend_of
from tests.support.patience import patience

MODES = [
    "rgb_array", "transposed", "flipped", "rgb_array_list", "depth_array", "rgbd_tuple", "both",
    "ansi", "growing",
]  # fmt: skip


def painters(setup: Setup, mode: str) -> list[Callable[[], Any]]:
    return [setup.adapt(partial(Painter, i, mode, SHAPES[i % 3])) for i in range(4)]


@pytest.mark.parametrize("mode", MODES)
@each_api
@everywhere
def test_frames_are_those_of_a_plain_environment(setup: Setup, api: str, mode: str) -> None:
    """Different sizes, sizes that change, and environments that paint into the same array."""
    plain = [Painter(i, mode, SHAPES[i % 3]) for i in range(4)]
    with opened(api, painters(setup, mode), **setup.options) as envs:
        envs.reset(seed=0)
        held, expected = [], []
        for round_ in range(5):
            held += envs.render() + envs.render([2, 0])
            expected += [deepcopy(plain[i].render()) for i in (0, 1, 2, 3, 0, 2)]
            if round_ < 4:
                envs.step([0] * 4)
                for env in plain:
                    env.step(0)
        for ours, theirs in zip(held, expected, strict=True):
            assert same(ours, theirs)


VECTOR = pytest.param(
    {"backend": "vector", "workers": 2, "engine": "python"}, "agym/Pong-v0", marks=pytest.mark.full
)


@pytest.mark.parametrize(
    ("setup", "env_id"),
    [
        ({"backend": "serial"}, "CartPole-v1"), ({"backend": "thread"}, "CartPole-v1"),
        (FORKED, "CartPole-v1"), (FORKED, "ALE/Pong-v5"), VECTOR,
    ],
    ids=["serial", "thread", "process", "atari", "vector"],
)  # fmt: skip
def test_pixels_of_real_environments(setup: dict[str, Any], env_id: str) -> None:
    actions = [1, 0, 1]
    with agym.make(env_id, 3, render_mode="rgb_array", **setup) as envs:
        envs.reset(seed=3)
        for _ in range(5):
            envs.step(actions)
        ours = envs.render()
    for i, action in enumerate(actions):
        plain = gym.make(env_id, render_mode="rgb_array")
        plain.reset(seed=3 + i)
        for _ in range(5):
            plain.step(action)
        np.testing.assert_array_equal(ours[i], np.asarray(plain.render()))
        plain.close()


def test_polygons_of_several_threads_do_not_mix() -> None:
    """pygame alone fills one in a hundred wrong, if threads take turns as often as they can."""
    with agym.make("CartPole-v1", 1, backend="thread", render_mode="rgb_array"):
        pass  # which is when agym sees to that
    pygame = pytest.importorskip("pygame.gfxdraw", reason="the extra render brings pygame")
    draw, surface = pygame.filled_polygon, sys.modules["pygame"].Surface

    def painted(k: int) -> bytes:
        canvas = surface((300, 200))
        corners = [(20 + 40 * k, 10), (120 + 40 * k, 30), (90 + 40 * k, 180), (10, 150 - 10 * k)]
        draw(canvas, corners, (255, 255, 255))
        return bytes(canvas.get_buffer().raw)

    def wrong(k: int) -> int:
        return sum(painted(k) != alone[k] for _ in range(3000))

    alone = [painted(k) for k in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [*pool.map(wrong, range(4))] == [0] * 4
    finally:
        sys.setswitchinterval(interval)


@everywhere
def test_what_is_written_into_a_frame_is_nobody_elses(setup: Setup) -> None:
    with agym.make(painters(setup, "transposed"), **setup.options) as envs:
        envs.reset()
        first = envs.render()
        first[1][:] = 7
        again = envs.render()
        assert (first[1] == 7).all()
        assert not (again[1] == 7).all()
        assert first[0].strides == again[0].strides
        assert setup.name != "process" or first[0].strides == (3, 120, 1)  # as it was painted


def test_memory_is_used_again() -> None:
    """However long frames come and go, a worker needs no more than a few places for each env."""
    with agym.make([Painter] * 3, **FORKED, workers=1) as envs:
        envs.reset()
        seen = set()
        for _ in range(50):
            frames = envs.render()
            seen.update(frame.ctypes.data for frame in frames)
        assert len(seen) <= 2 * 3


def test_frames_outlive_their_worker_and_another_paints_on() -> None:
    with agym.make([partial(Painter, i) for i in range(4)], **FORKED, workers=2) as envs:
        envs.reset()
        frames = [frame[:, ::2] for frame in envs.render()]
        os.kill(backend_of(envs).pids[1], signal.SIGKILL)
        with pytest.raises(agym.WorkerDied):
            envs.step([0] * 4)
        envs.restart()
        envs.reset()
        again = [frame[:, ::2] for frame in envs.render()]
    gc.collect()
    for i in range(4):
        for frame in (frames[i], again[i]):
            np.testing.assert_array_equal(frame, Painter(i).picture()[:, ::2])


def test_a_forked_child_keeps_its_frames() -> None:
    with agym.make([Painter] * 2, **FORKED, workers=1) as envs:
        envs.reset()
        frames = envs.render()
        read, write = os.pipe()
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            os.write(write, b"1" if (frames[0][..., 2] == 0).all() else b"0")
            os._exit(0)
        untouched = frames[0].copy()
        del frames
        envs.set_attr("me", 9)
        more = [envs.render() for _ in range(5)]
        os.write(go, b"!")
        assert os.read(read, 1) == b"1"
        os.waitpid(child, 0)
        assert (untouched[..., 2] == 0).all()
        assert all((frame[..., 2] == 9).all() for frames in more for frame in frames)
        for end in (read, write, ready, go):
            os.close(end)


@apart
async def test_a_slow_renderer_holds_up_nobody_else(setup: Setup, tmp_path: Path) -> None:
    """The others step and render; what it is to do itself comes behind its picture."""
    script = Script(str(tmp_path))
    factories = script.factories(3, coroutines=setup.coroutines)
    options = {**setup.options, "workers": 3} if setup.name != "asyncio" else setup.options
    async with agym.make_async(factories, **options) as envs:
        await envs.reset()
        script.set(1, "render", "wait")
        picture = envs.render([1])
        for _ in range(2):
            await envs.step([0, 0], env_ids=[0, 2])
        assert await envs.render([0, 2]) == ["1:2", "1:2"]
        behind = envs.step([0], env_ids=[1])
        assert not picture.done()
        assert not behind.done()
        await asyncio.to_thread(script.open, 1, patience())
        assert await picture == ["1:0"]
        assert (await behind).observations[0, 2] == 1


class Shown(Painter):
    """Shows a window, unless it is asked for arrays."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human", "rgb_array"]}

    def __init__(self, render_mode: str = "human") -> None:
        super().__init__(mode=render_mode)


class Printed(Shown):
    """Prints where others show a window."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human", "ansi"]}


HUMAN = {"render_mode": "human"}
CART_POLE = partial(gym.make, "CartPole-v1", **HUMAN)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", HUMAN), (Shown, HUMAN), ([Shown] * 2, HUMAN),
        (lambda render_mode: Shown(render_mode), HUMAN), (partial(Shown, **HUMAN), {}),
        ([CART_POLE] * 2, {}),
    ],
    ids=["id", "class", "list", "function", "partial", "gymnasium.make"],
)  # fmt: skip
def test_windows_are_refused_for_several(api: str, env: Any, options: dict[str, str]) -> None:
    with (
        pytest.raises(agym.UsageError, match=r"'rgb_array', and agym\.watch\(envs\)"),
        opened(api, env, 2, backend="serial", **options),
    ):
        pass


@pytest.mark.parametrize(
    ("env", "count", "options"),
    [(Shown, 1, HUMAN), (Shown, 2, {}), ([Shown] * 2, 2, {}), (Printed, 2, HUMAN)],
)
def test_environments_without_windows_are_run(env: Any, count: int, options: Any) -> None:
    with agym.make(env, count, backend="serial", **options) as envs:
        assert envs.render_mode == "human"
        envs.reset(seed=0)


def make_shelf(size: int = 1 << 20) -> tuple[FrameLeases, FrameShelf]:
    """Both ends of an arena, in one process."""
    arena = np.zeros(size, np.uint8)
    return FrameLeases(arena), FrameShelf(arena)


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4).map(tuple), max_size=4),
    st.permutations(range(4)),
    st.sampled_from(["u1", "i8", "f4", "c16", "i2,f4"]),
    st.booleans(),
)
def test_any_arrays_in_any_order_of_memory_come_back(
    shapes: list[Any], order: list[int], dtype: str, flip: bool
) -> None:
    leases, shelf = make_shelf()
    random = np.random.default_rng(0)
    frame = [np.zeros(5000, np.uint8)]
    for shape in shapes:
        axes = [axis for axis in order if axis < len(shape)]
        raw = random.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        array = np.frombuffer(raw, dtype).reshape(shape).transpose(axes)
        frame.append(array[::-1] if flip else array)
    shelved = shelf.keep(frame)
    assert isinstance(shelved, ShelvedFrame)
    back = leases.open(shelved)
    assert same(back, frame)
    for ours, theirs in zip(back, frame, strict=True):
        assert ours.flags.aligned
        if theirs.size > 1 and 1 not in theirs.shape:
            ranks = [np.argsort(np.abs(a.strides)).tolist() for a in (ours, theirs)]
            assert ranks[0] == ranks[1]


def test_a_region_is_lent_until_its_last_array_is_gone() -> None:
    leases, shelf = make_shelf()
    frame = np.arange(90_000, dtype=np.uint8).reshape(100, 300, 3)
    shelved = shelf.keep([frame, frame[::9]])
    first = leases.open(shelved)
    part = first[1][3:, 5]
    del first
    assert leases.give_back() == []
    np.testing.assert_array_equal(part, frame[::9][3:, 5])
    del part
    assert leases.give_back() == [shelved.start]
    shelf.take_back([shelved.start])
    assert shelf.keep(frame).start == shelved.start


def test_what_finds_no_room_is_copied_and_room_is_found_again() -> None:
    leases, shelf = make_shelf(1 << 20)
    frame = np.full((256, 512, 3), 7, np.uint8)
    held = [leases.open(shelf.keep(frame)), leases.open(shelf.keep(frame[:99]))]
    for other in (frame, np.full(1 << 21, 7, np.uint8)):
        copied = shelf.keep(other)
        assert isinstance(copied, np.ndarray)
        assert not np.shares_memory(copied, other)
        assert same(copied, other)
    held.clear()
    shelf.take_back(leases.give_back())
    assert isinstance(shelf.keep(frame), ShelvedFrame)


@pytest.mark.parametrize("damage", ["before", "beyond", "size", "offset", "shape", "twice"])
def test_a_worker_that_says_nonsense_of_its_arena_is_not_believed(damage: str) -> None:
    leases, shelf = make_shelf()
    shelved = shelf.keep(np.zeros((100, 100), np.uint8))
    (array,) = shelved.arrays
    wrong = {
        "before": shelved._replace(start=-1),
        "beyond": shelved._replace(start=1 << 40),
        "size": shelved._replace(size=1 << 40),
        "offset": shelved._replace(arrays=[array._replace(offset=1 << 20)]),
        "shape": shelved._replace(arrays=[array._replace(shape=(1000, 100))]),
        "twice": shelved,
    }[damage]
    kept = leases.open(shelved) if damage == "twice" else None
    with pytest.raises(ValueError, match=r"region|buffer"):
        leases.open(wrong)
    del kept
