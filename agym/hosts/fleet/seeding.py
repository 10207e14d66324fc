"""Seeds of resets that have none, for environments that may be in another's place.

Usually a reset without a seed continues the random numbers of the environment. With spares
the next episode is another environment's, so it begins with a seed of its own. That depends only on
the latest seed that the caller gave, and on how many resets followed it: neither on the time that
resets take, nor on which spare was ready first, nor on the workers.
"""

from __future__ import annotations

import numpy as np

# The latest given seed, and how many resets without one followed.
Lineage = tuple[int, int]


def following(lineage: Lineage | None) -> Lineage | None:
    """Return the lineage of the next episode, ``None`` if there was no seed."""
    return None if lineage is None else (lineage[0], lineage[1] + 1)


def seed_of(lineage: Lineage | None) -> int | None:
    """Return the seed of an episode, ``None`` if there is none."""
    if lineage is None or not lineage[1]:
        return lineage and lineage[0]
    sequence = np.random.SeedSequence(lineage[0], spawn_key=(lineage[1],))
    return int(sequence.generate_state(1)[0])
