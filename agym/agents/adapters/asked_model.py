"""A server of OpenAI's protocol on this machine; the caller provides the model's answers.

::

    a library's agent --POST /chat/completions--> AskedModel --next()--> the caller
                      <--------- response -------            <-answer()-
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from agym.core._system.extras import require
from agym.core.web.server import WebServer, bind
from agym.core.web.settings import ServerSettings

responses: Any = require("starlette.responses", "verifiers")
LOG = logging.getLogger("agym.verifiers.http")


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
        path = f"/{secret}/v1/chat/completions"
        routing = require("starlette.routing", "verifiers")
        app = require("starlette.applications", "verifiers").Starlette(
            routes=[routing.Route(path, self._complete, methods=["POST"])]
        )
        listening = bind("127.0.0.1", 0)
        host, port = listening.getsockname()[:2]
        server = WebServer(app, listening, ServerSettings(), extra="verifiers", log=LOG)
        try:
            yield f"http://{host}:{port}/{secret}/v1"
        finally:
            for answer in list(self._unanswered):
                answer.cancel()
            await server.aclose()

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
        except asyncio.CancelledError:
            if not asked.answer.cancelled():
                raise
            return responses.Response(status_code=503)  # the server closes
        finally:
            self._unanswered.discard(asked.answer)
        stream, calls = body.get("stream"), message.get("tool_calls") or []
        if stream:
            numbered = [{"index": i, **call} for i, call in enumerate(calls)]
            message = {**message, "tool_calls": numbered}
        reason = "tool_calls" if calls else "stop"
        part = "delta" if stream else "message"
        completion = {
            "id": secrets.token_hex(8),
            "object": "chat.completion.chunk" if stream else "chat.completion",
            "created": 0,
            "model": str(body.get("model")),
            "choices": [{"index": 0, part: message, "finish_reason": reason}],
            "usage": USAGE,
        }
        if not stream:
            return responses.JSONResponse(completion)
        events = f"data: {json.dumps(completion)}\n\ndata: [DONE]\n\n"
        return responses.Response(events, media_type="text/event-stream")


# The tokens of the caller's answers are not counted.
USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def as_message(action: Any) -> dict[str, Any]:
    """Return an action as a message of the model: a text, or a message with ``tool_calls``."""
    if isinstance(action, Mapping):
        return {"role": "assistant", "content": None, **action}
    return {"role": "assistant", "content": str(action)}
