"""A server of OpenAI's protocol on this machine; the caller provides the model's answers.

::

    a library's agent --POST /chat/completions--> AskedModel --next()--> the caller
                      <--------- response -------            <-answer()-
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from agym.core._system.extras import require

web: Any = require("aiohttp.web", "verifiers")


class Asked(NamedTuple):
    """A request, and the future of its answer."""

    body: dict[str, Any]
    answer: asyncio.Future[dict[str, Any]]


class AskedModel:
    """Puts requests of agents into a queue, from which the caller answers them."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._unanswered: set[asyncio.Future[dict[str, Any]]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen on a free port of the loopback interface; yield the base address.

        The address contains a secret, so that other users of this machine have no access.
        """
        secret = secrets.token_urlsafe(16)
        app = web.Application(client_max_size=2**28)
        app.router.add_post(f"/{secret}/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}/{secret}/v1"
        finally:
            for answer in list(self._unanswered):
                answer.cancel()
            await runner.cleanup()

    async def next(self) -> Asked:
        """Wait for a request."""
        return await self._asked.get()

    async def _complete(self, request: Any) -> Any:
        body = await request.json()
        asked = Asked(body, asyncio.get_running_loop().create_future())
        self._unanswered.add(asked.answer)
        self._asked.put_nowait(asked)
        try:
            message = await asked.answer
        finally:
            self._unanswered.discard(asked.answer)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        head = {"id": secrets.token_hex(8), "created": 0, "model": str(body.get("model"))}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return web.json_response(
                {**head, "object": "chat.completion", "choices": [choice], "usage": USAGE}
            )
        calls = message.get("tool_calls") or []
        delta = {**message, "tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]}
        chunk = {
            **head,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            "usage": USAGE,
        }
        return web.Response(
            text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream"
        )


# The tokens of the caller's answers are not counted.
USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def as_message(action: Any) -> dict[str, Any]:
    """Return an action as a message of the model: a text, or a message with ``tool_calls``."""
    if isinstance(action, Mapping):
        return {"role": "assistant", "content": None, **action}
    return {"role": "assistant", "content": str(action)}
