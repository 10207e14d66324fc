"""Snapshots as users hold them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agym._system.pickling import dumps
from agym.errors import SnapshotError
from agym.hosts.snapshots.states import EnvState
from agym.protocol.messages.completions import Description
from agym.protocol.value_copies import copy_value


@dataclass(frozen=True, repr=False, eq=False)
class Snapshot:
    """The state of one environment in the middle of an episode, as a value.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     snapshot = envs[0].snapshot()
        ...     first = envs[0].step(1)[0]
        ...     _ = envs[1].restore(snapshot)
        ...     second = envs[1].step(1)[0]
        >>> bool((first == second).all()), snapshot.env, snapshot.way
        (True, 'CartPole-v1', 'attributes')

    It contains the simulator and all wrappers with their random numbers, the seed and options of
    the last reset, an autoreset that is due, and the last observation and info. So the next step of
    an environment that restores it, here or in another process, is what it would have been. It
    never changes, may be restored any number of times, and can be pickled.

    Attributes:
        description: The spaces, spec and metadata of its environment.
        state: What its host took.
        versions: The versions of Python and of the packages that took it, by name.
    """

    description: Description
    state: EnvState
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> str:
        """The id of its environment, or ``"environment"`` if that has none."""
        spec = self.description.spec
        return "environment" if spec is None else str(spec.id)

    @property
    def way(self) -> str:
        """How it was taken: ``"attributes"``, ``"methods"``, ``"actions"``; ``print`` says more."""
        return self.state.way

    @property
    def observation(self) -> Any:
        """The last observation, in the environment's own form: a copy."""
        return copy_value(self.state.observation)

    @property
    def nbytes(self) -> int:
        """Its size in bytes when pickled, with the last observation."""
        return len(dumps(self.state))

    def __str__(self) -> str:
        state = self.state
        episode = state.episode
        return (
            f"{self.env}, episode {episode.number}, step {state.steps}: {state.detail};"
            f" {self.nbytes:,} bytes"
        )

    def __repr__(self) -> str:
        episode = self.state.episode.number
        return f"<Snapshot of {self.env}, episode {episode}, step {self.state.steps}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, for :func:`agym.load_snapshot`.

        Raises:
            UsageError: The file cannot be written, or the environment's state cannot be pickled.
        """
        from agym.engine.snapshots.file import write

        write("snapshot", path, self, {"env": self.env, "way": self.way, "versions": self.versions})

    def check(self, description: Description, env_id: int) -> None:
        """Refuse to be restored in another kind of environment.

        Raises:
            SnapshotError: Spaces or spec differ.
        """
        mine, other = self.description, description
        if mine is other or (id(mine), id(other)) in _fitting:
            return
        mismatch = mine.mismatch(other)
        name = "environment" if other.spec is None else other.spec.id
        why = "" if mismatch is None else str(mismatch)
        if not why and self.env != name:
            why = "they are not the same environment"
        if not why and self.env != "environment":
            one, two = _kwargs(mine), _kwargs(other)
            limits = mine.spec.max_episode_steps, other.spec.max_episode_steps
            if limits[0] != limits[1]:
                why = f"its episodes have at most {limits[0]} steps, those of the other {limits[1]}"
            if one.keys() != two.keys() or not all(map(_equal, one.values(), two.values())):
                why = f"it was made with {one}, the other with {two}"
        if why:
            raise SnapshotError(
                f"a snapshot of {self.env} does not fit environment {env_id}, {name}: {why}"
            )
        if len(_fitting) >= MOST_FITTING:
            _fitting.clear()
        _fitting[id(mine), id(other)] = mine, other


# Pairs of descriptions that fit, which takes long to compare. They are kept, so that their ids are
# not those of others.
_fitting: dict[tuple[int, int], tuple[Description, Description]] = {}
MOST_FITTING = 256


def _equal(one: Any, other: Any) -> bool:
    """Return whether two arguments are equal, or have equal pickles."""
    if one is other:
        return True
    with suppress(Exception):  # such as arrays of other shapes
        if np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other):
            return True
    with suppress(Exception):
        return dumps(one) == dumps(other)
    return False


def _kwargs(description: Description) -> dict[str, Any]:
    """Return the arguments that tell environments of one spec apart."""
    kwargs = {**description.spec.kwargs}
    kwargs.pop("render_mode", None)
    if "vectorization_mode" in kwargs:  # a VectorEnv, as Gymnasium's make_vec records it
        for name in ("vectorization_mode", "num_envs", "copy", "autoreset_mode"):
            kwargs.pop(name, None)
    return kwargs


def snapshots_of(
    states: Sequence[EnvState | str], ids: Sequence[int], describe: Any
) -> list[Snapshot]:
    """Return what hosts took as snapshots.

    Raises:
        SnapshotError: An environment's state cannot be copied.
    """
    # A late import, because it takes as long as the rest of the engine.
    from agym.engine.snapshots.file import versions_of

    found = []
    latest, versions = None, {}
    for i, state in zip(ids, states, strict=True):
        description = describe(i)
        if isinstance(state, str):
            name = "" if description.spec is None else f" ({description.spec.id})"
            raise SnapshotError(f"environment {i}{name} cannot be copied: {state}")
        if description is not latest:
            latest, versions = description, versions_of(description)
        found.append(Snapshot(description, state, versions))
    return found
