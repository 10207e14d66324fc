"""Infos in Gymnasium's vector form: a dict of arrays with a row per environment.

A boolean array under ``"_key"`` tells which rows of ``"key"`` are valid. A vector environment
returns its infos in this form, and :class:`agym.AgymVectorEnv` passes them on whole. Other APIs get
a dict per environment from :func:`split_info`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from agym.core.protocol.typing import Array, Info
from agym.core.protocol.value_copies import COPIED, copy_info, copy_part


class VectorInfos(Sequence[Info]):
    """The infos of a batch in vector form, also readable as a dict per environment.

    Attributes:
        columns: The vector form; empty if no environment has an info.
    """

    def __init__(
        self, count: int, columns: Info, split: Callable[[], list[Info]] | None = None
    ) -> None:
        """Store the infos of ``count`` environments; ``split`` makes a dict for each."""
        self.columns = columns
        self._count = count
        self._make_split = split or partial(split_info, columns, count)
        self._split: list[Info] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Info]:
        return iter(self.split())

    def __getitem__(self, index: Any) -> Any:
        return self.split()[index]

    def split(self) -> list[Info]:
        """Return a dict per environment."""
        if self._split is None:
            self._split = self._make_split() or [{} for _ in range(self._count)]
        return self._split

    def copy(self) -> VectorInfos:
        """Return the same infos in other arrays."""
        return VectorInfos(self._count, copy_info(self.columns)) if self.columns else self


def take_columns(info: Info, count: int) -> Info | None:
    """Copy the info of a batch, and add the masks that it lacks.

    Returns:
        The copy; ``None`` if a value has no row per environment.
    """
    columns: Info = {}
    for key, value, mask in _entries(info):
        column: Any
        if isinstance(value, dict):
            column = take_columns(value, count)
        elif not _has_rows(value, count):
            column = None
        else:
            column = np.array(value)
            if column.dtype.hasobject:
                column[:] = [copy_part(item, {}) for item in column]
            elif key == "final_obs":  # an array of observations, in Gymnasium's form
                column = None
        if column is None:
            return None
        columns[key] = column
        columns[f"_{key}"] = np.ones(count, bool) if mask is None else np.array(mask, bool)
    return columns


def split_info(info: Info, count: int, ids: Array | None = None) -> list[Info]:
    """Split the info of a batch into one per environment; return no dicts for an empty info.

    Dicts nest. Values without a row per environment apply to all of them.

    Args:
        info: The info.
        count: Number of environments in the batch.
        ids: The environments that are wanted, ``None`` for all.
    """
    if not info:
        return []
    rows: list[Info] = [{} for _ in range(count if ids is None else len(ids))]
    for key, value, mask in _entries(info):
        some, chosen = rows, ids
        if mask is not None:
            valid = np.asarray(mask, bool) if ids is None else np.asarray(mask, bool)[ids]
            if np.count_nonzero(valid) < len(rows):
                places = np.flatnonzero(valid)
                some = [rows[k] for k in places.tolist()]
                chosen = places if ids is None else ids[places]
        for row, item in zip(some, _values(value, count, chosen), strict=True):
            row[key] = item
    return rows


def _values(value: Any, count: int, ids: Array | None) -> Sequence[Any]:
    """Return the values of some environments."""
    number = count if ids is None else len(ids)
    if isinstance(value, dict):
        return split_info(value, count, ids) or [{} for _ in range(number)]
    if not _has_rows(value, count):
        return [copy_part(value, {}) for _ in range(number)]
    array = np.asarray(value) if ids is None else np.asarray(value)[ids]
    if array.dtype == np.bool_ and array.ndim == 1:
        values: list[Any] = array.tolist()
        return values
    if array.dtype.hasobject:
        return [copy_part(item, {}) if type(item) in COPIED else item for item in array]
    return list(array if array.ndim == 1 or ids is not None else array.copy())


def _entries(info: Info) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each key with its value and its mask, ``None`` if there is none."""
    for key, value in info.items():
        if not (isinstance(key, str) and key.startswith("_") and key[1:] in info):
            yield key, value, info.get(f"_{key}")


def _has_rows(value: Any, count: int) -> bool:
    return hasattr(value, "__array__") and bool(np.ndim(value)) and len(value) == count
