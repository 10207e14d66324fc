"""How an ``EnvHost`` carries out calls, and reads and sets attributes: a handler per message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    from agym.hosts.gym.host import EnvHost


def render(host: EnvHost, slot: int, message: Render, k: int) -> Any:
    """Return a frame."""
    return host.frames.keep(host.env(slot).render())


def call(host: EnvHost, slot: int, call: Call, k: int) -> Any:
    """Call a method, or read an attribute."""
    method, positional, keywords = call.arguments(k)
    value = look_up(host.env(slot), method)
    return value(*positional, **keywords) if callable(value) else value


def get_attr(host: EnvHost, slot: int, message: GetAttr, k: int) -> Any:
    """Read an attribute."""
    return peek(host.env(slot), message.attribute)


def set_attr(host: EnvHost, slot: int, message: SetAttr, k: int) -> Any:
    """Set an attribute."""
    name, value = message.arguments(k)
    return assign(host.env(slot), name, value, create=message.create)


def close_env(host: EnvHost, slot: int, message: CloseEnv, k: int) -> Any:
    """Close an environment for good."""
    host._closed.add(slot)
    return host.env(slot).close()


def inject(host: EnvHost, slot: int, message: InjectFault, k: int) -> None:
    """Let the next step fail."""
    i = slot - host.first
    host._steps[i] = partial(_inject_fault, host, i, message.faults[k], host._steps[i])


def _inject_fault(
    host: EnvHost, i: int, fault: InjectedFault, step: Callable[[Any], Any], action: Any
) -> Any:
    """Replaces a step that is to fail."""
    host._steps[i] = step
    fault.trigger()
    return step(action)
