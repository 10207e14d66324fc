"""A host's rows of the slot table: reads actions, and writes results, or adds them to a payload."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from threading import RLock
from typing import Any

import numpy as np

from agym.core.protocol.infos.info_table import FINAL_INFO, FINAL_OBSERVATION, InfoArea, InfoWriter
from agym.core.protocol.messages.completions import Payload
from agym.core.protocol.messages.operations import GivenAction
from agym.core.protocol.table import FIRST_BUFFER, Plane, SlotTable
from agym.core.protocol.typing import Array, Info
from agym.core.protocol.value_copies import copy_info, copy_value
from agym.errors import InvalidResult

StepResult = tuple[Any, Any, Any, Any, Info]

# Observations are copied while they are still in the cache: after this many bytes of them, or this
# many environments, because the other results of a step use memory, too. Each group costs a few
# microseconds: with groups of one, Pong x16 is 4 % slower.
CHUNK_BYTES = 1024 * 1024
CHUNK_ENVS = 128

# The error for a value that is not a single number, by its shape or type.
REWARD = "a reward of {}, which must be a number"
FLAG = "a flag of {}, which must be True or False"

# Largest number of cached views.
MAX_VIEWS = 1024


class Rows:
    """The rows ``first:stop``; observations are copied after every ``chunk`` environments."""

    def __init__(self, table: SlotTable, first: int, stop: int) -> None:
        self.table = table
        self.first = first
        self.stop = stop
        self._views: dict[tuple[int, int, int], Plane] = {}
        self._whole_actions = [block[first:stop] for block in table.actions]
        # A single array of observations, or actions, needs no flattening or splitting.
        self._plain = table.observation.single and not table.observation.objects
        leaf = table.action.leaves[0] if table.action.single else None
        self._plain_actions = leaf is not None and leaf.dtype is not None and not leaf.zero_dim
        row_bytes = sum(block[0].nbytes for block in table.planes[0].observations)
        self.chunk = min(CHUNK_ENVS, max(1, CHUNK_BYTES // max(1, row_bytes)))

    def plane(self, plane: int, start: int, stop: int) -> Plane:
        """Return the results of the environments ``start:stop`` in one plane."""
        rows = self._views.get((plane, start, stop))
        if rows is None:
            rows = self.table.planes[plane].at(slice(start, stop))
            if plane < FIRST_BUFFER and len(self._views) < MAX_VIEWS:  # buffers are temporary
                self._views[plane, start, stop] = rows
        return rows

    def actions(self, start: int, stop: int, each: Sequence[Any] | Array | None) -> Any:
        """Return one action per environment: copies, because environments may keep them.

        Args:
            start: The first environment.
            stop: The environment after the last.
            each: An array of all actions, which environments may keep; or the parts of each action
                that the table lacks, ``None`` if there are none.
        """
        if isinstance(each, np.ndarray):
            if self._plain_actions:
                return each
            return self.table.action.cut([each], (), stop - start)
        if each and type(each[0]) is GivenAction:
            return [given.action for given in each]
        blocks = self._whole_actions
        if start != self.first or stop != self.stop:
            blocks = [block[start:stop] for block in self.table.actions]
        if self._plain_actions:
            return blocks[0].copy()
        columns = [block.copy() for block in blocks]
        return self.table.action.cut(columns, each or (), stop - start)

    def with_final(self, info: dict[str, Any], observation: Any) -> dict[str, Any]:
        """Add a final observation to its info, if the table would change the observation's type."""
        if self.table.observation.preserves(observation):
            return info
        return {**(info or {}), FINAL_OBSERVATION: observation}

    def write(
        self, blocks: list[Array], observations: Sequence[Any], start: int
    ) -> dict[int, list[Any]] | None:
        """Write observations of consecutive environments to blocks, one per fixed leaf.

        Returns:
            Copies of the object leaves by environment, ``None`` if the space has none.

        Raises:
            InvalidResult: An observation does not fit the space; the message names the part.
        """
        layout = self.table.observation
        try:
            if self._plain:
                write_rows(blocks[0], observations)
                return None
            flat = [layout.flatten(observation) for observation in observations]
            for block, leaf in zip(blocks, layout.fixed, strict=True):
                write_rows(block, [values[leaf] for values in flat])
        except Exception as error:
            why = next(filter(None, map(layout.misfit, observations)), None)
            if why is None:
                raise
            raise InvalidResult(
                f"an observation that does not fit observation_space: observation{why}"
            ) from error
        if not layout.objects:
            return None
        return {
            slot: [copy_value(values[leaf]) for leaf in layout.objects]
            for slot, values in enumerate(flat, start)
        }


