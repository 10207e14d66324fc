"""The rows of held environments of a batch, which repeat until the next reset."""

from __future__ import annotations

from typing import Any

import numpy as np

from agym.protocol.table import Plane
from agym.protocol.typing import Array


class HeldRows:
    """Keeps the rows that ended episodes.

    Environments are chosen by masks, ``bool[count]``. ``objects`` are observation leaves without a
    fixed size, by environment; ``first`` is the environment of the first row.
    """

    def __init__(self) -> None:
        self._observations: list[Array] = []
        self._flags: Array | None = None
        self._objects: dict[int, list[Any]] = {}

    def keep(self, rows: Plane, chosen: Array, objects: dict[int, list[Any]], first: int) -> None:
        """Copy rows, to repeat them."""
        if self._flags is None:
            self._observations = [np.empty_like(block) for block in rows.observations]
            self._flags = np.zeros((2, len(chosen)), bool)
        for block, kept in zip(rows.observations, self._observations, strict=True):
            kept[chosen] = block[chosen]
        self._flags[:, chosen] = rows.terminated[chosen], rows.truncated[chosen]
        for i in np.flatnonzero(chosen).tolist() if objects else ():
            self._objects[i] = objects[first + i]

    def put(
        self,
        rows: Plane,
        chosen: Array,
        infos: list[dict[str, Any]],
        objects: dict[int, list[Any]],
        first: int,
    ) -> None:
        """Replace rows by the kept ones, without reward and info."""
        if self._flags is None or not chosen.any():
            return
        for block, kept in zip(rows.observations, self._observations, strict=True):
            block[chosen] = kept[chosen]
        rows.rewards[chosen] = 0.0
        rows.terminated[chosen], rows.truncated[chosen] = self._flags[:, chosen]
        for i in np.flatnonzero(chosen).tolist() if infos or objects else ():
            if infos:
                infos[i] = {}
            if objects:
                objects[first + i] = self._objects[i]
