"""Completions: the replies of hosts when environments have done their part of an operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from gymnasium.spaces.utils import is_space_dtype_shape_equiv

from agym.core.protocol.infos.schema import Schema
from agym.core.protocol.infos.vector_infos import VectorInfos
from agym.core.protocol.messages.failures import EnvLoss, Failure
from agym.core.protocol.messages.resets import EpisodeStart
from agym.core.protocol.space_layout import Layout
from agym.errors import SpaceMismatchError


@dataclass
class Payload:
    """The part of a completion that is not in the rows of the table; most steps have none.

    Attributes:
        infos: Non-empty infos that are not in the table, by environment.
        vector_infos: Infos of whole workers in vector form, by their first environment.
        objects: Observation leaves without a fixed size, by environment.
        final_objects: The same leaves of final observations.
        values: Results of render, call and get_attr, by environment.
        starts: How episodes started, by environment, if that is logged.
        nexts: How the next episodes would start, for environments whose episode is over, if logged.
        problems: Failures and losses.
        schemas: New schemas of infos, by id.
    """

    infos: dict[int, dict[str, Any]] = field(default_factory=dict)
    vector_infos: dict[int, VectorInfos] = field(default_factory=dict)
    objects: dict[int, list[Any]] = field(default_factory=dict)
    final_objects: dict[int, list[Any]] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    starts: dict[int, EpisodeStart] = field(default_factory=dict)
    nexts: dict[int, EpisodeStart] = field(default_factory=dict)
    problems: list[Failure | EnvLoss] = field(default_factory=list)
    schemas: dict[int, Schema] = field(default_factory=dict)

    def take(self, ids: Iterable[int]) -> Payload:
        """Remove and return the parts of some environments; problems and schemas stay."""
        taken = Payload()
        for first, infos in self.vector_infos.items():
            self.infos.update((i, info) for i, info in enumerate(infos, first) if info)
        self.vector_infos.clear()
        for name in _BY_ENV:
            source, target = getattr(self, name), getattr(taken, name)
            if source:
                target.update((i, source.pop(i)) for i in ids if i in source)
        return taken

    def merge(self, other: Payload) -> None:
        """Add the payload of another part of the same ticket."""
        for name in _BY_ENV:
            if added := getattr(other, name):
                getattr(self, name).update(added)
        self.problems.extend(other.problems)
        self.schemas.update(other.schemas)


_BY_ENV = [each.name for each in fields(Payload) if each.name not in ("problems", "schemas")]


class Completion(NamedTuple):
    """The environments ``start:stop`` have completed their part of operation ``number``."""

    number: int
    start: int
    stop: int
    payload: Payload | None = None

    @property
    def num_without_problem(self) -> int:
        """Number of environments whose step completed without a problem; 0 if any has one.

        It is 0 for other operations that return values, such as the load of a replacement.
        """
        special = self.payload is not None and (self.payload.problems or self.payload.values)
        return 0 if special else self.stop - self.start


def join_neighbours(completions: Sequence[Completion]) -> Sequence[Completion]:
    """Join completions of neighbours for the same operation, unless they have problems.

    Example:
        >>> join_neighbours([Completion(7, 0, 1), Completion(7, 1, 2), Completion(7, 3, 4)])
        [Completion(number=7, start=0, stop=2, payload=None), Completion(number=7, start=3, ...)]
    """
    if len(completions) < 2:
        return completions
    # In the order of arrival, without a tuple for each joined completion: there may be thousands.
    joined: list[Completion] = []
    number, start, stop, payload = completions[0]
    for completion in completions[1:]:
        other, low, high, added = completion
        wrong = (payload is not None and payload.problems) or (added and added.problems)
        if other != number or low != stop or wrong:
            joined.append(Completion(number, start, stop, payload))
            number, start, stop, payload = completion
            continue
        if payload is not None and added is not None:
            payload.merge(added)
        stop, payload = high, payload or added
    joined.append(Completion(number, start, stop, payload))
    return joined


@dataclass(frozen=True)
class Description:
    """An environment's spaces and metadata, as its host has read them.

    Attributes:
        observation_space: The space of one environment.
        action_space: The space of one environment.
        metadata: Its metadata.
        spec: Its ``EnvSpec``, ``None`` if it has none.
        render_mode: Its render mode.
        cancellable: Its operations can be cancelled, and it can be replaced without its worker. But
            no other worker can take it over.
        exact: Its observation space must equal the space of the others.
    """

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    spec: Any
    render_mode: str | None
    cancellable: bool = False
    exact: bool = True

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """The layouts of observations and actions."""
        return Layout(self.observation_space), Layout(self.action_space)

    def reads_as(self, other: Description) -> bool:
        """Return whether another environment has the same spec, metadata and render mode."""
        try:
            return (self.spec, self.metadata, self.render_mode) == (
                other.spec, other.metadata, other.render_mode
            )  # fmt: skip
        except Exception:  # arrays, for example, have no truth value
            return False

    def mismatch(self, other: Description) -> SpaceMismatchError | None:
        """Describe why another environment cannot be in a batch with this environment.

        Unless they are ``exact``, observation spaces need only have equal shapes and dtypes.
        """
        for name in ("observation_space", "action_space"):
            space, other_space = getattr(self, name), getattr(other, name)
            loosely = not self.exact and name == "observation_space"
            if not (
                is_space_dtype_shape_equiv(space, other_space) if loosely else space == other_space
            ):
                return SpaceMismatchError(
                    f"its {name} is {other_space}, but the first environment has {space};"
                    " environments of one batch need equal spaces"
                )
        return None
