"""Files of snapshots and of whole runs; few programs need them, so they are imported late.

::

    {"agym_snapshot": 1, "env": "ALE/Pong-v5", ..., "crc32": 7}   a line of JSON, for ``head -1``
    the pickle, compressed

The checksum at the end of the line is that of all other bytes, so that every damage is noticed.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import zlib
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from agym._system.files import os_errors_as_usage_errors, write_atomically
from agym._system.pickling import dumps_by_value
from agym.engine.faults.capsule import agym_version_here
from agym.engine.snapshots.snapshot import Snapshot
from agym.errors import UsageError, UsageTypeError
from agym.protocol.messages.completions import Description

# The version of the file format.
FORMAT = 1
# The kind and the format of a file, and all of its head around the checksum.
_START = re.compile(rb'\{"agym_(snapshot|run)": (\d{1,9})\b')
_HEAD = re.compile(rb'(\{.*), "crc32": (\d{1,10})\}')


def versions_of(description: Description) -> dict[str, str]:
    """Return the versions of what an environment's state may depend on."""
    spec = description.spec
    entry = None if spec is None else spec.entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return _versions(module.partition(":")[0])


@cache
def _versions(module: str) -> dict[str, str]:
    found = {"agym": agym_version_here(), "python": platform.python_version()}
    # Simulators too: Gymnasium's modules name them, as `gymnasium.envs.mujoco.ant_v5`.
    for name in ("gymnasium", "numpy", *filter(None, module.split("."))):
        with suppress(metadata.PackageNotFoundError):
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
        <Snapshot of CartPole-v1, episode 1, step 0>

    Raises:
        UsageError: The file cannot be read, is damaged, or is no snapshot.
    """
    snapshot = read("snapshot", path)
    if not isinstance(snapshot, Snapshot):
        raise UsageError(f"{path} is no snapshot of agym's")
    return snapshot


def write(what: str, path: str | os.PathLike[str], value: Any, head: dict[str, Any]) -> None:
    """Write a value to a file, which appears complete or not at all.

    Raises:
        UsageError: It cannot be written.
    """
    file = _path(path)
    try:
        body = zlib.compress(dumps_by_value(value), 1)
    except Exception as error:
        raise UsageError(f"the {what} cannot be written to {path}: {error}") from error
    start = json.dumps({f"agym_{what}": FORMAT, **head}).encode().removesuffix(b"}")
    crc = zlib.crc32(b"\n" + body, zlib.crc32(start))
    with os_errors_as_usage_errors(f"{path} cannot be written"):
        if file.exists() and not file.is_file():  # such as a device, which would be replaced
            raise UsageError(
                f"path={str(path)!r} is not a regular file: name another, or a new one"
            )
        write_atomically(file, b'%s, "crc32": %d}\n%s' % (start, crc, body))


def read(what: str, path: str | os.PathLike[str]) -> Any:
    """Read a value from :func:`write`."""
    try:
        content = _path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    line, _, body = content.partition(b"\n")
    kind = _START.match(line)
    if kind is None:
        raise UsageError(f"{path} is not an agym {what} file")
    if (other := kind[1].decode()) != what:
        remedy = "restore_envs" if other == "run" else "load_snapshot"
        raise UsageError(f"{path} is a {other}, not a {what}: use agym.{remedy}")
    if int(kind[2]) > FORMAT:
        raise UsageError(f"{path} was written by a newer agym: update this one")
    head = _HEAD.fullmatch(line)
    if head is None or int(head[2]) != zlib.crc32(b"\n" + body, zlib.crc32(head[1])):
        raise UsageError(f"{path} is damaged: not all that was written is there")
    versions = json.loads(line).get("versions", {})
    try:
        return pickle.loads(zlib.decompress(body))
    except Exception as error:
        wrote = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise UsageError(f"{path}, written by {wrote}, cannot be read here: {error}") from error


def _path(path: Any) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise UsageTypeError(f"path={path!r} is not a path") from None
