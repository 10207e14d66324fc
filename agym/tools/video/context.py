"""Blocks: what follows environments for a while ends with ``with``, or with ``async with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from agym.api.aio import AsyncEnvs
from agym.api.base import BaseEnvs
from agym.errors import UsageError


class EitherContext(ABC):
    """Is ended by the block's end: of the kind that goes with its face."""

    _face: BaseEnvs[Any, Any]

    @abstractmethod
    def _conclude(self) -> None:
        """End well, and raise what went wrong."""

    @abstractmethod
    async def _aconclude(self) -> None:
        """The same without blocking the loop."""

    @abstractmethod
    def _break_off(self) -> None:
        """End at once, with what there is so far."""

    def __enter__(self) -> Self:
        """End it at the end of the block."""
        if isinstance(self._face, AsyncEnvs):
            self._break_off()
            raise UsageError("these environments are for async code: use `async with`")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End it; if the block raised, with what there is so far."""
        if error is None:
            self._conclude()
        else:
            self._break_off()

    async def __aenter__(self) -> Self:
        """End it at the end of the block."""
        if not isinstance(self._face, AsyncEnvs):
            self._break_off()
            raise UsageError("these environments are for code without asyncio: use `with`")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End it; if the block raised or was cancelled, with what there is so far."""
        if error is None:
            await self._aconclude()
        else:
            self._break_off()
