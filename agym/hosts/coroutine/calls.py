"""How a ``CoroutineHost`` carries out calls, and uses attributes: a handler per message."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from agym.hosts.fault_injection import InjectedFault
from agym.protocol.attributes import assign, look_up, peek
from agym.protocol.messages.operations import (
    Call,
    CloseEnv,
    GetAttr,
    InjectFault,
    Render,
    SetAttr,
)

if TYPE_CHECKING:
    from agym.hosts.coroutine.host import CoroutineHost


async def render(host: CoroutineHost, i: int, message: Render, _: None) -> Any:
    """Return a frame."""
    return host.frames.keep(await call(host, i, Call("render"), None))


async def call(host: CoroutineHost, i: int, call: Call, _: None) -> Any:
    """Call a method, which may be a coroutine."""
    value = look_up(host._envs[i], call.method)
    if callable(value):
        value = value(*call.positional, **(call.keywords or {}))
    return await value if inspect.isawaitable(value) else value


async def get_attr(host: CoroutineHost, i: int, message: GetAttr, _: None) -> Any:
    """Read an attribute."""
    return peek(host._envs[i], message.attribute)


async def set_attr(host: CoroutineHost, i: int, message: SetAttr, value: Any) -> Any:
    """Set an attribute."""
    return assign(host._envs[i], message.attribute, value, create=message.create)


async def close_env(host: CoroutineHost, i: int, message: CloseEnv, _: None) -> None:
    """Close an environment for good."""
    await host._close(i)


async def inject(host: CoroutineHost, i: int, message: InjectFault, fault: InjectedFault) -> None:
    """Let the next step fail."""
    host._injected_faults[i] = fault


async def close(env: Any) -> None:
    """Close an environment, if it has something to close."""
    method = getattr(env, "close", None)
    if method is not None:
        done = method()
        if inspect.isawaitable(done):
            await done
