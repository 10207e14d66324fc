"""Pong: where paddles and balls go, who makes a point, what is left to chance, and both games."""

from __future__ import annotations

import hashlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.play import play as play_by_hand
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.envs.games.cells import SCALE
from agym.envs.games.pong import (
    BALL,
    BOTTOM,
    CENTRE,
    COLORS,
    DOWN,
    EMPTY,
    FULL_SKILL,
    HALF,
    HEIGHT,
    PADDLE,
    STAY,
    TOP,
    UP,
    WIDTH,
    Pong,
    PongRally,
    fly,
    follow,
    moved,
    serve,
)
from agym.rules.rng import hashed, key_of
from tests.support.equality import same

# Each process compiles the games anew.
pytestmark = pytest.mark.xdist_group("compiled")

GAMES = {"Pong": Pong, "PongRally": PongRally}
ENGINES = ("python", "compiled", "parallel")

each_game = pytest.mark.parametrize("name", GAMES)

rows = st.integers(0, HEIGHT - 1)
falls = st.integers(-3, 3)
runs = st.sampled_from([-1, 1])
paddles = st.integers(TOP, BOTTOM)
keys = st.integers(0, 2**32 - 1)
choices = st.integers(STAY, DOWN)


# ---------------------------------------------------------------- the rules


@given(paddles, choices)
def test_a_paddle_moves_two_rows_unless_a_wall_is_nearer(paddle: int, action: int) -> None:
    new = moved(paddle, action)
    assert new - HALF >= 0
    assert new + HALF <= HEIGHT - 1
    wanted = paddle + {STAY: 0, UP: -2, DOWN: 2}[action]
    assert new == (wanted if TOP <= wanted <= BOTTOM else TOP if action == UP else BOTTOM)


def unfolded(position: int) -> int:
    """Where a ball is on a strip that walls fold up every 29 rows, by its way so far."""
    lap, rest = divmod(position, HEIGHT - 1)
    return rest if lap % 2 == 0 else HEIGHT - 1 - rest


