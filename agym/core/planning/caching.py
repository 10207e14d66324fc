"""Caches what is known about environments as small JSON files in the user's cache folder.

A record is about the environments of one factory: their profile, and the measured batch times.

An unreadable record counts as missing. If a record cannot be written, the environment is measured
again the next time.
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
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from agym.core._system.cpus import core_numbers, quota
from agym.core._system.files import write_atomically
from agym.core.hosts.factories import Factory
from agym.core.planning.model import Profile

# The version of the records; other versions are not read.
VERSION = 3

# Seconds for which a measurement of a real run counts instead of a prediction.
MEASURED_SECONDS = 24 * 3600.0

# The upper limit of valid times and sizes in records.
MAX_SECONDS = 1e12

# Factories whose pickle is larger than this are not looked up.
MAX_PICKLED = 64 * 1024


def cache_folder() -> Path:
    """Return agym's cache folder: ``$XDG_CACHE_HOME/agym``, or ``~/.cache/agym``.

    Raises:
        RuntimeError: The user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "agym"


def is_number(value: Any) -> bool:
    """Return whether a value from a record is a valid time, size or flag."""
    return isinstance(value, int | float) and 0 <= value < MAX_SECONDS


def recall_profile(factory: Factory) -> Profile | None:
    """Return the profile of a factory's environments, if their code is unchanged."""
    record = _read(_path(factory))
    try:
        saved = record["profile"]
        if record["changed"] != _changed(record["file"]):
            return None
        numbers = [value for name, value in saved.items() if name != "name"]
        return Profile(**saved) if all(map(is_number, numbers)) else None
    except (TypeError, KeyError, AttributeError):
        return None


def remember_profile(factory: Factory, profile: Profile, file: str | None) -> None:
    """Store the profile of a factory's environments, whose code is in a file.

    Measured batch times of earlier code are deleted.
    """
    record = {"profile": asdict(profile), "file": file, "changed": _changed(file)}
    _write(_path(factory), record)


def recall_measured(factory: Factory, num_envs: int) -> dict[str, float]:
    """Return the seconds per batch of real runs in the last day, by candidate's name."""
    return {name: took for name, (took, _) in _measured(_read(_path(factory)), num_envs)}


def remember_measured(factory: Factory, num_envs: int, measured: dict[str, float]) -> None:
    """Add the seconds per batch of candidates."""
    path = _path(factory)
    record = _read(path)
    new = {name: (seconds, time.time()) for name, seconds in measured.items()}
    runs = record["runs"] if isinstance(record.get("runs"), dict) else {}
    runs[_run(num_envs)] = dict(_measured(record, num_envs)) | new
    _write(path, {**record, "runs": runs})


def recall_verdict(name: bytes) -> dict[str, Any] | None:
    """Return what :func:`remember_verdict` stored under a name."""
    record = _read(_path(name))
    return record.get("verdict")


def remember_verdict(name: bytes, verdict: dict[str, Any]) -> None:
    """Store the result of comparing a twin with its originals."""
    _write(_path(name), {"verdict": verdict})


def _measured(record: dict[str, Any], num_envs: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the measurements of each candidate in the last day, with their times."""
    with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
        for name, (seconds, taken) in record["runs"][_run(num_envs)].items():
            fits = is_number(seconds) and is_number(taken)
            if fits and 0 <= time.time() - taken < MEASURED_SECONDS:
                yield name, (float(seconds), taken)


def _run(num_envs: int) -> str:
    return f"{num_envs} on {core_numbers()}, {quota()}"


def _read(path: Path | None) -> dict[str, Any]:
    """Read a record; it is empty if it cannot be read."""
    try:
        record = {} if path is None else json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write(path: Path | None, record: dict[str, Any]) -> None:
    """Write a record, completely or not at all."""
    if path is None:
        return
    # Other processes may read or write the same record: the replacement is atomic, so they see the
    # old or the new file. If two write at once, one measurement is lost, and made again later.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(record).encode())


def source_file(env: Any) -> str | None:
    """Return the file with the code of an environment, or of an environment class."""
    env = env if isinstance(env, type) else getattr(env, "unwrapped", env)
    with contextlib.suppress(TypeError, OSError):
        return inspect.getsourcefile(env if isinstance(env, type) else type(env))
    return None


def last_change(cls: type[Any]) -> float | None:
    """Return when the file of a class was changed."""
    return _changed(source_file(cls))


def _path(factory: Any) -> Path | None:
    """Return the file of a factory's record, the same in each process; ``None`` if there is none.

    A record is valid only for this machine and these libraries.
    """
    digest = _Digest()
    libraries = (
        VERSION, platform.node(), platform.machine(), platform.processor(), os.cpu_count(),
        importlib.metadata.version("agym-envs"), platform.python_version(),
        getattr(sys, "_is_gil_enabled", lambda: True)(), gymnasium.__version__, np.__version__,
    )  # fmt: skip
    digest.write(repr(libraries).encode())
    try:
        cloudpickle.Pickler(digest).dump(factory)
        return cache_folder() / f"env-{digest.hash.hexdigest()[:32]}.json"
    except Exception:  # it cannot be pickled, or is large; or the user has no home folder
        return None


class _Digest:
    """A file that hashes what is written, up to a limit."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._remaining = MAX_PICKLED

    def write(self, piece: Any) -> None:
        self._remaining -= len(piece)
        if self._remaining < 0:
            raise OverflowError
        self.hash.update(piece)


def _changed(file: str | None) -> float | None:
    with contextlib.suppress(OSError):
        return None if file is None else Path(file).stat().st_mtime
    return None
