r"""Infos in the slot table: infos that consist of numbers need no message.

A row has room for one info in each plane, and a word with the id of the info's schema, 0 for none.
A host derives a schema when it first sees such an info, writes with it from then on, and announces
it once, with the completion in which it is first used::

    host   InfoWriter.put --> area.words[slot] = schema.id, the row = its numbers
                          \-> Payload.schemas, once      (infos that do not fit: Payload.infos)
    engine InfoReader.schemas <-- Payload.schemas
           InfoReader.read    <-- area

Hosts need not agree on schemas: an id is a hash of the schema and describes a row completely,
whichever worker wrote it. So replaced or recycled workers may write rows next to one another. For
the same reason, room is reserved in advance. It costs nothing before it is used, because the kernel
allocates no memory for pages that were never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from agym.core.protocol.infos.schema import Schema, signature_of
from agym.core.protocol.infos.vector_infos import VectorInfos
from agym.core.protocol.memory import ALIGNMENT, Field
from agym.core.protocol.typing import Array, Info
from agym.errors import AgymError

# Keys of an info on its way to the caller, under same-step autoreset: the info that ended an
# episode; and, in that info, the final observation, if the slot table would change its type.
FINAL_INFO, FINAL_OBSERVATION = "agym.final_info", "agym.final_obs"

# Schemas per host; other infos are sent as messages.
MAX_SCHEMAS = 16

# After this many infos with the same keys that fit no schema, stop trying.
MAX_REFUSED = 64

# Bytes per info: all rows of a plane share ``ROOM``, within the two limits.
ROOM, MIN_ROOM, MAX_ROOM = 2 << 20, 2 << 10, 16 << 10


def info_fields(planes: int, count: int) -> dict[str, Field]:
    """Return the arrays of an area of ``count`` rows in each plane."""
    room = min(max(ROOM // count, MIN_ROOM), MAX_ROOM)
    # With a power of two, all rows would start in the same few cache lines (associativity).
    stride = room // ALIGNMENT * ALIGNMENT + ALIGNMENT
    return {
        "infos.words": (np.dtype(np.int64), (planes, count)),
        "infos.memory": (np.dtype(np.uint8), (planes, count, stride)),
    }


class InfoRows(NamedTuple):
    """Rows in transfer to another area: the id of each row's schema, and its bytes."""

    words: Array
    rows: Array


class InfoArea:
    """Room for an info in each row of one plane.

    Attributes:
        words: The id of each row's schema, 0 for none.
        bytes: All rows, end to end, each of ``stride`` bytes.
    """

    def __init__(self, arrays: Mapping[str, Array], plane: int) -> None:
        """Use a plane of the arrays that :func:`info_fields` lays out."""
        words, memory = arrays["infos.words"][plane], arrays["infos.memory"][plane]
        self.words = words.data
        self.bytes = memory.reshape(-1).data
        self.stride = memory.shape[1]
        self._words = words
        self._memory = memory
        self._columns: dict[int, list[Array]] = {}

    def columns(self, schema: Schema) -> list[Array]:
        """Return an array over each field of rows that were written by one schema."""
        columns = self._columns.get(schema.id)
        if columns is None:
            columns = self._columns[schema.id] = schema.columns(self._memory)
        return columns

    def word_of_all(self) -> int | None:
        """Return the id of the schema with which all rows were written, if it is the same."""
        first = self.words[0]
        return int(first) if bool((self._words == first).all()) else None

    def take(self, index: Any, size: int) -> InfoRows | None:
        """Copy the first ``size`` bytes of some rows, if any of them has an info."""
        words = self._words[index]
        if not words.any():
            return None
        return InfoRows(words, np.ascontiguousarray(self._memory[index, :size]))

    def put(self, index: Any, infos: InfoRows | None) -> None:
        """Write rows that were copied from another area."""
        if infos is None:
            self._words[index] = 0
        else:
            self._words[index] = infos.words
            self._memory[index, : infos.rows.shape[1]] = infos.rows


class InfoWriter:
    """The host's end; ``new`` has the schemas to announce, by id."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], list[Schema]] = {}
        self._ids: set[int] = set()
        self.new: dict[int, Schema] = {}
        # Number of infos that fit no schema and got no new one, by their keys.
        self._refused: dict[tuple[Any, ...], int] = {}

    def put(self, area: InfoArea, slot: int, info: Any) -> bool:
        """Write an info to a row, or clear the row; return whether the info fits."""
        if info and type(info) is dict:
            keys = (*info,)
            refused = self._refused.get(keys, 0)
            if refused < MAX_REFUSED:
                for schema in self._known.get(keys, ()):
                    if schema.write(area.bytes, slot * area.stride, info):
                        area.words[slot] = schema.id
                        return True
                if len(self._ids) < MAX_SCHEMAS and self._learn(area, slot, info):
                    return True
                self._refused[keys] = refused + 1
        area.words[slot] = 0
        return not info

    def _learn(self, area: InfoArea, slot: int, info: Info) -> bool:
        signature = signature_of(info)
        schema = None if signature is None else Schema(signature)
        if schema is None or schema.id in self._ids or schema.size > area.stride:
            return False
        if not schema.write(area.bytes, slot * area.stride, info):
            return False
        self._known.setdefault(schema.keys, []).append(schema)
        self._ids.add(schema.id)
        self.new[schema.id] = schema
        area.words[slot] = schema.id
        return True

    def take_new(self) -> dict[int, Schema]:
        """Remove and return the schemas to announce."""
        new, self.new = self.new, {}
        return new


class InfoReader:
    """The engine's end; ``schemas`` has the announced schemas. If empty, no row has an info."""

    def __init__(self) -> None:
        self.schemas: dict[int, Schema] = {}

    def read(self, area: InfoArea, ids: Sequence[int]) -> list[Info]:
        """Build the infos of some environments, in order; most are empty."""
        count = len(ids)
        index: Any = ids
        if isinstance(ids, range):
            index = slice(ids.start, ids.stop)
            words = area.words[index].tolist()
        else:
            index, words = [*ids], [area.words[i] for i in ids]
        first = words[0] if words else 0
        if words.count(first) == count:
            if not first:
                return [{} for _ in ids]
            schema = self._schema(first)
            return schema.read(area.columns(schema), index, count)
        infos: list[Info] = [{} for _ in ids]
        for word in {*words} - {0}:
            places = [k for k, other in enumerate(words) if other == word]
            schema = self._schema(word)
            some = schema.read(area.columns(schema), [ids[k] for k in places], len(places))
            for k, info in zip(places, some, strict=True):
                infos[k] = info
        return infos

    def read_all(self, area: InfoArea, count: int) -> VectorInfos | None:
        """Return the infos of all environments in vector form, if they have the same keys."""
        word = area.word_of_all()
        if not word:
            return None if word is None else VectorInfos(count, {})
        schema = self._schema(word)
        if not schema.batches:
            return None
        arrays = [column.copy() for column in area.columns(schema)]
        split = partial(schema.read, arrays, slice(None), count)
        return VectorInfos(count, schema.batch(arrays, count), split)

    def _schema(self, word: int) -> Schema:
        try:
            return self.schemas[word]
        except KeyError:
            # The announcement was lost, in an unreadable message or with its worker.
            raise AgymError(
                "an info has a schema that its worker has not announced: restart() the environments"
            ) from None


def merge_infos(infos: list[Info], ids: Iterable[int], received: dict[int, Info]) -> None:
    """Add infos that came as messages: whole infos, or additions on the way (a fault)."""
    for k, slot in enumerate(ids):
        if slot in received:
            infos[k] = {**infos[k], **received[slot]} if infos[k] else received[slot]