@given(rows, falls, st.integers(1, 200))
def test_reflected_paths_are_straight_ones_on_a_folded_strip(
    row: int, fall: int, steps: int
) -> None:
    """What the original got wrong: no ball leaves the field, and none loses any of its way."""
    now, speed = row, fall
    for k in range(1, steps + 1):
        now, _, speed, _, point = fly(now, WIDTH // 2, speed, 1, CENTRE, CENTRE)
        assert point == 0
        assert 0 <= now < HEIGHT
        assert now == unfolded(row + k * fall)
        assert abs(speed) == abs(fall)


@given(rows, falls, runs, paddles)
def test_who_is_hit_where_it_is_gives_spin_and_who_misses_loses(
    row: int, fall: int, run: int, paddle: int
) -> None:
    column = 2 if run < 0 else WIDTH - 3
    left, right = (paddle, TOP) if run < 0 else (TOP, paddle)
    straight = unfolded(row + fall)
    bounced = -fall if straight != row + fall else fall
    new_row, new_column, new_fall, new_run, point = fly(row, column, fall, run, left, right)
    assert (new_row, new_column) == (straight, column + run)
    if abs(straight - paddle) <= HALF:
        assert (point, new_run) == (0, -run)
        assert new_fall == max(-3, min(3, bounced + straight - paddle))
    else:
        assert point == -run  # the point of the side that it comes from


@given(keys, st.integers(0, 2**31))
def test_every_serve_can_be_reached(key: int, draw: int) -> None:
    row, column, fall, run = serve(hashed(key, draw))
    assert run in (-1, 1)
    assert column == (20 if run > 0 else 19)
    left = right = TOP if row > CENTRE else BOTTOM
    point = steps = 0
    while 1 < column < WIDTH - 2:
        ahead = (WIDTH - 2 - column) if run > 0 else column - 1
        arrival = unfolded(row + ahead * fall)
        paddle = left if run < 0 else right
        action = UP if arrival < paddle - 1 else DOWN if arrival > paddle + 1 else STAY
        left, right = (moved(paddle, action),) * 2
        row, column, fall, run, point = fly(row, column, fall, run, left, right)
        steps += 1
    assert steps == 18
    assert point == 0


def test_serves_are_drawn_evenly() -> None:
    drawn = [serve(hashed(key_of(5), draw)) for draw in range(21_000)]
    for field, number in ((0, HEIGHT), (2, 7), (3, 2)):
        counts = Counter(ball[field] for ball in drawn)
        assert len(counts) == number
        assert max(counts.values()) < 1.25 * min(counts.values())


@given(rows, paddles, keys)
def test_the_opponent_follows_a_ball_that_comes(row: int, paddle: int, bits: int) -> None:
    action = follow(row, -1, paddle, bits, FULL_SKILL)
    assert action == (UP if row < paddle - 1 else DOWN if row > paddle + 1 else STAY)
    assert follow(row, 1, paddle, bits, FULL_SKILL) == STAY
    assert follow(row, -1, paddle, bits, 0) == STAY


def test_the_opponent_pays_attention_as_often_as_its_skill_says() -> None:
    """And for eight steps in a row; the ball is held where it comes."""
    env = agym.vectorize(Pong, skill=0.25, max_episode_steps=-1)
    env.reset(seed=7)
    does = []
    for _ in range(8 * 1500):
        env.state.row, env.state.column, env.state.run = 0, 20, -1
        env.state.fall, env.state.left = 0, BOTTOM
        env.step(STAY)
        does.append(env.state.left < BOTTOM)
    whole = does[7:]  # the first serve took one draw of the first eight
    assert all(len({*whole[k : k + 8]}) == 1 for k in range(0, len(whole), 8))
    assert 300 < sum(whole[::8]) < 450


@given(rows, st.integers(1, WIDTH - 2), paddles, paddles)
def test_a_picture_has_a_ball_and_two_paddles(row: int, column: int, left: int, right: int) -> None:
    """Whatever was in the memory before."""
    state = SimpleNamespace(row=row, column=column, left=left, right=right)
    cells = np.full((HEIGHT, WIDTH), 77, np.uint8)
    Pong.observe(state, cells)
    expected = np.full((HEIGHT, WIDTH), EMPTY, np.uint8)
    expected[left - HALF : left + HALF + 1, 0] = PADDLE
    expected[right - HALF : right + HALF + 1, WIDTH - 1] = PADDLE
    expected[row, column] = BALL
    assert same(cells, expected)


def test_a_game_counts_points_and_serves_until_one_has_enough() -> None:
    env = agym.vectorize(Pong, points=5, max_episode_steps=-1)
    env.reset(seed=3)
    total, over = 0.0, False
    while not over:
        right = env.state.right
        _, reward, over, _, _ = env.step(STAY)
        state = env.state
        total += reward
        assert state.right_score - state.left_score == total
        assert over == (max(state.left_score, state.right_score) == 5)
        if reward and not over:
            assert state.column in (19, 20)
            assert state.right == right
    assert env.state.column in (1, WIDTH - 2)  # the last ball stays where it was missed


# ---------------------------------------------------------------- the same games as ever

# SHA-256 of what 64 games give in 400 steps, as agym's former implementation of Pong gave it, which
# was written for this game alone.
EVER = {
    "Pong": {
        AutoresetMode.NEXT_STEP: "2e6028643cf9bbd7acfc189f2912f01a134d33397211e8cef97aef5583abf598",
        AutoresetMode.SAME_STEP: "c7d7444426896ccf1df69f6b24a70712a8b79c3b44a88249f3caee076b4f337d",
    },
    "PongRally": {
        AutoresetMode.NEXT_STEP: "2b6c03aa854f46ac2f8b68ff9485f0ed327b0ccd71a481709dfa5ced9fe8c1e7",
        AutoresetMode.SAME_STEP: "436ea76c3bc4e47c789230b1433487a1276ea969320e7621b0add4b64af4186a",
    },
}


@each_game
@pytest.mark.parametrize("mode", EVER["Pong"], ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize(
    "engine",
    [pytest.param(name, marks=[pytest.mark.full] * (name != "compiled")) for name in ENGINES],
)
def test_the_same_trajectories_as_ever(
    name: str, mode: AutoresetMode, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agym.rules.engines.SHARE", 16)
    options: dict[str, Any] = {"points": 3, "skill": 0.7} if name == "Pong" else {}
    envs = agym.vectorize(GAMES[name], 64, engine=engine, autoreset_mode=mode, **options)
    digest = hashlib.sha256(envs.reset(seed=5)[0].tobytes())
    rng = np.random.default_rng(0)
    for _ in range(400):
        for part in envs.step(rng.integers(0, 3, envs.action_space.shape))[:4]:
            digest.update(np.ascontiguousarray(part).tobytes())
    envs.close()
    assert digest.hexdigest() == EVER[name][mode]


# ---------------------------------------------------------------- the environments


@each_game
def test_pictures(name: str) -> None:
    text = agym.vectorize(GAMES[name], 2, engine="python", render_mode="ansi")
    text.reset(seed=1)
    for drawn in text.render():
        lines = drawn.split("\n")
        assert len(lines) == HEIGHT + 2
        assert {len(line) for line in lines} == {WIDTH}
        assert (drawn.count("#"), drawn.count("o")) == (10, 1)
    pixels = agym.vectorize(GAMES[name], 2, engine="compiled", render_mode="rgb_array")
    grids, _ = pixels.reset(seed=1)
    for grid, frame in zip(grids, pixels.render(), strict=True):
        assert frame.shape == (HEIGHT * SCALE, WIDTH * SCALE, 3)
        assert frame.dtype == np.uint8
        for cell in (EMPTY, PADDLE, BALL):
            assert (frame == COLORS[cell]).all(-1).sum() == (grid == cell).sum() * SCALE**2
    assert agym.vectorize(GAMES[name], 2, engine="python").render() is None


KEYS: dict[str, list[tuple[list[str], Any]]] = {
    "Pong": [([], 0), (["w"], 1), (["s"], 2), (["UP"], 1), (["DOWN"], 2)],
    "PongRally": [
        ([], [0, 0]), (["w"], [1, 0]), (["DOWN"], [0, 2]), (["s", "UP"], [2, 1]),
    ],
}  # fmt: skip


@each_game
def test_keyboard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds some keys for a step each, and then closes the window."""
    pygame = pytest.importorskip("pygame")
    env = gymnasium.make(f"agym/{name}-v0", render_mode="rgb_array")
    held: list[Any] = []
    batches = []
    for pressed, _ in [*KEYS[name], KEYS[name][0]]:
        codes = [getattr(pygame, f"K_{key}") for key in pressed]
        batches.append(
            [pygame.event.Event(pygame.KEYUP, key=code) for code in held]
            + [pygame.event.Event(pygame.KEYDOWN, key=code) for code in codes]
        )
        held = codes
    events = iter([*batches, [pygame.event.Event(pygame.QUIT)]])
    monkeypatch.setattr("pygame.event.get", lambda: next(events))
    played: list[Any] = []
    noop = np.array([0, 0]) if name == "PongRally" else 0
    play_by_hand(
        env, fps=1000, seed=1, noop=noop,
        callback=lambda *step: played.append(np.asarray(step[2]).tolist()),
    )  # fmt: skip
    assert played[: len(KEYS[name])] == [action for _, action in KEYS[name]]
    env.close()


@pytest.mark.parametrize(("name", "value"), [("points", 0), ("skill", 1.1)])
def test_parameters_that_cannot_work(name: str, value: float) -> None:
    with pytest.raises(agym.UsageError, match=f"{name}={value} must be"):
        agym.vectorize(Pong, **{name: value})
