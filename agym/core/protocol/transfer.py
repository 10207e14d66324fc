"""Transfers of rows from one slot table to another that does not share its memory.

A :class:`RowTransfer` contains the rows of some environments as whole columns, so a batch is a few
arrays, however many environments it has. Rows of adjacent environments are slices. Final
observations are included for environments whose episode ended, and numeric infos as the bytes that
were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agym.core.protocol.infos.info_table import InfoRows
from agym.core.protocol.table import SlotTable
from agym.core.protocol.typing import Array


class RowTransfer(NamedTuple):
    """Rows of one plane.

    Attributes:
        plane: The plane to write.
        ids: Adjacent environments as a slice, others as an array of ids.
        columns: Observations (one per leaf), rewards and the two flags; a row per environment.
        infos: Infos that were written to the table, if any.
        ended: The environments whose final observations are included.
        final: Their final observations, one column per leaf.
    """

    plane: int
    ids: slice | Array
    columns: list[Array]
    infos: InfoRows | None
    ended: Array | None
    final: list[Array]


def take_rows(table: SlotTable, plane: int, ids: Sequence[int], info_bytes: int) -> RowTransfer:
    """Pack rows of a plane.

    Adjacent rows are views, which must not change before they are sent. ``info_bytes`` is the size
    of the largest info that hosts write.
    """
    rows = table.planes[plane]
    whole = ids[-1] - ids[0] + 1 == len(ids)
    index = slice(ids[0], ids[-1] + 1) if whole else np.array(ids)
    columns = [column[index] for column in rows.columns]
    infos = rows.infos.take(index, info_bytes) if info_bytes else None
    done = columns[-2] | columns[-1]
    if not table.final or not done.any():
        return RowTransfer(plane, index, columns, infos, None, [])
    ended = np.array(ids)[done]
    return RowTransfer(plane, index, columns, infos, ended, [block[ended] for block in rows.final])


def put_rows(table: SlotTable, transfer: RowTransfer) -> None:
    """Unpack rows into their plane."""
    rows = table.planes[transfer.plane]
    for block, column in zip(rows.columns, transfer.columns, strict=True):
        block[transfer.ids] = column
    rows.infos.put(transfer.ids, transfer.infos)
    if transfer.ended is not None:
        for block, column in zip(rows.final, transfer.final, strict=True):
            block[transfer.ended] = column
