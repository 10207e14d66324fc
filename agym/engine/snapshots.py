"""Snapshots as users hold them, and their files.

::

    {"agym_snapshot": 1, "env": "ALE/Pong-v5", "way": ...}   one line of JSON, as ``head -1`` shows
    the pickle, compressed
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from agym._system.pickling import dumps_by_value
from agym.engine.faults.capsule import agym_version_here
from agym.errors import SnapshotError, UsageError
from agym.hosts.snapshots.ways import EnvState
from agym.protocol.messages.completions import Description

# The version of the file format.
FORMAT = 1
_MARK = b'{"agym_'


@dataclass(frozen=True, repr=False)
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

    It contains the simulator and all wrappers with their random numbers, whatever autoreset is due,
    and the last observation. So the next step of whoever restores it, here or in another process,
    is what it would have been. It never changes, may be restored any number of times, and can be
    pickled.

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
        """How it was taken: ``"attributes"``, ``"replay"``, ...; ``print`` says more."""
        return self.state.way

    @property
    def observation(self) -> Any:
        """The last observation, in the environment's own form."""
        return self.state.observation

    @property
    def nbytes(self) -> int:
        """Its size in bytes, with the last observation."""
        return len(pickle.dumps(self.state))

    def __str__(self) -> str:
        state = self.state
        episode = state.episode
        return (
            f"{self.env}, episode {episode.number}, step {state.age}: {state.detail};"
            f" {self.nbytes:,} bytes"
        )

    def __repr__(self) -> str:
        return f"<Snapshot of {self}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, for :func:`agym.load_snapshot`.

        Raises:
            OSError: The file cannot be written.
            UsageError: The environment's state cannot be pickled.
        """
        write("snapshot", path, self, {"env": self.env, "way": self.way, **self.versions})

    def check(self, description: Description, env_id: int) -> None:
        """Refuse to be restored in another kind of environment.

        Raises:
            SnapshotError: Spaces or spec differ.
        """
        mine, other = self.description, description
        if mine is other:
            return
        mismatch = mine.mismatch(other)
        name = "environment" if other.spec is None else other.spec.id
        why = "" if mismatch is None else str(mismatch)
        if not why and self.env != name:
            why = "they are not the same environment"
        if not why and self.env != "environment" and _kwargs(mine) != _kwargs(other):
            why = f"it was made with {_kwargs(mine)}, the other with {_kwargs(other)}"
        if why:
            raise SnapshotError(
                f"a snapshot of {self.env} does not fit environment {env_id}, {name}: {why}"
            )


def _kwargs(description: Description) -> str:
    kwargs = {**description.spec.kwargs}
    kwargs.pop("render_mode", None)
    return repr(kwargs)


def snapshots_of(
    states: Sequence[EnvState | str], ids: Sequence[int], describe: Any
) -> list[Snapshot]:
    """Return what hosts took as snapshots.

    Raises:
        SnapshotError: An environment's state cannot be copied.
    """
    found = []
    for i, state in zip(ids, states, strict=True):
        description = describe(i)
        if isinstance(state, str):
            name = "" if description.spec is None else f" ({description.spec.id})"
            raise SnapshotError(f"environment {i}{name} cannot be copied: {state}")
        found.append(Snapshot(description, state, versions_of(description)))
    return found


def versions_of(description: Description) -> dict[str, str]:
    """Return the versions of what an environment's state may depend on."""
    spec = description.spec
    entry = None if spec is None else spec.entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return _versions(module.partition(":")[0].partition(".")[0])


@cache
def _versions(package: str) -> dict[str, str]:
    found = {"agym": agym_version_here(), "python": platform.python_version()}
    owners = metadata.packages_distributions().get(package, [])
    for name in ("gymnasium", "numpy", *owners):
        found[name] = metadata.version(name)
    return found


def load_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read a snapshot. **Only open files that you trust:** unpickling one runs code from it.

    Example:
        >>> import agym, tempfile
        >>> with agym.make("CartPole-v1", 1) as envs, tempfile.TemporaryDirectory() as folder:
        ...     observations, infos = envs.reset(seed=0)
        ...     envs[0].snapshot().save(f"{folder}/middle.agym")
        ...     agym.load_snapshot(f"{folder}/middle.agym")
        <Snapshot of CartPole-v1, episode 1, step 0: the attributes of all layers; ... bytes>

    Raises:
        UsageError: The file cannot be read, is damaged, or is no snapshot.
    """
    snapshot = read("snapshot", path)
    assert isinstance(snapshot, Snapshot)
    return snapshot


def write(what: str, path: str | os.PathLike[str], value: Any, head: dict[str, Any]) -> None:
    """Write a value to a file, which appears complete or not at all."""
    try:
        body = zlib.compress(dumps_by_value(value), 1)
    except Exception as error:
        raise UsageError(f"the {what} cannot be written to {path}: {error}") from error
    line = {f"agym_{what}": FORMAT, **head, "bytes": len(body), "crc32": zlib.crc32(body)}
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(".tmp", ".agym-", target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(line).encode() + b"\n" + body)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(what: str, path: str | os.PathLike[str]) -> Any:
    """Read a value from :func:`write`."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    line, _, body = content.partition(b"\n")
    try:
        if not line.startswith(_MARK + what.encode() + b'": '):
            raise ValueError("the mark is not there")
        head = json.loads(line)
        version, size, crc = head[f"agym_{what}"], head["bytes"], head["crc32"]
    except (ValueError, KeyError) as error:
        raise UsageError(f"{path} is no {what} of agym's") from error
    if version > FORMAT:
        raise UsageError(f"{path} was written by agym {head.get('agym')}: update this one")
    if (len(body), zlib.crc32(body)) != (size, crc):
        raise UsageError(f"{path} is damaged: not all that was written is there")
    try:
        return pickle.loads(zlib.decompress(body))
    except Exception as error:
        wrote = ", ".join(f"{name} {head[name]}" for name in head if name in _versions(""))
        raise UsageError(f"{path}, written by {wrote}, cannot be read here: {error}") from error
