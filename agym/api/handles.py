"""What the handles of single environments have in common in the sync and the async API."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from gymnasium.envs.registration import EnvSpec

from agym.api.base import BaseEnvs, is_own
from agym.protocol.attributes import Placeholder
from agym.protocol.messages.completions import Description


class Handle:
    """One environment of many, by its index.

    Attributes that the handle itself does not have are those of the environment or of a wrapper
    around it. Those of :attr:`unwrapped` are the innermost environment's.

    Attributes:
        index: The environment's index.
    """

    index: int
    _envs: Any
    _path: str

    def __init__(self, envs: BaseEnvs[Any, Any], index: int, path: str = "") -> None:
        """Name the environment, and the path to an object inside it."""
        # Not by __setattr__, which is slower, and handles are made often.
        own = self.__dict__
        own["_envs"] = envs
        own["index"] = index
        own["_path"] = path
        own["observation_space"] = envs.single_observation_space
        own["action_space"] = envs.single_action_space

    @property
    def _ids(self) -> Sequence[int]:
        ids: Sequence[int] = self._envs._global([self.index])
        return ids

    @property
    def closed(self) -> bool:
        """Whether the environment is closed, alone or with all others."""
        closed: bool = self._envs._life.is_closed(self._ids[0])
        return closed

    @property
    def _description(self) -> Description:
        described: Description = self._envs._life.description(self._ids[0])
        return described

    @property
    def spec(self) -> EnvSpec | None:
        """The environment's ``EnvSpec``, or ``None``, as it was when it was made."""
        spec: EnvSpec | None = self._description.spec
        return spec

    @property
    def metadata(self) -> dict[str, Any]:
        """The environment's metadata, as they were when it was made."""
        return self._description.metadata

    @property
    def render_mode(self) -> str | None:
        """The environment's render mode, or ``None``."""
        return self._description.render_mode

    @property
    def unwrapped(self) -> Self:
        """The innermost environment, for its attributes and methods.

        ``reset``, ``step``, ``render`` and ``close`` still include the wrappers.
        """
        return self if self._path else type(self)(self._envs, self.index, "unwrapped.")

    def _assign(self, name: str, value: Any) -> None:
        raise NotImplementedError

    def _found(self, name: str, value: Any) -> Any:
        """Return an attribute's value; a method becomes a function that calls it."""
        if value is Placeholder.MISSING:
            raise AttributeError(f"environment {self._ids[0]} has no attribute {name!r}")
        return partial(self.call, name) if value is Placeholder.METHOD else value

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the handle, or else of the environment."""
        if is_own(self, name):
            super().__setattr__(name, value)
        else:
            self._assign(name, value)

    def __eq__(self, other: object) -> bool:
        """Whether both are handles of the same environment, and of the same object inside it."""
        return type(other) is type(self) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[int, int, str]:
        return id(self._envs._engine), self._ids[0], self._path

    def __repr__(self) -> str:
        inner = ".unwrapped" if self._path else ""
        alone = " (closed)" if self.closed and not self._envs.closed else ""
        return f"{self._envs!r}[{self.index}]{inner}{alone}"
