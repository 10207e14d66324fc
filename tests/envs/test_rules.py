"""The rule book: where paddles and balls go, who makes a point, what is left to chance."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agym.envs.pong.game import BEFORE, CELLS, begin, play, redraw, restart
from agym.envs.pong.games import as_bytes, first_picture, key_of
from agym.envs.pong.rules import (
    BALL,
    BOTTOM,
    CENTRE,
    DOWN,
    FULL_SKILL,
    HALF,
    HEIGHT,
    PADDLE,
    STAY,
    TOP,
    UP,
    WIDTH,
    attention,
    chance,
    fly,
    follow,
    mix,
    moved,
    serve,
)
from tests.support.core_selection import examples

rows = st.integers(0, HEIGHT - 1)
falls = st.integers(-3, 3)
runs = st.sampled_from([-1, 1])
paddles = st.integers(TOP, BOTTOM)
keys = st.integers(0, 2**32 - 1)
choices = st.integers(STAY, DOWN)


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


def test_the_corner_of_a_fold() -> None:
    assert fly(1, 20, -3, 1, CENTRE, CENTRE)[:3] == (2, 21, 3)
    assert fly(28, 20, 3, 1, CENTRE, CENTRE)[:3] == (27, 21, -3)
    assert fly(3, 20, -3, 1, CENTRE, CENTRE)[:3] == (0, 21, -3)  # reflected in the next step
    assert fly(0, 20, -3, 1, CENTRE, CENTRE)[:3] == (3, 21, 3)


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
    row, column, fall, run = serve(chance(key, draw))
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
    drawn = [serve(chance(key_of(5), draw)) for draw in range(21_000)]
    for field, number in ((0, HEIGHT), (2, 7), (3, 2)):
        counts = Counter(ball[field] for ball in drawn)
        assert len(counts) == number
        assert max(counts.values()) < 1.25 * min(counts.values())


def test_the_hash_is_one_to_one_and_seeds_have_keys_of_their_own() -> None:
    assert len({mix(x) for x in range(2**16)}) == 2**16
    assert all(0 <= mix(x << 16) < 2**32 for x in range(2**16))
    seeds = [*range(10_000), 2**32, 2**32 + 1, 2**64, 3 * 2**64]
    assert len({key_of(seed) for seed in seeds}) == len(seeds)


@given(rows, paddles, keys)
def test_the_opponent_follows_a_ball_that_comes(row: int, paddle: int, bits: int) -> None:
    action = follow(row, -1, paddle, bits, FULL_SKILL)
    assert action == (UP if row < paddle - 1 else DOWN if row > paddle + 1 else STAY)
    assert follow(row, 1, paddle, bits, FULL_SKILL) == STAY
    assert follow(row, -1, paddle, bits, 0) == STAY


def test_the_opponent_pays_attention_as_often_as_its_skill_says() -> None:
    does = [follow(0, -1, BOTTOM, attention(7, k), FULL_SKILL // 4) == UP for k in range(8 * 4000)]
    assert all(len({*does[k : k + 8]}) == 1 for k in range(0, len(does), 8))
    assert 900 < sum(does[::8]) < 1100


class Watched(dict[int, int]):
    """Cells that tell which of them were written."""

    def __init__(self, cells: memoryview) -> None:
        super().__init__(enumerate(cells))
        self.written: list[int] = []

    def __setitem__(self, cell: int, value: int) -> None:
        self.written.append(cell)
        super().__setitem__(cell, value)


@examples(15)
@given(keys, st.lists(st.tuples(choices, choices), min_size=80, max_size=80))
def test_only_cells_that_differ_are_written(key: int, actions: list[tuple[int, int]]) -> None:
    cells = Watched(as_bytes(first_picture()))
    game = restart((*BEFORE[:8], key, *BEFORE[9:]), cells, 0)
    for left, right in actions:
        before, seen = game, dict(cells)
        cells.written.clear()
        if game[11]:
            game = restart(game, cells, 0)
        else:
            game, _ = play(game, left, right, 2, 1, 0)
            redraw(cells, 0, before, game)
        changed = {cell for cell in range(CELLS) if cells[cell] != seen[cell]}
        balls = {before[0] * WIDTH + before[1], game[0] * WIDTH + game[1]}
        assert changed <= set(cells.written) <= changed | balls
        assert len(cells.written) <= len(changed) + 2
        check_picture(cells, game)


def check_picture(cells: dict[int, int], game: tuple[int, ...]) -> None:
    """A ball, and two paddles of five cells."""
    paddle_cells = {
        (centre + k) * WIDTH + column
        for centre, column in ((game[4], 0), (game[5], WIDTH - 1))
        for k in range(-HALF, HALF + 1)
    }
    assert {cell for cell in cells if cells[cell] == PADDLE} == paddle_cells
    assert [cell for cell in cells if cells[cell] == BALL] == [game[0] * WIDTH + game[1]]


def test_a_game_counts_points_and_serves_until_one_has_enough() -> None:
    game = begin(key_of(3), 0)
    total = 0
    for _ in range(20_000):
        before = game
        game, reward = play(game, STAY, STAY, 1, 5, FULL_SKILL // 2)
        total += reward
        assert game[7] - game[6] == total
        assert game[11] == (max(game[6:8]) == 5)
        if game[11]:
            break
        if reward:
            assert game[1] in (19, 20)
            assert game[4:6] == (moved(before[4], follow_of(before)), before[5])
    assert max(game[6:8]) == 5
    assert game[1] in (1, WIDTH - 2)  # the last ball stays where it was missed


def follow_of(game: tuple[int, ...]) -> int:
    return follow(game[0], game[3], game[4], attention(game[8], game[9]), FULL_SKILL // 2)