class Extra:
    """The payload of a completion, made on demand: most steps have none.

    Attributes:
        made: The payload, if there is one.
    """

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: Payload | None = None

    @property
    def payload(self) -> Payload:
        """The payload, which is made now if there is none."""
        if self.made is None:
            self.made = Payload()
        return self.made

    def take(self, writer: InfoWriter) -> Payload | None:
        """Return the payload, with new schemas of infos, and start another."""
        if writer.new:
            self.payload.schemas = writer.take_new()
        payload, self.made = self.made, None
        return payload


class Results(Rows):
    """Writes the rows of a host's environments.

    Attributes:
        guard: Entered while rows are written.
        writer: Writes infos to rows.
        infos: The info of each environment's latest row, for snapshots.
        objects: The object leaves of each environment's latest observation.
        here: Receives copies of infos instead of the table, in a step for a caller in this thread.
        finals: With ``here``, the last observations and infos of episodes that the step ended.
        unflagged: In rows of a plane with this mark (``Plane.unflagged``) no flag is set. The mark
            grows with every flag that is set, so that all rows are rewritten once. Other marks may
            come from a previous host.
        blank: In rows with this mark (``Plane.blank``) there is no info; it works the same way.
    """

    def __init__(
        self,
        table: SlotTable,
        first: int,
        stop: int,
        guard: AbstractContextManager[None] | None = None,
    ) -> None:
        super().__init__(table, first, stop)
        self.guard = guard or RLock()  # faster than a null context, and never contended
        self.writer = InfoWriter()
        self.infos: list[Info] = [{}] * (stop - first)
        self.objects: dict[int, list[Any]] = {}
        self.here: list[Info] | None = None
        self.finals: dict[int, tuple[Any, Info]] = {}
        self.unflagged = self.blank = 1

    def put(
        self, plane: int, slot: int, result: StepResult, extra: Extra, final: Info | None = None
    ) -> None:
        """Write the row of one environment.

        Args:
            plane: The plane.
            slot: The environment.
            result: Its row.
            extra: Receives the parts that do not fit into the row.
            final: The info from :meth:`put_final`, if an episode ended before this row.
        """
        observation, reward, terminated, truncated, info = result
        row, objects = slice(slot, slot + 1), None
        if terminated or truncated:
            self.unflagged += 1
        with self.guard:
            whole = self.table.planes[plane]
            if self._plain and _fits(observation, whole.observations[0]):
                whole.observations[0][slot] = observation
            else:
                blocks = [block[row] for block in whole.observations]
                objects = self.write(blocks, [observation], slot)
            if type(reward) is float and type(terminated) is type(truncated) is bool:
                whole.rewards[slot] = reward
                whole.terminated[slot] = terminated
                whole.truncated[slot] = truncated
            else:
                write_column(whole.rewards[row], [reward], REWARD)
                write_column(whole.terminated[row], [terminated], FLAG)
                write_column(whole.truncated[row], [truncated], FLAG)
            self.infos[slot - self.first] = info
            if objects is not None:
                self.note_objects(objects, extra)
            if self.here is not None:
                self.here[slot - self.first] = copied(info)
            elif not info and not final and extra.made is None:
                # The usual case, in a third of the time of the general case.
                whole.infos.words[slot] = 0
            else:
                info = {**(info or {}), FINAL_INFO: final} if final else info
                if info:
                    self.blank += 1
                self.put_info(whole.infos, slot, info, extra)

    def put_final(self, plane: int, slot: int, observation: Any, info: Info, extra: Extra) -> Info:
        """Write the observation that ended an episode; return the info for ``put``."""
        if self.here is not None:
            self.finals[slot] = copy_value(observation), copied(info)
            return {}
        row = self.plane(plane, slot, slot + 1)
        with self.guard:
            objects = self.write(row.final, [observation], slot)
        if objects:  # if empty, do not create a payload: a message takes longer than the step
            extra.payload.final_objects.update(objects)
        return copied(self.with_final(info, observation))

    def put_info(self, area: InfoArea, slot: int, info: Info, extra: Extra) -> None:
        """Write an info to its row, or else into the payload."""
        if not self.writer.put(area, slot, info):
            extra.payload.infos[slot] = copy_info(info)
        elif extra.made is not None:
            extra.made.infos.pop(slot, None)

    def note_objects(self, objects: dict[int, list[Any]], extra: Extra) -> None:
        """Report the object leaves of observations, and keep them for snapshots."""
        extra.payload.objects.update(objects)
        self.objects.update(objects)


