"""What all faces share: what the environments are like, and the form of results."""

from __future__ import annotations

from typing import Any, Literal

from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from agym.core.attributes import Marker
from agym.core.engine import Engine
from agym.core.results import ResetResult, StepResult
from agym.errors import UsageError
from agym.executors.base import Executor

Output = Literal["list", "array"]


class ListSpace(spaces.Tuple[Any]):
    """A space per environment; samples are lists, as agymc's were."""

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """One sample per environment."""
        return list(super().sample(*args, **kwargs))


class Face:
    """A number of environments, seen from outside.

    Attributes:
        num_envs: Number of environments.
        output: ``"list"`` or ``"array"``.
        single_observation_space: Space of one observation.
        single_action_space: Space of one action.
        observation_space: Space of a batch: Gymnasium's batched space, or with lists a
            :class:`ListSpace`.
        action_space: Likewise; its ``sample()`` is what ``step`` takes.
        metadata: The environments' metadata, with ``autoreset_mode``.
        spec: Their ``EnvSpec``, ``None`` if they have none.
        render_mode: Their render mode.
    """

    observation_space: Space[Any]
    action_space: Space[Any]

    def __init__(self, engine: Engine, executor: Executor, output: Output) -> None:
        """Join engine and executor; :func:`agym.make` does this."""
        self.num_envs = engine.num_envs
        self.output = output
        self._engine = engine
        self._executor = executor

    def _describe(self) -> None:
        """Tell what the environments are like, once they are made."""
        description = self._engine.description
        self._layout = self._engine.table.observation
        self.single_observation_space = description.observation_space
        self.single_action_space = description.action_space
        self.observation_space = self._batch(description.observation_space)
        self.action_space = self._batch(description.action_space)
        self.metadata = {
            **description.metadata,
            "autoreset_mode": self._executor.placement.autoreset,
        }
        self.spec = description.spec
        self.render_mode = description.render_mode

    def _batch(self, space: Space[Any]) -> Space[Any]:
        if self.output == "list":
            return ListSpace([space] * self.num_envs)
        batched: Space[Any] = batch_space(space, self.num_envs)
        return batched

    def _step_result(self, result: StepResult) -> StepResult:
        if self.output == "array":
            return result
        observations, rewards, terminated, truncated, infos = result
        return StepResult(
            self._layout.rows(observations, len(infos)),
            rewards.tolist(),
            terminated.tolist(),
            truncated.tolist(),
            infos,
        )

    def _reset_result(self, result: ResetResult) -> ResetResult:
        if self.output == "array":
            return result
        observations, infos = result
        return ResetResult(self._layout.rows(observations, len(infos)), infos)

    def _attributes(self, name: str, values: list[Any]) -> list[Any]:
        missing = [i for i, value in enumerate(values) if value is Marker.MISSING]
        if missing:
            raise AttributeError(f"environments {missing[:8]} have no attribute {name!r}")
        return values

    def _each(self, name: str, values: Any) -> list[Any]:
        """One attribute value per environment: a list or tuple is that already, as in Gymnasium."""
        if not isinstance(values, list | tuple):
            return [values] * self.num_envs
        if len(values) != self.num_envs:
            raise UsageError(
                f"set_attr({name!r}) got {len(values)} values for {self.num_envs} environments:"
                " give one for each, or a single value that is not a list or tuple"
            )
        return list(values)

    def __len__(self) -> int:
        """Number of environments."""
        return self.num_envs

    def _index(self, index: int) -> int:
        """Check the index of one environment; negative ones count from the end."""
        if not -self.num_envs <= index < self.num_envs:
            raise IndexError(f"environment {index} of {self.num_envs}")
        return index % self.num_envs

    def __repr__(self) -> str:
        """Name, environments and backend."""
        spec = getattr(self, "spec", None)
        name = "environments" if spec is None else spec.id
        place = type(self._executor).__name__.removesuffix("Executor").lower()
        return f"{type(self).__name__}({name}, num_envs={self.num_envs}, backend={place!r})"
