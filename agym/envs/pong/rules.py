"""The rules of Pong, one game at a time: the specification of all implementations.

::

    column  0                                          39
    row  0  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .   a wall above it
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
            #  .  .  .  .  o  .  .  .  .  .  .  .  .  .  #
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #   paddles move in columns 0 and 39,
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #   the ball flies in columns 1 to 38
            #  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #
    row 29  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  #   a wall below it

Everything is an integer, and every function is plain Python without containers, so that numba
compiles the same source for CPUs and for CUDA. Randomness comes from a hash of a key and a counter
instead of a generator with state. Intermediate values fit into signed 64 bits, except the products
in :func:`mix`, of which only the lower 32 bits are used.
"""

from __future__ import annotations

HEIGHT, WIDTH = 30, 40

# Contents of a cell.
EMPTY, PADDLE, BALL = 0, 1, 2

# Actions of a player.
STAY, UP, DOWN = 0, 1, 2

# A paddle covers HALF rows above and below its centre, and moves PACE rows per step.
HALF, PACE = 2, 2

# Limits of a paddle's centre, and its row when a game begins.
TOP, BOTTOM, CENTRE = HALF, HEIGHT - 1 - HALF, HEIGHT // 2

# Maximum number of rows that the ball moves per step.
STEEPEST = 3

# Columns where the ball meets a paddle, and where it is served to the left and to the right.
LEFT_END, RIGHT_END = 1, WIDTH - 2
LEFT_SERVE, RIGHT_SERVE = WIDTH // 2 - 1, WIDTH // 2

MASK = 0xFFFFFFFF

# The opponent's attention changes at most every 2 ** SPAN steps.
SPAN = 3

# The skill of an opponent that always pays attention.
FULL_SKILL = 1 << 16


def mix(x: int) -> int:
    """Hash 32 bits to 32 bits.

    This is ``lowbias32`` from Chris Wellons' "Prospecting for Hash Functions" (2018), which he put
    into the public domain.
    """
    x ^= x >> 16
    x = (x * 0x7FEB352D) & MASK
    x ^= x >> 15
    x = (x * 0x846CA68B) & MASK
    return x ^ (x >> 16)


def chance(key: int, draw: int) -> int:
    """Return 32 random bits for the number of a draw, under a key."""
    return mix((int(key) & MASK) ^ mix(int(draw) & MASK))


def moved(paddle: int, action: int) -> int:
    """Return a paddle's centre after an action.

    The paddle moves two rows up or down, or stays. At a wall it stops, and so moves by one row
    only, or not at all.
    """
    if action == UP:
        paddle -= PACE
    if action == DOWN:
        paddle += PACE
    return min(max(paddle, TOP), BOTTOM)


def folded(row: int) -> int:
    """Return the row of the ball, given the row it would be in without walls.

    Walls are mirrors through the middle of rows 0 and 29. A ball that ends a step in row 0 or 29
    has not been reflected yet: that happens in the next step.
    """
    if row < 0:
        row = -row
    if row > HEIGHT - 1:
        row = 2 * (HEIGHT - 1) - row
    return row


def fly(
    row: int, column: int, fall: int, run: int, left: int, right: int
) -> tuple[int, int, int, int, int]:
    """Move the ball by a step, after the paddles have moved.

    The ball moves one column towards ``run`` and ``fall`` rows down, reflected at the walls. When
    it reaches a paddle's neighbouring column, 1 or 38:

    - If the paddle covers its row, the ball flies back with spin: its ``fall`` grows by the number
      of rows it is below the paddle's centre, or shrinks by the number it is above, clipped to -3
      to 3.
    - Else the other player makes a point and the ball flies no further.

    Args:
        row: Row of the ball.
        column: Its column.
        fall: Rows that it moves down per step, -3 to 3.
        run: Columns that it moves to the right per step, -1 or 1.
        left: Row of the left paddle's centre.
        right: Row of the right paddle's centre.

    Returns:
        The new row, column, fall and run; then the point: 1 for the right player, -1 for the left
        player, or 0.
    """
    straight = row + fall
    row = folded(straight)
    if row != straight:
        fall = -fall
    column += run
    point = 0
    if not LEFT_END < column < RIGHT_END:
        offset = row - (left if run < 0 else right)
        run = -run
        if -HALF <= offset <= HALF:
            fall = min(max(fall + offset, -STEEPEST), STEEPEST)
        else:
            point = run
    return row, column, fall, run, point


def serve(bits: int) -> tuple[int, int, int, int]:
    """Serve a ball from the middle, by random bits; return its row, column, fall and run.

    Both directions, all rows and all seven speeds are equally likely (to one part in some
    hundreds). The ball takes 18 steps to the paddle, which can reach any row by then.
    """
    run = 1 if bits & 1 else -1
    column = RIGHT_SERVE if run > 0 else LEFT_SERVE
    row = (((bits >> 1) & 0xFFF) * HEIGHT) >> 12
    fall = ((((bits >> 13) & 0xFFF) * (2 * STEEPEST + 1)) >> 12) - STEEPEST
    return row, column, fall, run


def attention(key: int, draw: int) -> int:
    """Return the random bits of :func:`follow`, which change every 8 draws.

    Their draw numbers count down, and those of serves count up, so that none is used twice.
    """
    return chance(key, -1 - (int(draw) >> SPAN))


def follow(row: int, run: int, paddle: int, bits: int, skill: int) -> int:
    """Return the action of the scripted opponent, on the left.

    While the ball approaches, the opponent moves towards the ball's current row, without
    predicting the path; within a row of it, it stays. It also stays while the ball flies away and
    while it does not pay attention, which happens with probability ``1 - skill / 65536``, for
    several steps in a row (see :func:`attention`).
    """
    if run > 0 or (bits & 0xFFFF) >= skill:
        return STAY
    if row < paddle - 1:
        return UP
    if row > paddle + 1:
        return DOWN
    return STAY
