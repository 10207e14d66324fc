"""``agym.openenv``: the environments of an OpenEnv server, as coroutine environments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from gymnasium import Space
from gymnasium.spaces import Dict

from agym.agents.openenv.client_server import Server, base_url
from agym.agents.openenv.client_session import WebSocketSession
from agym.agents.openenv.client_types import Typed, action_writer, as_element, observation_reader
from agym.agents.openenv.http_session import HTTPSession, ask_for_schema
from agym.agents.openenv.space_schema import KEYWORD, build_space
from agym.agents.openenv.wire import VALUE
from agym.core._system.extras import require
from agym.core.hosts.async_env import AnySpace
from agym.core.protocol.typing import Options, Result, Start
from agym.errors import UsageError, UsageTypeError

# What a server may call that an episode was cut off; the second is of Gymnasium's old wrapper.
TRUNCATED = ("truncated", "TimeLimit.truncated")
# The maximum number of bytes of a message, as in OpenEnv's client: pictures and pages are large.
MAX_SIZE = 100 * 2**20


def openenv(
    url: str,
    *,
    token: str | None = None,
    observation: Typed = None,
    action: Typed = None,
    observation_space: Space[Any] | None = None,
    action_space: Space[Any] | None = None,
    protocol: Literal["websocket", "http"] = "websocket",
    timeout: float | None = 60.0,
    connect_timeout: float = 10.0,
    max_sessions: int | None = None,
    max_size: int = MAX_SIZE,
    headers: Mapping[str, str] | None = None,
) -> Callable[[], RemoteEnv]:
    """Return a factory of environments of an OpenEnv server.

    Example:
        >>> import agym, asyncio
        >>> async def main():
        ...     async with agym.serve("CartPole-v1", 2) as server:  # elsewhere: agym serve
        ...         factory = await asyncio.to_thread(
        ...             agym.openenv, server.url, token=server.token
        ...         )
        ...         async with agym.make_async(factory, 2) as envs:
        ...             observations, infos = await envs.reset(seed=0)
        ...             result = await envs.step([0, 1])
        ...             return observations.shape, result.rewards, envs.single_action_space
        >>> agym.run(main())
        ((2, 4), array([1., 1.]), Discrete(2))

    Each environment has a separate session at the server, which its first ``reset`` opens.
    ``observation`` selects the type of the observations. A reward of ``None`` is 0.0; an episode
    that is ``done`` is terminated, or truncated where the answer or its metadata has ``"truncated":
    true``; the metadata is the info.

    If a request times out or is cancelled, agym closes the session, so that a late answer is never
    taken for the answer to another request. Only this environment fails: the call raises an
    :class:`agym.EnvError` whose ``exception`` is a :class:`agym.RemoteError`. With
    ``on_fault="restart"``, agym opens a new session instead. If the server ends a session between
    two episodes, the next ``reset`` opens a new one. If the server ends it within an episode, the
    environment fails; agym resends nothing.

    This function asks the server for its schema, and waits for the answer. So it raises if the
    address or the token is wrong, and reads the spaces of an agym server. In a coroutine, use
    ``await asyncio.to_thread(agym.openenv, url)``; this is required if the server runs on the same
    event loop.

    Args:
        url: The server's address: ``"http://127.0.0.1:8000"``, or with ``https``, ``ws``, ``wss``.
        token: Sent as ``Authorization: Bearer TOKEN``.
        observation: The type of the observations: a pydantic model, a dataclass, a function of the
            received dict, or the name of a field. By default, dicts; from an agym server, the
            observations of its environments.
        action: The type that ``step`` accepts: a pydantic model, a dataclass, a function that
            returns a dict, or the name of the field that receives the action. By default, dicts,
            models or dataclasses; for an agym server, the actions of its environments.
        observation_space: The space of the observations. agym converts observations to arrays of
            its dtype. By default, an agym server's space; otherwise any Python object.
        action_space: The space of the actions; the same default.
        protocol: ``"websocket"``, or ``"http"`` for a server without it. OpenEnv's servers make a
            new environment for each HTTP request.
        timeout: Seconds for the answer to one ``reset``, ``step`` or call; ``None`` for no limit.
        connect_timeout: Seconds to reach the server, and to wait for a session if the server is
            full or ``max_sessions`` are open.
        max_sessions: Maximum number of open sessions per process. Waiting environments get a
            session in order, when an episode ends or an environment is closed.
        max_size: Maximum size of an answer in bytes; a larger one ends the session.
        headers: Further HTTP headers.

    Returns:
        A factory for :func:`agym.make_async` and :func:`agym.make`, which can be pickled.

    Raises:
        RemoteError: The server cannot be reached, refuses the token, or is no OpenEnv server.
        UsageError: An argument cannot work.
        MissingExtraError: The extra ``openenv`` is not installed.
    """
    require("websockets", "openenv")
    require("httpx2", "openenv")
    if protocol not in ("websocket", "http"):
        raise UsageError(f"protocol={protocol!r} must be 'websocket' or 'http'")
    if max_sessions is not None and (not isinstance(max_sessions, int) or max_sessions < 1):
        raise UsageError(f"max_sessions={max_sessions!r} must be at least 1, or None")
    if max_size < 1:
        raise UsageError(f"max_size={max_size!r} must be a positive number of bytes")
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        if space is not None and not isinstance(space, Space):
            raise UsageTypeError(f"{name}={space!r} must be a space of Gymnasium's")
    observation_reader(observation)
    action_writer(action)
    server = Server(
        base_url(url),
        _headers(token, headers),
        None if timeout is None else _seconds("timeout", timeout),
        _seconds("connect_timeout", connect_timeout),
        max_sessions,
        max_size,
    )
    served, served_actions = _served_spaces(server, ask_for_schema(server))
    # agym recognizes a ``partial`` of a class of coroutine environments without a call.
    return partial(
        RemoteEnv,
        server,
        stateless=protocol == "http",
        observation=observation,
        action=action,
        observation_space=served if observation_space is None else observation_space,
        action_space=served_actions if action_space is None else action_space,
        served=served,
    )


def _served_spaces(
    server: Server, schema: Mapping[str, Any]
) -> tuple[Space[Any] | None, Space[Any] | None]:
    """Return the spaces of observations and actions, ``None`` if the server is not agym's."""
    parts = schema.get("observation"), schema.get("action")
    if not all(isinstance(part, dict) and KEYWORD in part for part in parts):
        return None, None
    try:
        observation, action = (build_space(part[KEYWORD]) for part in parts if part)
    except ValueError as error:
        raise server.not_openenv(f"its schema is wrong: {error}") from error
    return observation, action


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageTypeError(f"{name}={value!r} must be seconds")
    if not (0 < value < math.inf):
        raise UsageError(f"{name}={value!r} must be a positive number of seconds")
    return float(value)


