"""Coroutine environments: what one has to offer, and the space of anything."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gymnasium import Space

from agym.errors import UsageError
from agym.protocol.typing import Action, Observation


@runtime_checkable
class AsyncEnv(Protocol[Observation, Action]):
    """An environment that waits: for a network, a browser, a language model, a robot.

    It is Gymnasium's API with coroutines. ``async def step`` is what agym knows one by; nothing
    has to be inherited. It may have ``observation_space`` and ``action_space``, without which
    observations and actions are Python objects of any kind; further ``metadata``,
    ``render_mode``, ``async def render(self)`` and any methods, coroutines or not, for ``call``.
    """

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; gives ``observation, info``."""
        ...

    async def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Go on; gives ``observation, reward, terminated, truncated, info``."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


class AnySpace(Space[Any]):
    """The space of all Python objects: of an environment that does not say what it takes."""

    def __init__(self) -> None:
        """Without shape and dtype."""
        super().__init__(None, None)

    @property
    def is_np_flattenable(self) -> bool:
        """It is not."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Any:
        """There is no such thing.

        Raises:
            UsageError: Always: give the environment an ``action_space`` to sample from.
        """
        raise UsageError("there is nothing to sample from: the environment has no such space")

    def contains(self, x: Any) -> bool:
        """Everything is in it."""
        return True

    def __eq__(self, other: object) -> bool:
        """There is only one."""
        return isinstance(other, AnySpace)

    def __hash__(self) -> int:
        """Of the only one."""
        return hash(AnySpace)

    def __repr__(self) -> str:
        """As it is made."""
        return "AnySpace()"
