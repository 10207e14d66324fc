"""Random numbers of one game: a hash of the game's key and of a counter.

So a game depends only on its seed: not on the engine, the number of games, or other games.
Everything here is integer arithmetic in signed 64 bits, which numba compiles unchanged; only the
lower 32 bits of the products in :func:`mix` are used.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

MASK = 0xFFFFFFFF

# The distance between two adjacent numbers of :meth:`Rng.random`.
UNIT = 2.0**-32

# Mixed into all draws of numbers. Without it, seed 0 would draw an exact 0: the second bits of its
# stream are 0, because the key of seed 0 equals the hash of draw 1, and the hash of 0 is 0.
GOLDEN = 0x9E3779B9


def mix(x: int) -> int:
    """Hash 32 bits to 32 bits, one to one.

    This is ``lowbias32`` from Chris Wellons' "Prospecting for Hash Functions" (2018), which is in
    the public domain.
    """
    x ^= x >> 16
    x = (x * 0x7FEB352D) & MASK
    x ^= x >> 15
    x = (x * 0x846CA68B) & MASK
    return x ^ (x >> 16)


def hashed(key: int, number: int) -> int:
    """Return the 32 random bits at a position of a key's stream."""
    return mix((key & MASK) ^ mix(number & MASK))


def key_of(seed: int) -> int:
    """Return the 32-bit key of a seed; seeds below 2**32 have different keys."""
    key = 1
    while True:
        key = mix(key ^ mix(seed & MASK))
        seed >>= 32
        if not seed:
            return key


class Rng(NamedTuple):
    """The random numbers of one game: the argument ``rng`` of rules.

    Example:
        >>> from types import SimpleNamespace
        >>> rng = Rng(SimpleNamespace(key=7, draws=0))
        >>> rng.integers(1, 7), rng.integers(1, 7), rng.drawn()
        (1, 2, 2)
        >>> 0.0 <= rng.random() < 1.0
        True

    Numbers have 32 random bits each. Each method draws once, :meth:`normal` twice.
    """

    game: Any

    def bits(self) -> int:
        """Draw 32 random bits, as an integer."""
        drawn = hashed(self.game.key, self.game.draws)
        self.game.draws += 1
        return drawn

    def bits_at(self, number: int) -> int:
        """Return the 32 random bits at a position, without drawing them.

        Draws have the positions 0, 1, 2 and so on. Bits at negative positions are never drawn.
        """
        return hashed(self.game.key, number)

    def drawn(self) -> int:
        """Return how many numbers were drawn since the game was seeded."""
        draws: int = self.game.draws
        return draws

    def random(self) -> float:
        """Draw from [0, 1)."""
        return mix(self.bits() ^ GOLDEN) * UNIT

    def uniform(self, low: float, high: float) -> float:
        """Draw from [low, high)."""
        return low + (high - low) * (mix(self.bits() ^ GOLDEN) * UNIT)

    def integers(self, low: int, high: int) -> int:
        """Draw an integer from ``low`` to ``high - 1``; ``high - low`` must be less than 2**31."""
        return low + ((mix(self.bits() ^ GOLDEN) * (high - low)) >> 32)

    def normal(self, mean: float, deviation: float) -> float:
        """Draw from a normal distribution, given its mean and its standard deviation."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return mean + deviation * radius * math.cos(2.0 * math.pi * self.random())
