"""Coroutine environments: their protocol, and the space of all Python objects."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gymnasium import Space

from agym.core.protocol.typing import Action, Observation
from agym.errors import UsageError


@runtime_checkable
class AsyncEnv(Protocol[Observation, Action]):
    """An environment that waits: for a network, a browser, a language model, a robot.

    Example:
        >>> import agym, asyncio
        >>> class Shout:
        ...     async def reset(self, *, seed=None, options=None):
        ...         return "hello", {}
        ...     async def step(self, action):
        ...         await asyncio.sleep(0.001)  # ask a server
        ...         return action.upper(), 1.0, False, False, {}
        ...     async def close(self):
        ...         pass
        >>> with agym.make(Shout, 2) as envs:
        ...     observations, infos = envs.reset()
        ...     envs.step(["a", "b"]).observations
        ['A', 'B']

    It is Gymnasium's API with coroutines. agym recognizes such an environment by its ``async def
    step``; no base class is needed. ``observation_space`` and ``action_space`` are optional:
    without them, observations and actions are any Python objects. Also optional are ``metadata``,
    ``render_mode``, ``async def render(self)``, and any methods, coroutines or not, for ``call``.
    """

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; return ``observation, info``."""
        ...

    async def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Return ``observation, reward, terminated, truncated, info``."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


class AnySpace(Space[Any]):
    """The space of all Python objects, for environments that declare no space."""

    def __init__(self) -> None:
        super().__init__(None, None)

    @property
    def is_np_flattenable(self) -> bool:
        """Always false."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Any:
        """Raise an error: this space has no values to sample from.

        Raises:
            UsageError: Always: give the environment an ``action_space`` to sample from.
        """
        raise UsageError("the environment declares no such space, so there is nothing to sample")

    def contains(self, x: Any) -> bool:
        """Return true: every object is in the space."""
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnySpace)

    def __hash__(self) -> int:
        return hash(AnySpace)

    def __repr__(self) -> str:
        return "AnySpace()"
