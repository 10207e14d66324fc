"""Steps of all sessions, sent together and received as they end.

A call of agym's costs as much for one environment as for many. So the steps that sessions ask for
in one turn of the event loop are one ``send``, and each ``recv`` takes all that have ended::

    sessions: step, step, step --> queue --> envs.send      one for each turn of the loop
    sessions: done(result) <-- envs.recv <-- one task, as long as steps are under way
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from agym import AsyncEnvs
from agym.errors import AgymError, AgymErrorGroup, ClosedError, NothingSentError

# The outcome of an operation: the result of ``env.step`` or ``env.reset``, or an error.
Outcome = tuple[Any, ...] | BaseException


class Stepping:
    """Steps single environments; see the module."""

    def __init__(self, envs: AsyncEnvs[Any, Any]) -> None:
        """Step ``envs``, which are open. No other code may step them."""
        self._envs = envs
        self._loop = asyncio.get_running_loop()
        self._queue: list[tuple[int, Any]] = []
        # The callback of each environment that steps, by the environment's id.
        self._waiting: dict[int, Callable[[Outcome], None]] = {}
        self._sent = asyncio.Event()
        self._receiver = self._loop.create_task(self._receive())

    def step(self, env_id: int, action: Any, done: Callable[[Outcome], None]) -> None:
        """Step an environment that is not being stepped; ``done`` is called with the outcome."""
        if not self._queue:
            self._loop.call_soon(self._send)
        self._queue.append((env_id, action))
        self._waiting[env_id] = done

    async def aclose(self) -> None:
        """End; steps under way fail."""
        self._receiver.cancel()
        await asyncio.wait([self._receiver])
        self._fail([*self._waiting], ClosedError("the server is closed"))

    def _send(self) -> None:
        queue, self._queue = self._queue, []
        queue.sort(key=_env_id)
        try:
            self._envs.send([action for _, action in queue], [i for i, _ in queue])
        except Exception as error:
            # Nothing was sent. With one of them something is wrong: the others must go.
            if len(queue) == 1:
                self._fail([queue[0][0]], error)
                return
            for each in queue:
                self._queue = [each]
                self._send()
        else:
            self._sent.set()

    async def _receive(self) -> None:
        recv, waiting = self._envs.recv, self._waiting
        while True:
            await self._sent.wait()
            try:
                batch = await recv(1)
            except NothingSentError:
                self._sent.clear()
            except AgymErrorGroup as group:
                for error in group.exceptions:
                    self._fail(getattr(error, "env_ids", ()), error)
            except AgymError as error:
                self._fail(getattr(error, "env_ids", ()) or [*waiting], error)
            except Exception as error:  # unforeseen: no session may wait forever
                self._sent.clear()
                self._fail([*waiting], error)
            else:
                _, observations, rewards, terminated, truncated, infos = batch
                rewards, terminated, truncated = map(_listed, (rewards, terminated, truncated))
                for k, i in enumerate(_listed(batch.env_ids)):
                    self._tell(
                        i, (observations[k], rewards[k], terminated[k], truncated[k], infos[k])
                    )
                if not waiting:
                    self._sent.clear()

    def _fail(self, env_ids: Sequence[int], error: BaseException) -> None:
        for i in env_ids:
            self._tell(i, error)

    def _tell(self, env_id: int, outcome: Outcome) -> None:
        done = self._waiting.pop(env_id, None)
        if done is None:
            return
        try:
            done(outcome)
        except Exception as error:  # this session's, and no other's
            message = "a session failed"
            self._loop.call_exception_handler({"message": message, "exception": error})


def _env_id(item: tuple[int, Any]) -> int:
    return item[0]


def _listed(values: Any) -> Any:
    return values if isinstance(values, list) else values.tolist()
