"""The rules of Pong, one game at a time: the specification that every way to play it follows.

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
compiles the same text for processors and for graphics cards. Chance comes from a hash of a key and
a counter instead of a generator with a state. No intermediate value leaves the 64 bits of a signed
integer but in the products of :func:`mix`, of which only the lower 32 bits are used.
"""

from __future__ import annotations

HEIGHT, WIDTH = 30, 40

# What a cell of the grid holds.
EMPTY, PADDLE, BALL = 0, 1, 2

# What a player can do.
STAY, UP, DOWN = 0, 1, 2

# A paddle covers so many rows above its centre and below it, and moves so many in a step.
HALF, PACE = 2, 2

# The centre of a paddle stays between these rows, and is here when a game begins.
TOP, BOTTOM, CENTRE = HALF, HEIGHT - 1 - HALF, HEIGHT // 2

# Rows per step that the ball moves at most.
STEEPEST = 3

# Where the ball meets a paddle, and where it is served to the left and to the right.
LEFT_END, RIGHT_END = 1, WIDTH - 2
LEFT_SERVE, RIGHT_SERVE = WIDTH // 2 - 1, WIDTH // 2

MASK = 0xFFFFFFFF

# The opponent pays attention, or does not, for 2 ** SPAN steps on end.
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
    """The 32 random bits of a draw, by its number, under a key."""
    return mix((int(key) & MASK) ^ mix(int(draw) & MASK))


def moved(paddle: int, action: int) -> int:
    """Where a paddle is after an action.

    It moves two rows up or down, or stays. The exception: it stops where its end meets the
    wall, and so moves by one row only, or by none.
    """
    if action == UP:
        paddle -= PACE
    if action == DOWN:
        paddle += PACE
    return min(max(paddle, TOP), BOTTOM)


def folded(row: int) -> int:
    """The row that a ball is in which would be in ``row`` if there were no walls.

    Walls are mirrors through the middle of rows 0 and 29, so that a path with its reflections is a
    straight one on a strip that is folded up. A ball that ends a step just in row 0 or 29 has
    not been reflected yet: that happens in the step after.
    """
    if row < 0:
        row = -row
    if row > HEIGHT - 1:
        row = 2 * (HEIGHT - 1) - row
    return row


def fly(
    row: int, column: int, fall: int, run: int, left: int, right: int
) -> tuple[int, int, int, int, int]:
    """Move the ball by a step.

    It moves one column towards ``run`` and ``fall`` rows down, reflected at the walls. Where it
    comes to stand before a paddle, in column 1 or 38, it is decided at once:

    - The paddle covers its row: the ball flies back, and gets spin by where it was hit: as many
      rows per step more downwards as it is below the centre of the paddle, and as many
      more upwards as it is above. The exception: never more than 3 either way.
    - Else the other player has made a point. The ball flies no further.

    Paddles have moved before the ball does.

    Args:
        row: Row of the ball.
        column: Its column.
        fall: The rows by which it moves down in a step, -3 to 3.
        run: The columns by which it moves to the right, -1 or 1.
        left: Row of the left paddle's centre.
        right: Row of the right paddle's centre.

    Returns:
        The first four anew; then whose point it is: 1 the right player's, -1 the left player's,
        or 0.
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
    """Bring a ball into play, from the middle, by random bits.

    To either side, in any row, at any of the seven speeds, all equally likely (to one part in
    some hundreds). It takes 18 steps to the paddle, which can be anywhere by then.

    Returns:
        Its row, column, fall and run.
    """
    run = 1 if bits & 1 else -1
    column = RIGHT_SERVE if run > 0 else LEFT_SERVE
    row = (((bits >> 1) & 0xFFF) * HEIGHT) >> 12
    fall = ((((bits >> 13) & 0xFFF) * (2 * STEEPEST + 1)) >> 12) - STEEPEST
    return row, column, fall, run


def attention(key: int, draw: int) -> int:
    """The random bits that :func:`follow` is given, which stay the same for 8 draws.

    Draws are counted down for them, and up for serves, so that none is used twice.
    """
    return chance(key, -1 - (int(draw) >> SPAN))


def follow(row: int, run: int, paddle: int, bits: int, skill: int) -> int:
    """What the scripted opponent, who plays on the left, does.

    While the ball comes, it moves towards the row that the ball is in now, not knowing where it
    will be; within a row of that it stays. It stays as well while the ball flies away, and
    whenever it does not pay attention: with the chance ``1 - skill / 65536``, for some steps on end
    (see :func:`attention`).

    Returns:
        An action.
    """
    if run > 0 or (bits & 0xFFFF) >= skill:
        return STAY
    if row < paddle - 1:
        return UP
    if row > paddle + 1:
        return DOWN
    return STAY
