"""The file format of capsules.

::

    {"agym_capsule": 1, "env_id": 3, "error": ...}   one line of JSON, which ``head -1`` shows
    factory, options, actions, ...                   one pickle each, concatenated and compressed

Parts are pickled separately, so that one that cannot be pickled does not affect the others.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import secrets
import sys
import sysconfig
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agym._system.files import write_atomically
from agym._system.pickling import dumps_by_value
from agym.engine.faults.capsule import VERSION, Capsule, agym_version_here, shown, words
from agym.errors import UsageError

# The pickled parts; everything else is in the line of JSON.
PARTS = ("factory", "options", "rng", "actions", "action", "arguments")
_PLAIN = (
    "env_id", "factory_text", "kind", "operation", "error", "seed", "episode", "step", "autoreset",
    "complete", "missing", "agym_version", "python_version", "gymnasium_version", "traceback",
)  # fmt: skip
_MARK = b'{"agym_capsule": '


def write_capsule(directory: str | Path, capsule: Capsule) -> Path:
    """Write a capsule into a folder, which is made if needed. Only its owner may read the file.

    Parts that cannot be pickled are left out and listed in the file.

    Returns:
        The file, which appears atomically.

    Raises:
        OSError: It cannot be written.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    when = time.strftime("%Y%m%dT%H%M%S")
    operation = re.sub(r"\W+", "-", capsule.operation)
    path = folder / f"env{capsule.env_id}-{operation}-{when}-{secrets.token_hex(4)}.agym"
    write_atomically(path, _encode(capsule))
    return path


def read_capsule(path: str | Path) -> Capsule:
    """Read a capsule. **Only open capsules that you trust:** unpickling one runs code from it.

    The folders that its writer imported modules from are appended to ``sys.path``.

    Raises:
        UsageError: The file cannot be read, is incomplete, is no capsule, or is one of a newer
            agym.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    line, newline, body = content.partition(b"\n")
    damaged = UsageError(f"{path} is damaged: not all that was written is there")
    if line.startswith(_MARK) and not newline:
        raise damaged
    try:
        if not line.startswith(_MARK):
            raise ValueError("the mark is not there")
        head = json.loads(line)
        version = head["agym_capsule"]
        if version > VERSION:
            raise UsageError(
                f"{path} was written by a newer agym ({head.get('agym_version')}),"
                f" whose capsules this one ({agym_version_here()}) cannot read"
            )
        if (len(body), zlib.crc32(body)) != (head["bytes"], head["crc32"]):
            raise damaged
        plain = {name: head[name] for name in _PLAIN}
        missing = list(plain.pop("missing"))
        parts, data = {}, zlib.decompress(body)
        for name, length in head["parts"].items():
            parts[name], data = data[:length], data[length:]
        folders = [folder for folder in head["sys_path"] if folder not in sys.path]
    except UsageError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise UsageError(f"{path} is no capsule of agym's") from error
    sys.path.extend(folders)
    values: dict[str, Any] = {"factory": None}
    for name, part in parts.items():
        try:
            values[name] = _load(part, plain["python_version"])
        except Exception as error:
            missing.append(f"{name} (cannot be read here: {words(error)})")
    complete = plain.pop("complete") and not missing
    return Capsule(version=version, complete=complete, missing=tuple(missing), **plain, **values)


def _encode(capsule: Capsule) -> bytes:
    parts: dict[str, bytes] = {}
    missing = [*capsule.missing]
    for name in PARTS:
        try:
            parts[name] = dumps_by_value(getattr(capsule, name))
        except Exception as error:
            missing.append(f"{name} (cannot be pickled: {words(error)})")
    capsule = replace(capsule, missing=tuple(missing), complete=capsule.complete and not missing)
    body = zlib.compress(b"".join(parts.values()))
    head = {
        "agym_capsule": capsule.version,
        **{name: getattr(capsule, name) for name in _PLAIN if name != "traceback"},
        "options": shown(capsule.options),
        "actions": len(capsule.actions),
        "action": shown(capsule.action),
        "parts": {name: len(part) for name, part in parts.items()},
        "bytes": len(body),
        "crc32": zlib.crc32(body),
        "sys_path": _import_folders(),
        "traceback": capsule.traceback,
    }
    line = json.dumps(head, ensure_ascii=False, default=_plainly)
    return line.encode(errors="backslashreplace") + b"\n" + body


def _plainly(value: Any) -> Any:
    """Convert what JSON cannot, such as seeds that are NumPy integers."""
    return value.item() if isinstance(value, np.generic) else shown(value)


def _load(part: bytes, python_version: str) -> Any:
    here, wrote = (v.split(".")[:2] for v in (platform.python_version(), python_version))
    if wrote != here and b"cloudpickle" in part:
        raise ValueError(f"there is code in it that needs Python {'.'.join(wrote)}")
    return pickle.loads(part)


def _import_folders() -> list[str]:
    """Return the folders of ``sys.path`` that hold the user's own modules."""
    paths = sysconfig.get_paths()
    installed = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    folders = [os.path.abspath(folder) for folder in sys.path]  # noqa: PTH100 - "" is the cwd
    return [each for each in folders if Path(each).is_dir() and not each.startswith(installed)]
