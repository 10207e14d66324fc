"""Breakout: where the ball goes, what breaks, and that it can be won."""

from __future__ import annotations

import copy
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.envs.games.breakout import (
    BALL,
    BRICK,
    CENTRE,
    FULL_ROW,
    HALF,
    HEIGHT,
    KEYS,
    LEFT,
    PACE,
    PADDLE,
    PADDLE_ROW,
    POINTS,
    RIGHT,
    ROWS,
    SERVE_ROW,
    SHORT_HALF,
    STAY,
    TOP,
    WIDTH,
    Breakout,
    fly,
    meet,
    moved,
    spun,
)
from agym.rules.records import Record, Table
from agym.rules.rng import Rng
from tests.rules.playing import rng_of
from tests.support.core_selection import examples

rows = st.integers(0, PADDLE_ROW - 1)
columns = st.integers(0, WIDTH - 1)
falls = st.sampled_from([-1, 1])
runs = st.sampled_from([-2, -1, 1, 2])
halves = st.sampled_from([HALF, SHORT_HALF])
bit_rows = st.lists(st.integers(0, FULL_ROW), min_size=ROWS, max_size=ROWS)


def new_game(rng: Rng, lives: int = 5, walls: int = 2) -> Record:
    states = np.zeros(1, Breakout.state)
    states["lives"], states["walls"] = lives, walls
    record: Record = Table(states)[0]
    Breakout.reset(record, rng)
    return record


def game_with(**fields: Any) -> SimpleNamespace:
    """A game without bricks, but for those given."""
    bricks = fields.pop("bricks", [0] * ROWS)
    left = sum(row.bit_count() for row in bricks)
    return SimpleNamespace(
        **{
            "row": 15, "column": 20, "fall": 1, "run": 1, "paddle": CENTRE, "half": HALF,
            "bricks": np.array(bricks), "bricks_left": left, "walls_left": 0, "balls_left": 1,
            **fields,
        }
    )  # fmt: skip


def grid_of(state: Any) -> Any:
    out = np.full((HEIGHT, WIDTH), 99, np.uint8)
    Breakout.observe(state, out)
    return out


# ---------------------------------------------------------------- the ball


def unfolded(position: int) -> int:
    """Where a ball is on a strip that sides fold up every 39 columns, by its way so far."""
    lap, rest = divmod(position, WIDTH - 1)
    return rest if lap % 2 == 0 else WIDTH - 1 - rest


@given(columns, runs)
def test_without_bricks_the_ball_flies_straight_on_a_folded_strip(column: int, run: int) -> None:
    state = game_with(row=PADDLE_ROW, column=column, fall=-1, run=run)
    for k in range(1, 2 * PADDLE_ROW + 1):
        assert fly(state) == 0
        assert state.row == abs(PADDLE_ROW - k)
        assert state.column == unfolded(column + k * run)
        assert abs(state.run) == abs(run)
        assert state.half == (HALF if k < PADDLE_ROW else SHORT_HALF)


@given(rows, columns, falls, runs, bit_rows)
def test_the_ball_breaks_the_brick_that_it_enters_and_turns_back(
    row: int, column: int, fall: int, run: int, bricks: list[int]
) -> None:
    if row == 0:
        fall = 1
    state = game_with(row=row, column=column, fall=fall, run=run, bricks=bricks)
    points = fly(state)
    assert (state.row, state.column) == (row + fall, unfolded(column + run))
    wanted, level = [*bricks], state.row - TOP
    brick = 1 << state.column // 2
    if 0 <= level < ROWS and bricks[level] & brick:
        wanted[level] -= brick
        assert (points, state.fall) == (POINTS[level], -fall)
    else:
        assert (points, state.fall) == (0, 1 if state.row == 0 else fall)
    assert state.bricks.tolist() == wanted
    assert state.bricks_left == sum(row.bit_count() for row in wanted)


# ---------------------------------------------------------------- the paddle


@given(st.integers(HALF, WIDTH - 1 - HALF), halves, st.integers(STAY, RIGHT))
def test_a_paddle_moves_two_columns_unless_a_side_is_nearer(
    paddle: int, half: int, action: int
) -> None:
    wanted = paddle + {STAY: 0, LEFT: -PACE, RIGHT: PACE}[action]
    assert moved(paddle, half, action) == min(max(wanted, half), WIDTH - 1 - half)


@pytest.mark.parametrize(
    ("half", "offsets"),
    [(HALF, {-3: -2, -2: -2, -1: -1, 1: 1, 2: 2, 3: 2}), (SHORT_HALF, {-1: -2, 1: 2})],
)
def test_where_the_ball_meets_the_paddle_says_where_it_flies(
    half: int, offsets: dict[int, int]
) -> None:
    for run in (-2, -1, 1, 2):
        assert {offset: spun(run, offset, half) for offset in offsets} == offsets
        assert spun(run, 0, half) == (1 if run > 0 else -1)


@given(columns, runs, st.integers(HALF, WIDTH - 1 - HALF), halves)
def test_a_paddle_returns_the_balls_above_it(column: int, run: int, paddle: int, half: int) -> None:
    state = game_with(row=PADDLE_ROW, column=column, run=run, paddle=paddle, half=half)
    assert meet(state) == (abs(column - paddle) <= half)
    assert state.fall == (-1 if meet(state) else 1)


