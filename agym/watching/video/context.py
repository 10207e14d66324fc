"""Context managers for ``with`` or ``async with``, depending on the environments."""

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
        """Finish, and raise any error."""

    @abstractmethod
    async def _afinish(self) -> None:
        """Finish without blocking the loop, and raise any error."""

    @abstractmethod
    def _abort(self) -> None:
        """Finish at once, without waiting for pending work."""

    def __enter__(self) -> Self:
        if isinstance(self._api, AsyncEnvs):
            self._abort()
            raise UsageError("these environments are for async code: use `async with`")
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        """Finish; abort if the block raised."""
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
        """Finish; abort if the block raised or was cancelled."""
        if error is None:
            await self._afinish()
        else:
            self._abort()
