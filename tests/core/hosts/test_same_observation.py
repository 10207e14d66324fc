"""Observations of any kind can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from agym.core.hosts.async_env import AnySpace
from agym.core.hosts.slot import same_observation
from agym.core.protocol.space_layout import Layout


@dataclass
class Board:
    """Only its class can compare it."""

    cells: str


def test_arrays_in_sequences_and_objects_are_compared() -> None:
    arrays = (np.zeros(2, np.float32), np.ones(2, np.float32))
    cases = [
        (
            spaces.Sequence(spaces.Box(0, 1, (2,))),
            arrays,
            tuple(map(np.copy, arrays)),
            arrays[::-1],
        ),
        (AnySpace(), Board("x.o"), Board("x.o"), Board("x.x")),
    ]
    for space, one, equal, other in cases:
        assert same_observation(Layout(space), one, equal)
        assert not same_observation(Layout(space), one, other)