def test_a_missed_ball_costs_a_life_and_the_last_ends_the_game() -> None:
    rng = rng_of(0)
    state = new_game(rng, lives=3)
    for lives in (2, 1, 0):
        state.row, state.column, state.fall, state.run = PADDLE_ROW - 1, 30, 1, 1
        state.paddle, state.half = 1, SHORT_HALF
        assert Breakout.step(state, STAY, rng) == (0.0, lives == 0)
        assert state.balls_left == lives
        if lives:
            assert (state.row, state.fall, state.half, state.paddle) == (SERVE_ROW, 1, HALF, HALF)
    assert (grid_of(state) == BALL).sum() == 1


def test_every_serve_can_be_reached_from_everywhere() -> None:
    rng, serves = rng_of(3), Counter[tuple[int, int]]()
    state = new_game(rng)
    for _ in range(8000):
        Breakout.reset(state, rng)
        serves[state.column, state.run] += 1
    assert len(serves) == 2 * WIDTH
    assert max(serves.values()) < 2 * min(serves.values())
    for column, run in serves:
        for paddle in (HALF, WIDTH - 1 - HALF):
            ball = game_with(row=SERVE_ROW, column=column, run=run, paddle=paddle)
            while ball.row < PADDLE_ROW:
                wanted = unfolded(column + run * (PADDLE_ROW - SERVE_ROW))
                ball.paddle = moved(ball.paddle, HALF, LEFT if wanted < ball.paddle else RIGHT)
                fly(ball)
            assert meet(ball)


# ---------------------------------------------------------------- whole games


def best_place(state: Any, rng: np.random.Generator) -> int:
    """The place of the paddle that breaks most, by the points of the ball's next flight."""
    names = ("row", "column", "fall", "run", "paddle", "half", "bricks_left", "walls_left")
    ball = game_with(bricks=list(state.bricks), **{name: getattr(state, name) for name in names})
    steps, _ = land(ball)

    def gain(place: int) -> float:
        after = copy.deepcopy(ball)
        after.paddle = place
        assert meet(after)
        return land(after)[1] + float(rng.random()) / 2

    ends = ball.half, WIDTH - 1 - ball.half
    places = [
        place
        for place in range(ball.column - ball.half, ball.column + ball.half + 1)
        if ends[0] <= place <= ends[1] and abs(place - ball.paddle) <= PACE * steps
        if place in ends or (place - ball.paddle) % PACE == 0
    ]
    return max(places, key=gain)  # every ball can be returned


def land(ball: Any) -> tuple[int, float]:
    """Fly to the paddle; return the number of steps, and the points."""
    steps, points = 0, 0.0
    while steps == 0 or ball.row < PADDLE_ROW:
        points += fly(ball)
        steps += 1
    return steps, points


@pytest.mark.parametrize(("walls", "seed"), [(1, 0), (1, 1), (2, 2)])
def test_it_can_be_won_with_one_ball(walls: int, seed: int) -> None:
    rng = rng_of(seed)
    state, target, choices = new_game(rng, lives=1, walls=walls), None, np.random.default_rng(0)
    total, over, built = 0.0, False, 1
    for _ in range(Breakout.max_episode_steps):
        left = state.bricks_left
        target = best_place(state, choices) if target is None else target
        distance = target - state.paddle
        action = LEFT if distance < 0 else RIGHT if distance > 0 else STAY
        reward, over = Breakout.step(state, action, rng)
        total += reward
        if state.bricks_left > left:  # the next wall
            assert (left, state.row, state.fall) == (0, PADDLE_ROW, -1)
            built += 1
        if state.row == PADDLE_ROW:
            target = None
        if over:
            break
    assert over
    assert state.balls_left == 1
    assert (total, built, state.bricks_left) == (480 * walls, walls, 0)


@examples(20)
@given(bit_rows, st.integers(HALF, WIDTH - 1 - HALF), halves, rows, columns)
def test_all_of_a_picture_is_written(
    bricks: list[int], paddle: int, half: int, row: int, column: int
) -> None:
    state = game_with(bricks=bricks, paddle=paddle, half=half, row=row, column=column)
    wanted = np.zeros((HEIGHT, WIDTH), np.uint8)
    for r, bits in enumerate(bricks):
        for c in range(WIDTH):
            wanted[TOP + r, c] = BRICK * (bits >> c // 2 & 1)
    wanted[HEIGHT - 1, paddle - half : paddle + half + 1] = PADDLE
    wanted[row, column] = BALL
    np.testing.assert_array_equal(grid_of(state), wanted)


def test_pictures() -> None:
    state = new_game(rng_of(0))
    state.bricks[1] = 1
    pixels = Breakout.render(state, "rgb_array")
    assert (pixels.shape, pixels.dtype) == ((240, 320, 3), np.uint8)
    lines = Breakout.render(state, "ansi").splitlines()
    assert lines[0] == lines[-1] == "-" * WIDTH
    assert lines[1 + TOP] == "=" * WIDTH
    assert lines[2 + TOP].rstrip() == "=="
    assert lines[HEIGHT].strip() == "#######"
    assert "".join(lines).count("o") == 1
    brick_rows = pixels[(TOP * 8 + 4) : (TOP + ROWS) * 8 : 8, 0]
    assert len({tuple(color) for color in brick_rows}) == ROWS


def test_keys_and_parameters() -> None:
    assert KEYS["a",] == LEFT
    assert KEYS["d",] == RIGHT
    assert {*KEYS.values()} == {LEFT, RIGHT}
    for wrong in ({"lives": 0, "walls": 1}, {"lives": 1, "walls": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            Breakout.check(**wrong)
