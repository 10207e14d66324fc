"""Spaces of many agents: values of absent agents, rows of batches, groups with equal spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from agym import UsageError

AgentGroups = Mapping[str, Sequence[Any]]

FIXED = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def in_order(agents: Iterable[Any]) -> list[Any]:
    """Return agents in an order that does not depend on the environment's."""
    return sorted(agents, key=lambda agent: (str(agent), repr(agent)))


def zeros(space: Space[Any]) -> Any:
    """Return the value of an absent agent: zeros, and ``None`` for values without a fixed size."""
    if isinstance(space, spaces.Dict):
        return {key: zeros(child) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(zeros(child) for child in space.spaces)
    if not isinstance(space, FIXED):
        return None
    value = np.zeros(space.shape or (), space.dtype)
    return value if isinstance(space, spaces.Box) or value.shape else value[()]


def walk(space: Space[Any], function: Callable[..., Any], *values: Any) -> Any:
    """Call a function with the leaves of values that are nested like a space; nest the results."""
    if isinstance(space, spaces.Dict):
        return {
            key: walk(child, function, *(value[key] for value in values))
            for key, child in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, *values, strict=True)
        return tuple(walk(child, function, *part) for child, *part in parts)
    return function(*values)


def as_array(leaf: Any) -> Any:
    """Return a leaf of a batch as an array, of objects if its values have no fixed size."""
    if isinstance(leaf, np.ndarray):
        return leaf
    array = np.empty(len(leaf), object)
    for k, value in enumerate(leaf):  # NumPy would take apart values that are sequences
        array[k] = value
    return array


def stack(space: Space[Any], batches: Sequence[Any]) -> Any:
    """Stack a batch ``[n, ...]`` per agent to ``[n, agents, ...]``, nested as they are."""
    return walk(space, lambda *leaves: np.stack([*map(as_array, leaves)], axis=1), *batches)


def take(space: Space[Any], batch: Any, rows: Any) -> Any:
    """Return some rows of a batch, or with a number one row."""
    return walk(space, lambda leaf: as_array(leaf)[rows], batch)


def replace_rows(space: Space[Any], batch: Any, rows: Mapping[int, Any]) -> Any:
    """Return a copy of a batch with other values in some rows."""

    def replaced(leaf: Any, *values: Any) -> Any:
        leaf = as_array(leaf).copy()
        for row, value in zip(rows, values, strict=True):
            leaf[row] = value
        return leaf

    return walk(space, replaced, batch, *rows.values())


class Agents:
    """The agents of an environment.

    Attributes:
        names: ``possible_agents``.
        observation_spaces: The space of each.
        action_spaces: The space of each.
        groups: Agents with equal spaces, by the name of the group.
        alike: Whether all have the same observation space.
    """

    def __init__(
        self,
        names: Sequence[Any],
        observation_spaces: Mapping[Any, Space[Any]],
        action_spaces: Mapping[Any, Space[Any]],
        groups: AgentGroups | None = None,
    ) -> None:
        self.names = [*names]
        self.observation_spaces = {agent: observation_spaces[agent] for agent in names}
        self.action_spaces = {agent: action_spaces[agent] for agent in names}
        self.groups = self._by_name() if groups is None else self._checked(groups)
        spaces = [*self.observation_spaces.values()]
        self.alike = all(space == spaces[0] for space in spaces)

    def equal(self, agent: Any, other: Any) -> bool:
        kinds = self.observation_spaces, self.action_spaces
        return all(space[agent] == space[other] for space in kinds)

    def _by_name(self) -> dict[str, list[Any]]:
        """Group by name: ``piston_0`` and ``piston_1`` are in ``piston`` if spaces are equal."""
        groups: dict[str, list[Any]] = {}
        for agent in self.names:
            name = first = str(agent).rstrip("0123456789").rstrip("_") or "agents"
            others = count(2)
            while name in groups and not self.equal(agent, groups[name][0]):
                name = f"{first} ({next(others)})"
            groups.setdefault(name, []).append(agent)
        return groups

    def _checked(self, groups: AgentGroups) -> dict[str, list[Any]]:
        for name, agents in groups.items():
            unknown = [agent for agent in agents if agent not in self.names]
            if unknown or not agents:
                raise UsageError(f"agent_groups[{name!r}]={agents!r}: use agents of {self.names}")
            for agent in agents:
                if not self.equal(agent, agents[0]):
                    raise UsageError(
                        f"agent_groups[{name!r}] can't be stacked: the spaces of {agent!r} and"
                        f" {agents[0]!r} differ"
                    )
        return {name: [*agents] for name, agents in groups.items()}
