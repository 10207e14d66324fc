"""The base of the handles of single environments in the sync and the async API."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from gymnasium.envs.registration import EnvSpec

from agym.api.base import BaseEnvs, EnvProxy
from agym.core.engine.batches.results import ResetResult, StepResult
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.snapshots import Snapshot
from agym.core.protocol.attributes import Placeholder
from agym.core.protocol.messages.completions import Description


class Handle(EnvProxy):
    """One environment of many, by its index.

    An attribute that the handle does not have is looked up in the environment and the wrappers
    around it; with :attr:`unwrapped`, in the innermost environment.

    Attributes:
        index: The environment's index.
    """

    index: int
    _envs: BaseEnvs[Any, Any]
    _id: int  # the engine's id of the environment, which differs from ``index`` in a group
    _path: str

    def __init__(self, envs: BaseEnvs[Any, Any], index: int, path: str = "") -> None:
        """Refer to an environment; ``path`` leads to an object inside it."""
        # Handles are made often, and __setattr__ would be slower.
        attributes = self.__dict__
        attributes["_envs"] = envs
        attributes["index"] = index
        attributes["_id"] = index if envs._ids is None else envs._ids[index]
        attributes["_path"] = path
        attributes["observation_space"] = envs.single_observation_space
        attributes["action_space"] = envs.single_action_space

    @property
    def closed(self) -> bool:
        """Whether this environment, or all environments, are closed."""
        return self._envs._life.is_closed(self._id)

    @property
    def _description(self) -> Description:
        return self._envs._life.description(self._id)

    @property
    def spec(self) -> EnvSpec | None:
        """The ``EnvSpec`` that the environment had when it was made, or ``None``."""
        spec: EnvSpec | None = self._description.spec
        return spec

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the environment had when it was made."""
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

    def _begin_reset(self, seed: int | None, options: dict[str, Any] | None) -> Ticket:
        seeds = None if seed is None else [seed]
        return self._envs._engine.reset(seeds, options, [self._id], about=(self._id,))

    def _begin_restore(self, snapshot: Snapshot) -> Ticket:
        return self._envs._begin_restore([snapshot], [self.index], only_these=True)

    def _one_reset(self, result: ResetResult[Any]) -> tuple[Any, dict[str, Any]]:
        return self._envs._format.observation(result.observations), result.infos[0]

    def _one_step(self, result: StepResult[Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation = self._envs._format.observation(result.observations)
        reward, terminated, truncated = (column.tolist()[0] for column in result[1:4])
        return observation, reward, terminated, truncated, result.infos[0]

    def _one_snapshot(self, states: list[Any]) -> Snapshot:
        return self._envs._snapshots([self._id], states)[0]

    def _found(self, name: str, value: Any) -> Any:
        """Return an attribute's value; a method becomes a function that calls it."""
        if value is Placeholder.MISSING:
            raise AttributeError(f"environment {self._id} has no attribute {name!r}")
        return partial(self.call, name) if value is Placeholder.METHOD else value

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Whether both are handles of the same environment, and of the same object inside it."""
        return type(other) is type(self) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[int, int, str]:
        return id(self._envs._engine), self._id, self._path

    def __repr__(self) -> str:
        inner = ".unwrapped" if self._path else ""
        alone = " (closed)" if self.closed and not self._envs.closed else ""
        return f"{self._envs!r}[{self.index}]{inner}{alone}"