def _headers(token: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers of every request.

    Raises:
        UsageError: A header could not be sent as one line of ASCII.
    """
    fields = dict(headers or {})
    if token is not None:
        fields["Authorization"] = f"Bearer {token}"
    for name, value in fields.items():
        text = f"{name}{value}"
        if not (isinstance(value, str) and text.isascii() and text.isprintable()):
            argument = "token" if name == "Authorization" else f"headers[{name!r}]"
            raise UsageError(f"{argument} must be printable ASCII text")
    return fields


class RemoteEnv:
    """An environment of an OpenEnv server (:class:`agym.AsyncEnv`); :func:`agym.openenv` makes it.

    The first ``reset`` opens its session.
    """

    def __init__(
        self,
        server: Server,
        *,
        stateless: bool,
        observation: Typed,
        action: Typed,
        observation_space: Space[Any] | None,
        action_space: Space[Any] | None,
        served: Space[Any] | None,
    ) -> None:
        """Store the arguments, which :func:`agym.openenv` describes.

        ``served`` is the space of the observations that a server of agym's own sends, ``None`` for
        another server. Observations and actions of agym's need not be objects.
        """
        self._server = server
        self._session = HTTPSession(server) if stateless else WebSocketSession(server)
        self._read = observation_reader(observation)
        self._served = served
        self._write = action_writer(action)
        if served is not None and action is None:
            self._write = lambda action: action
        # What a function or type of the caller's returns is the observation.
        self._space = None if callable(observation) else observation_space
        self.observation_space = AnySpace() if observation_space is None else observation_space
        self.action_space = AnySpace() if action_space is None else action_space
        self.metadata: dict[str, Any] = {"render_modes": []}

    async def reset(self, *, seed: int | None = None, options: Options | None = None) -> Start:
        """Start an episode; send the seed, if any, and the options to the server.

        Raises:
            RemoteError: The server cannot be reached, is full, or failed.
        """
        data = dict(options or {})
        if self._served is not None:
            data = {"options": options}
        if seed is not None:
            data["seed"] = seed
        observation, _, _, _, info = self._result("reset", await self._session.reset(data))
        return observation, info

    async def step(self, action: Any) -> Result:
        """Take a step in the session.

        Raises:
            RemoteError: The session is lost, or the server failed.
            UsageError: The action does not fit ``action=``.
        """
        result = self._result("step", await self._session.step(self._write(action)))
        if result[2] or result[3]:
            self._session.end_episode()
        return result

    async def state(self) -> dict[str, Any]:
        """Return the server's record of the episode, as its id and the number of steps.

        Raises:
            RemoteError: The session is lost, or the server failed.
        """
        return await self._session.state()

    async def close(self) -> None:
        """End the session."""
        await self._session.close()

    def _result(self, operation: str, data: dict[str, Any]) -> Result:
        """Convert the data of an answer to the result of ``step``."""
        try:
            info = dict(data.get("metadata") or {})
            done, reward = data.get("done") or False, float(data.get("reward") or 0.0)
            if not isinstance(done, bool):
                raise TypeError(f"done is {done!r}")
            truncated = _is_truncated(data, info)
            if self._served is not None:
                info = dict(info["info"])
            if self._session.binary:
                return self._read(data), reward, done and not truncated, truncated, info
            observation = self._read(self._unwrapped(data))
            if self._space is not None:
                observation = as_element(self._space, observation)
        except UsageError:
            raise  # what the caller's types or spaces say does not fit
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            text = f"the answer to {operation} is wrong: {type(error).__name__}: {error}"
            raise self._server.error(operation, "BAD_ANSWER", text) from error
        return observation, reward, done and not truncated, truncated, info

    def _unwrapped(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data with the observation itself, where text has it as the only field."""
        fields = data["observation"]
        if self._served is None or isinstance(self._served, Dict):
            return data
        if isinstance(self._served, AnySpace) and fields.keys() != {VALUE}:
            return data
        return {**data, "observation": fields[VALUE]}


def _is_truncated(data: dict[str, Any], info: dict[str, Any]) -> bool:
    places = [place for place in (data, info, data["observation"]) if isinstance(place, dict)]
    return any(place.get(name) is True for place in places for name in TRUNCATED)