def copied(info: Info) -> Info:
    """Return a copy of an info."""
    return copy_info(info) if info else {}


def _fits(value: Any, block: Array) -> bool:
    """Whether a value is an array with the dtype and shape of the block's rows."""
    if type(value) is not np.ndarray:
        return False
    return bool(value.dtype == block.dtype and value.shape == block.shape[1:])


def write_rows(block: Array, rows: Sequence[Any]) -> None:
    """Copy one value per row into a contiguous ``block``, without broadcasting or unsafe casts.

    Raises:
        ValueError: The shape of a row differs from that of the block's rows.
        TypeError: A row cannot be cast to the block's dtype within its kind.
    """
    shape = block.shape[1:]
    first = rows[0]
    # One environment of a Discrete space: a fifth of the time of the general case.
    if len(rows) == 1 and not shape and type(first) is int and block.dtype == np.int64:
        block[0] = first
        return
    if type(first) is np.ndarray and first.shape == shape:
        dtype = block.dtype
        if len(rows) == 1 and dtype == first.dtype:
            block[0] = first
            return
        if shape and dtype == first.dtype and dtype.kind == "f":
            # NumPy checks that all rows have one shape. Only for floats, to which any real number
            # may be cast, and only for arrays: a scalar None would become NaN.
            block[...] = rows
            return
        if {np.shape(row) for row in rows} == {shape} and shape:
            # One call for all rows: concatenated along their first axis they fill the block.
            np.concatenate(rows, out=block.reshape(len(rows) * shape[0], *shape[1:]))
            return
    if not shape:
        column = np.asarray(rows)
        if column.shape == block.shape and np.can_cast(column.dtype, block.dtype, "same_kind"):
            block[:] = column
            return
    for k, row in enumerate(rows):
        array = np.asarray(row)
        if array.shape != shape:
            raise ValueError(f"a value of shape {array.shape} where the space has {shape}")
        if not np.can_cast(array.dtype, block.dtype, "same_kind"):
            raise TypeError(f"a value of dtype {array.dtype} where the space has {block.dtype}")
        block[k] = array


def write_column(block: Array, values: Sequence[Any], misfit: str) -> None:
    """Write one number or flag per row; an array or tensor of one element counts as that element.

    Raises:
        InvalidResult: A value is not a number, nor an array of one: the text ``misfit``.
    """
    with suppress(Exception):
        block[...] = values
        return
    # Arrays with a dimension; tensors with a gradient, or of a dtype unknown to NumPy.
    for k, value in enumerate(values):
        try:
            block[k : k + 1] = [value.item() if hasattr(value, "item") else value]
        except Exception as error:
            shape = tuple(getattr(value, "shape", ()))
            kind = f"shape {shape}" if shape else f"type {type(value).__name__}"
            raise InvalidResult(misfit.format(kind)) from error


def write_flag(block: Array, k: int, flag: Any) -> None:
    """Write a flag that is set.

    Raises:
        InvalidResult: It is a sequence, or an array of several elements.
    """
    if type(flag) is bool:
        block[k] = True
    else:
        write_column(block[k : k + 1], [flag], FLAG)
