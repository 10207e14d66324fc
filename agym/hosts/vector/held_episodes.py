"""Held episodes: finished environments of a batch, whose rows repeat until the next reset."""

from __future__ import annotations

from typing import Any

import numpy as np

from agym.protocol.table import Plane
from agym.protocol.typing import Array


class HeldEpisodes:
    """The rows of held environments; ``mask`` says which environments of the batch these are."""

    def __init__(self, count: int) -> None:
        self.mask = np.zeros(count, bool)
        self._observations: list[Array] = []
        self._flags = np.zeros((2, count), bool)
        self._objects: dict[int, list[Any]] = {}

    def release(self, mask: Array) -> None:
        """End the hold of environments that were reset."""
        self.mask &= ~mask

    def apply(
        self,
        rows: Plane,
        infos: list[dict[str, Any]],
        objects: dict[int, list[Any]],
        first: int,
    ) -> None:
        """Replace the rows of held environments, and hold those that finish with this batch.

        Infos of held environments are emptied. ``objects`` are observation leaves without a fixed
        size, by environment; ``first`` is the environment of the first row.
        """
        held = self.mask
        if held.any():
            for block, last in zip(rows.observations, self._observations, strict=True):
                block[held] = last[held]
            rows.rewards[held] = 0.0
            rows.terminated[held], rows.truncated[held] = self._flags[:, held]
            for i in np.flatnonzero(held).tolist() if infos or objects else ():
                if infos:
                    infos[i] = {}
                if objects:
                    objects[first + i] = self._objects[i]
        finished = (rows.terminated | rows.truncated) & ~held
        if finished.any():
            if not self._observations:
                self._observations = [np.empty_like(block) for block in rows.observations]
            for block, last in zip(rows.observations, self._observations, strict=True):
                last[finished] = block[finished]
            self._flags[:, finished] = rows.terminated[finished], rows.truncated[finished]
            for i in np.flatnonzero(finished).tolist() if objects else ():
                self._objects[i] = objects[first + i]
            self.mask = held | finished
