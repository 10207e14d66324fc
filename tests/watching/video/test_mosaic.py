"""A mosaic has each picture in its place, in its colours, whatever its form and size."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.watching.video.tiling import mosaic

RED, GREEN = (255, 0, 0), (0, 255, 0)
GAP = 2


def plain(colour: tuple[int, ...], height: int = 40, width: int = 60) -> np.ndarray[Any, Any]:
    return np.full((height, width, len(colour)), colour, np.uint8)


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=1, max_size=9),
    st.integers(1, 10),
)
def test_each_picture_stands_in_its_place(colours: list[tuple[int, int]], columns: int) -> None:
    frames = [plain((a, b, 7), 5, 8) for a, b in colours]
    whole = mosaic(frames, columns, scale=1)
    rows = -(-len(frames) // columns)
    assert whole.shape == (rows * 7 - 2, columns * 10 - 2, 3)
    for i, frame in enumerate(frames):
        top, left = i // columns * 7, i % columns * 10
        np.testing.assert_array_equal(whole[top : top + 5, left : left + 8], frame)


def test_all_forms_of_frames_are_pictures() -> None:
    depths = np.array([[1.0, 2.0], [3.0, np.inf]], np.float32).repeat(20, 0).repeat(30, 1)
    frames: list[Any] = [
        plain(RED).transpose(1, 0, 2),
        np.full((40, 60), 9, np.uint8),
        np.full((40, 60, 1), 9, np.uint8),
        plain((*GREEN, 255)),
        depths,
        "┌─┐ \x1b[41mhole\x1b[0m",
        [plain(GREEN), plain(RED)],
        None,
        [],
    ]
    whole = mosaic(frames, 1, scale=1)
    tiles = np.split(np.pad(whole, ((0, GAP), (0, 0), (0, 0))), len(frames))
    middles = [tile[30, 30].tolist() for tile in tiles]
    assert middles[0] == [*RED]
    assert middles[1] == middles[2] == [9, 9, 9]
    assert middles[3] == [*GREEN]
    assert middles[6] == [*RED]
    top = (tiles[4].shape[0] - GAP - 40) // 2
    assert tiles[4][top + 5, 15].tolist() == [255] * 3  # the nearest
    assert tiles[4][top + 35, 45].tolist() == [0] * 3  # the farthest
    assert tiles[5].max() > 200  # something is written
    assert len(np.unique(tiles[7])) == 1


def test_pictures_of_different_sizes_keep_their_proportions() -> None:
    whole = mosaic([plain(RED, 40, 60), plain(GREEN, 20, 20)], 2, scale=0.5)
    assert whole.shape == (20, 62, 3)
    green = (whole == GREEN).all(axis=2)
    assert green.sum() == 100
    assert green[5:15, 42:52].all()


def test_many_pictures_fit_on_a_screen_and_few_are_not_enlarged() -> None:
    whole = mosaic([plain(RED, 400, 600)] * 200)
    assert 1000 < whole.shape[0] <= 1080
    assert 1000 < whole.shape[1] <= 1920
    assert mosaic([plain(RED)]).shape == (40, 60, 3)
    assert mosaic([plain(RED)] * 4, scale=2.0).shape[0] in (80, 162)


def test_pictures_are_numbered() -> None:
    frames = [plain(RED)] * 3
    bare = mosaic(frames, 3)
    numbered, named = mosaic(frames, 3, labels=True), mosaic(frames, 3, labels=["", "b", 1.5])
    different = (bare != numbered).any(axis=(0, 2))
    assert [different[i * 62 : i * 62 + 60].any() for i in range(3)] == [True] * 3
    different = (bare != named).any(axis=(0, 2))
    assert [different[i * 62 : i * 62 + 60].any() for i in range(3)] == [False, True, True]


@pytest.mark.parametrize(
    ("frames", "options", "words"),
    [
        ([], {}, "at least one"), (plain(RED), {}, "list"), ("text", {}, "list"),
        ([plain(RED).astype(np.int64)], {}, "frame 0 is not a picture"),
        ([plain(RED), plain((1, 2))], {}, "frame 1 is not a picture"),
        ([plain(RED)], {"columns": 0}, "columns"), ([plain(RED)], {"scale": 0}, "scale"),
        ([plain(RED)], {"labels": ["a", "b"]}, "labels"), ([plain(RED)], {"labels": "a"}, "labels"),
        *(
            ([plain(RED), plain(GREEN)], options, r"a picture of \d+ × \d+ pixels is too large")
            for options in ({"scale": 1000}, {"columns": 100_000}, {"columns": 1, "scale": 205})
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(frames: Any, options: Any, words: str) -> None:
    with pytest.raises(agym.UsageError, match=words):
        mosaic(frames, **options)


def test_pillow_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(agym.MissingExtraError, match=r"pip install .*\[render\]"):
        mosaic([plain(RED)])
