"""Context managers that work with ``with`` or ``async with``, as the environments require."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from agym import AsyncEnvs, Envs
from agym.errors import UsageError


class EitherContext(ABC):
    """Finishes at the end of a ``with`` block, or of ``async with`` for async environments."""

    _api: Envs | AsyncEnvs

    @abstractmethod
    def _finish(self) -> None:
        """Finish, and raise what went wrong."""

    @abstractmethod
    async def _afinish(self) -> None:
        """Finish without blocking the loop, and raise what went wrong."""

    @abstractmethod
    def _abort(self) -> None:
        """Finish at once, with what there is so far."""

    def __enter__(self) -> Self:
        if isinstance(self._api, AsyncEnvs):
            self._abort()
            raise UsageError("these environments are for async code: use `async with`")
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        """Finish; if the block raised, with what there is so far."""
        if error is None:
            self._finish()
        else:
            self._abort()

    async def __aenter__(self) -> Self:
        if not isinstance(self._api, AsyncEnvs):
            self._abort()
            raise UsageError("these environments are for code without asyncio: use `with`")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, where: object) -> None:
        """Finish; if the block raised or was cancelled, with what there is so far."""
        if error is None:
            await self._afinish()
        else:
            self._abort()
