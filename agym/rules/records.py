"""Tables of games for plain Python: arrays whose elements are Python numbers.

NumPy's scalars compute in their own size: ``int8(100) + 100`` overflows. Compiled code computes in
64 bits, and so do Python numbers, as far as rules need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from agym.core.protocol.typing import Array


class Table:
    """A view of an array; its elements are Python numbers, and its rows are views.

    Example:
        >>> games = Table(np.zeros(2, np.dtype([("score", np.int8), ("board", np.int8, (2, 2))])))
        >>> game = games[1]
        >>> game.score = 100
        >>> game.board[:] = 7
        >>> game.board[0, 1] + game.score
        107
        >>> game
        Record(score=100, board=[[7, 7], [7, 7]])
    """

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> Any:
        part = self.array[index]
        if isinstance(part, np.void):
            return Record(part)
        return Table(part) if isinstance(part, np.ndarray) else part.item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, Record):
            value = value._row
        self.array[index] = value.array if isinstance(value, Table) else value

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.array.shape
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(self.array.size)

    @property
    def flat(self) -> Table:
        """All elements, row by row."""
        return Table(self.array.reshape(-1))

    def sum(self) -> Any:
        """Add one element after the other, as compiled code does; NumPy adds in pairs."""
        total = 0
        for element in self.flat:
            total += element
        return total

    def any(self) -> bool:
        return bool(self.array.any())

    def all(self) -> bool:
        return bool(self.array.all())

    def fill(self, value: Any) -> None:
        self.array.fill(value)

    def __repr__(self) -> str:
        return repr(self.array.tolist())


class Constants(np.ndarray[Any, Any]):
    """A constant array that rules use; its elements are Python numbers, too.

    Example:
        >>> flags = np.array([True, True]).view(Constants)
        >>> flags[0] + flags[1]
        2
    """

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return part.item() if isinstance(part, np.generic) else part


class Record:
    """A row of a structured array; its fields are attributes, which can be set."""

    __slots__ = ("_row",)
    _row: Any

    def __init__(self, row: Any) -> None:
        object.__setattr__(self, "_row", row)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look these up before there is a row
            raise AttributeError(name)
        try:
            value = self._row[name]
        except (ValueError, KeyError):
            raise AttributeError(_unknown(self._row, name)) from None
        return Table(value) if isinstance(value, np.ndarray) else value.item()

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            self._row[name] = value.array if isinstance(value, Table) else value
        except (ValueError, KeyError) as error:
            if name in self._row.dtype.names:
                raise
            raise AttributeError(_unknown(self._row, name)) from error

    def __dir__(self) -> list[str]:
        return [*self._row.dtype.names]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dir__())
        return f"Record({fields})"


def _unknown(row: Any, name: str) -> str:
    return f"the state has no field {name!r}: it has {', '.join(row.dtype.names)}"
