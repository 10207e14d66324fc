"""What is attached to environments: ``with agym.NAME(envs, ...) as thing``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from agym.errors import UsageError


class Attached(ABC):
    """Follows environments until the end of its block, or until it is closed.

    It is attached as soon as it is made. The block is ``with``, or ``async with`` for async
    environments.
    """

    # Whether it needs ``async with``, because its end waits for async environments. ``None``: its
    # end waits for no environments, so both kinds of blocks are right.
    _is_async: bool | None = None

    @abstractmethod
    def _finish(self) -> None:
        """Detach, finish, and raise any error. Idempotent."""

    async def _afinish(self) -> None:
        """Do the same without blocking the loop."""
        self._finish()

    def _abort(self) -> None:
        """Detach and finish at once; the block raised, or is of the wrong kind."""
        self._finish()

    async def _aabort(self) -> None:
        """Do the same without blocking the loop."""
        self._abort()

    def close(self) -> None:
        """Detach, and finish what is written; the environments stay open. Idempotent.

        Raises:
            UsageError: The environments are for async code.
            Exception: Finishing raised it.
        """
        if self._is_async:
            raise UsageError(
                "these environments are for async code: use `async with`, or await aclose()"
            )
        self._finish()

    async def aclose(self) -> None:
        """Do the same as :meth:`close` without blocking the event loop."""
        if self._is_async is False:
            raise UsageError(
                "these environments are for code without asyncio: use `with`, or close()"
            )
        await self._afinish()

    def __enter__(self) -> Self:
        if self._is_async:
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
        if self._is_async is False:
            self._abort()
            raise UsageError("these environments are for code without asyncio: use `with`")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, where: object) -> None:
        """Finish; abort if the block raised or was cancelled."""
        if error is None:
            await self._afinish()
        else:
            await self._aabort()
