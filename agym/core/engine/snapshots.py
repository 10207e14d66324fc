"""Snapshots, the public form of states, and their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np

from agym.core._system.files import read_pickle, versions, write_pickle
from agym.core._system.pickling import dumps
from agym.core.hosts.states.env_state import EnvState
from agym.core.protocol.messages.completions import Description
from agym.core.protocol.value_copies import copy_value
from agym.errors import SnapshotError, UsageError


@dataclass(frozen=True, repr=False, eq=False)
class Snapshot:
    """The state of one environment in the middle of an episode, as a value.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, backend="serial") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     snapshot = envs[0].snapshot()
        ...     first = envs[0].step(1)[0]
        ...     _ = envs[1].restore(snapshot)
        ...     second = envs[1].step(1)[0]
        >>> bool((first == second).all()), snapshot.env, snapshot.way
        (True, 'CartPole-v1', 'attributes')

    It contains the simulator and all wrappers with their random numbers, the seed and options of
    the last reset, a pending autoreset, and the last observation and info. An environment that
    restores it, here or in another process, therefore takes the same next step. A snapshot never
    changes, can be restored any number of times, and can be pickled.

    Attributes:
        description: The spaces, spec and metadata of its environment.
        state: The state that the host copied.
        versions: The versions of Python and of the packages at that time, by name.
    """

    description: Description
    state: EnvState
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> str:
        """The id of its environment, or ``"environment"`` if it has none."""
        return _name(self.description)

    @property
    def way(self) -> str:
        """How it was copied: ``"attributes"``, ``"methods"``, ``"actions"``; ``print`` has more."""
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
        """Write it to a file, for :func:`agym.Snapshot.load`.

        Raises:
            UsageError: The file cannot be written, or the environment's state cannot be pickled.
        """
        head = {"env": self.env, "way": self.way, "versions": self.versions}
        write_pickle("snapshot", path, self, head)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a snapshot. **Only open files that you trust:** unpickling one runs code from it.

        Example:
            >>> import agym, tempfile
            >>> with agym.make("CartPole-v1", 1) as envs, tempfile.TemporaryDirectory() as folder:
            ...     observations, infos = envs.reset(seed=0)
            ...     envs[0].snapshot().save(f"{folder}/middle.agym")
            ...     agym.Snapshot.load(f"{folder}/middle.agym")
            <Snapshot of CartPole-v1, episode 1, step 0>

        Raises:
            UsageError: The file cannot be read, is damaged, or is not a snapshot.
        """
        snapshot, _ = read_pickle("snapshot", path)
        if not isinstance(snapshot, cls):
            raise UsageError(f"{path} is not a snapshot of agym")
        return snapshot

    def check(self, description: Description, env_id: int) -> None:
        """Refuse to be restored in another kind of environment.

        Raises:
            SnapshotError: Spaces or spec differ.
        """
        saved = self.description
        if saved is description or (id(saved), id(description)) in _fitting:
            return
        difference = _difference(saved, description)
        if difference:
            raise SnapshotError(
                f"a snapshot of {self.env} does not fit environment {env_id},"
                f" {_name(description)}: {difference}"
            )
        if len(_fitting) >= MAX_FITTING:
            _fitting.clear()
        _fitting[id(saved), id(description)] = saved, description


# Pairs of descriptions that fit, because comparing them is slow. The values keep the descriptions
# alive: otherwise their ids could be reused by other objects.
_fitting: dict[tuple[int, int], tuple[Description, Description]] = {}
MAX_FITTING = 256


def _name(description: Description) -> str:
    return "environment" if description.spec is None else str(description.spec.id)


def _difference(saved: Description, other: Description) -> str:
    """Return why states of one environment do not fit another, ``""`` if they do."""
    mismatch = saved.mismatch(other)
    if mismatch is not None:
        return str(mismatch)
    if _name(saved) != _name(other):
        return "they are not the same environment"
    if saved.spec is None or other.spec is None:
        return ""
    kwargs, others = _kwargs(saved), _kwargs(other)
    if kwargs.keys() != others.keys() or not all(map(_equal, kwargs.values(), others.values())):
        return f"it was made with {kwargs}, but the other environment with {others}"
    limit, other_limit = saved.spec.max_episode_steps, other.spec.max_episode_steps
    if limit != other_limit:
        return f"its episodes have at most {limit} steps, but the other's {other_limit}"
    return ""


def _kwargs(description: Description) -> dict[str, Any]:
    """Return the arguments that distinguish environments of the same spec."""
    kwargs = description.spec.kwargs
    ignored = {"render_mode"}
    if "vectorization_mode" in kwargs:  # a VectorEnv, as Gymnasium's make_vec records it
        ignored |= {"vectorization_mode", "num_envs", "copy", "autoreset_mode"}
    return {name: value for name, value in kwargs.items() if name not in ignored}


def _equal(first: Any, other: Any) -> bool:
    """Return whether two arguments are equal, or have equal pickles."""
    if first is other:
        return True
    with suppress(Exception):  # such as arrays of different shapes
        if np.array_equal(first, other) if isinstance(first, np.ndarray) else bool(first == other):
            return True
    with suppress(Exception):
        return dumps(first) == dumps(other)
    return False


def snapshots_of(
    states: Sequence[EnvState | str], ids: Sequence[int], describe: Callable[[int], Description]
) -> list[Snapshot]:
    """Convert the states from hosts into snapshots.

    Args:
        states: The states; a string is the reason why a state cannot be copied.
        ids: The environments.
        describe: Describes an environment.

    Raises:
        SnapshotError: An environment's state cannot be copied.
    """
    snapshots: list[Snapshot] = []
    for i, state in zip(ids, states, strict=True):
        description = describe(i)
        if isinstance(state, str):
            name = "" if description.spec is None else f" ({description.spec.id})"
            raise SnapshotError(f"environment {i}{name} cannot be copied: {state}")
        entry = None if description.spec is None else description.spec.entry_point
        module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
        snapshots.append(Snapshot(description, state, {**_versions_of(module)}))
    return snapshots


@cache
def _versions_of(module: str) -> dict[str, str]:
    """Return the versions of the packages that a module's environments may depend on."""
    # Gymnasium's modules name simulators, as `gymnasium.envs.mujoco.ant_v5` does.
    return versions(*filter(None, module.partition(":")[0].split(".")))
