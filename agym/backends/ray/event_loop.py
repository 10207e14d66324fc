"""Runs an actor's coroutine environments on an event loop, in the thread that made them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agym.backends.options import Ray
from agym.backends.port import BackendOptions, closed, open_host
from agym.backends.ray.reply_buffer import ReplyBuffer
from agym.hosts.loop import LoopHost, guarded
from agym.protocol.messages.completions import Completion, Payload
from agym.protocol.messages.operations import CLOSE, Operation
from agym.protocol.table import SlotTable
from agym.protocol.typing import Array


class LoopServer:
    """Runs operations on the running loop; completions of one turn of it are sent together."""

    def __init__(self, options: BackendOptions, replies: ReplyBuffer) -> None:
        self._replies = replies
        self._host = options.host(
            LoopHost, replies.ids, report=self._report, fail=self._fail,
            max_concurrency=options.spec_as(Ray).max_concurrency,
        )  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._ended: list[Completion] = []

    async def serve(self, number: int) -> None:
        """Make the environments, and run them until ``close``."""
        self._send([open_host(self._host, number)])
        await self._closed
        self._send([closed(self._host, await self._host.close())])

    def attach(self, table: SlotTable) -> None:
        """Give the host its table, from any thread."""
        self._loop.call_soon_threadsafe(guarded, self._fail, self._host.attach, table)

    def give(self, operation: Operation, actions: Sequence[Array]) -> None:
        """Start an operation, from any thread."""
        self._loop.call_soon_threadsafe(guarded, self._fail, self._begin, operation, actions)

    def _fail(self, error: BaseException) -> None:
        """End :meth:`serve`, and so the actor, which the driver notices."""
        if not self._closed.done():
            self._closed.set_exception(error)

    def _begin(self, operation: Operation, actions: Sequence[Array]) -> None:
        if operation.number == CLOSE:
            if not self._closed.done():
                self._closed.set_result(None)
            return
        self._replies.expect(operation, actions)
        self._host.begin(operation)

    def _report(self, operation: Operation, slot: int, payload: Payload | None) -> None:
        if not self._ended:
            self._loop.call_soon(guarded, self._fail, self._send_ended)
        self._ended.append(Completion(operation.number, slot, slot + 1, payload))

    def _send_ended(self) -> None:
        ended, self._ended = self._ended, []
        self._send(ended)

    def _send(self, completions: Sequence[Completion]) -> None:
        self._replies.add(completions)
        self._replies.ring()
