"""Caches measurements of this machine as small JSON files in the user's cache folder.

An unreadable record counts as missing. What cannot be written is measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from agym._system.cpus import core_numbers, quota
from agym.hosts.factories import Factory
from agym.planning.model import Profile

# Of the records; other versions are not read.
VERSION = 2

# Seconds for which a measurement of a real run counts instead of a prediction.
MEASURED_SECONDS = 24 * 3600.0

# Times and sizes in records are smaller.
LARGEST = 1e12

# Factories that hold more bytes than this are not looked up.
MAX_PICKLED = 64 * 1024


def cache_folder() -> Path:
    """Return agym's cache folder: ``$XDG_CACHE_HOME/agym``, or ``~/.cache/agym``.

    Raises:
        RuntimeError: The user has no home.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "agym"


def key_of(*parts: object) -> str:
    """Return a short name for the parts, on this machine and with these libraries."""
    machine = (
        VERSION, platform.node(), platform.machine(), platform.processor(), os.cpu_count(),
        importlib.metadata.version("agym-envs"), platform.python_version(),
        getattr(sys, "_is_gil_enabled", lambda: True)(), gymnasium.__version__, np.__version__,
    )  # fmt: skip
    text = repr((machine, parts)).encode()
    return hashlib.sha256(text).hexdigest()[:32]


def recall(kind: str, key: str) -> dict[str, Any] | None:
    """Read a record, ``None`` if none can be read."""
    try:
        found = json.loads(_path(kind, key).read_text())
    except (OSError, ValueError, RuntimeError):
        return None
    return found if isinstance(found, dict) else None


def remember(kind: str, key: str, record: dict[str, Any]) -> None:
    """Write a record, completely or not at all."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            try:
                json.dump(record, file)
                file.close()
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise


def is_number(value: Any) -> bool:
    """Return whether a value from a record is a valid time, size or flag."""
    return isinstance(value, int | float) and 0 <= value < LARGEST


def _path(kind: str, key: str) -> Path:
    return cache_folder() / f"{kind}-{key}.json"


def recall_profile(factory: Factory) -> Profile | None:
    """Return the profile of a factory's environments, if their code is unchanged."""
    key = _key(factory)
    found = None if key is None else recall("profile", key)
    try:
        if found is None or found.pop("changed") != _changed(found.pop("file")):
            return None
        numbers = [value for name, value in found.items() if name != "name"]
        return Profile(**found) if all(map(is_number, numbers)) else None
    except (TypeError, KeyError):
        return None


def remember_profile(factory: Factory, profile: Profile, file: str | None) -> None:
    """Store the profile of a factory's environments, whose code is in a file.

    What real runs took with earlier code is forgotten.
    """
    key = _key(factory)
    if key is not None:
        with contextlib.suppress(OSError, RuntimeError):
            for path in cache_folder().glob(f"measured-{key}-*.json"):
                path.unlink()
        remember("profile", key, {**asdict(profile), "file": file, "changed": _changed(file)})


def recall_measured(factory: Factory, num_envs: int) -> dict[str, float]:
    """Return the seconds per batch that real runs took in the last day, by candidate's name."""
    key = _key(factory)
    return {} if key is None else {name: took for name, (took, _) in _measured(key, num_envs)}


def remember_measured(factory: Factory, num_envs: int, measured: dict[str, float]) -> None:
    """Add the seconds per batch that candidates took."""
    key = _key(factory)
    if key is not None:
        new = {name: (seconds, time.time()) for name, seconds in measured.items()}
        remember("measured", _run_key(key, num_envs), dict(_measured(key, num_envs)) | new)


def _run_key(key: str, num_envs: int) -> str:
    return f"{key}-{key_of(num_envs, core_numbers(), quota())}"


def _measured(key: str, num_envs: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield what was measured of each candidate in the last day, and when."""
    found = recall("measured", _run_key(key, num_envs)) or {}
    with contextlib.suppress(TypeError, ValueError):
        for name, (seconds, taken) in found.items():
            fits = is_number(seconds) and is_number(taken)
            if fits and 0 <= time.time() - taken < MEASURED_SECONDS:
                yield name, (float(seconds), taken)


def source_file(env: Any) -> str | None:
    """Return the file with the code of an environment, or of a class of such."""
    env = getattr(env, "unwrapped", env)
    with contextlib.suppress(TypeError, OSError):
        return inspect.getsourcefile(env if isinstance(env, type) else type(env))
    return None


def _key(factory: Factory) -> str | None:
    """Return a key for a factory, the same in each process; ``None`` if there is none."""
    digest = _Digest()
    try:
        cloudpickle.Pickler(digest).dump(factory)
    except Exception:  # what it holds cannot be pickled, or is large
        return None
    return key_of(digest.hash.hexdigest())


class _Digest:
    """A file that hashes what is written, up to a limit."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._left = MAX_PICKLED

    def write(self, piece: Any) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise OverflowError
        self.hash.update(piece)


def _changed(file: str | None) -> float | None:
    with contextlib.suppress(OSError):
        return None if file is None else Path(file).stat().st_mtime
    return None
