"""Files that appear completely or not at all, and remedies for errors of the operating system.

Snapshots, saved runs and capsules are files of one format::

    {"agym_snapshot": 1, "env": "ALE/Pong-v5", ..., "crc32": 7}   a line of JSON, for ``head -1``
    the pickle, compressed

The checksum at the end of the line covers all other bytes, so that any damage is noticed before
anything is unpickled.
"""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import pickle
import platform
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from agym.core._system.extras import DISTRIBUTION
from agym.core._system.pickling import dumps_by_value
from agym.errors import AgymError, UsageError, UsageTypeError

# The names of the errors that each remedy is for.
REMEDIES = {
    "raise the limit of open files (`ulimit -n 4096`), or use fewer workers": "EMFILE ENFILE",
    "free some space on that file system": "ENOSPC EDQUOT",
    "raise the limit of file sizes (`ulimit -f unlimited`)": "EFBIG",
    "use fewer environments or workers, or end other programs": "ENOMEM",
    "raise the limit of processes (`ulimit -u 4096`), or use fewer workers": "EAGAIN EWOULDBLOCK",
    "create its folder first": "ENOENT ENOTDIR",
    "choose a folder that this program can write to": "EACCES EPERM EROFS",
}


@contextmanager
def os_errors_as_usage_errors(failure: str) -> Iterator[None]:
    """Raise an operating system's error as a UsageError with its remedy.

    Args:
        failure: The failed action, such as ``"the environments cannot be made"``.

    Raises:
        UsageError: The system returned an error.
    """
    try:
        yield
    except AgymError:  # some are also an OSError
        raise
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0)
        remedies = (f"; {text}" for text, names in REMEDIES.items() if name in names.split())
        raise UsageError(f"{failure}: {error.strerror or error}{next(remedies, '')}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read; it appears completely or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(".tmp", ".agym-", path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):  # it names the temporary file
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise


# The version of the file format.
FORMAT = 1

# The kinds of files, and the reader of each.
READERS = {"snapshot": "agym.Snapshot.load", "run": "agym.load", "capsule": "`agym rerun`"}

# The kind and the format of a file, and its head without the checksum.
_START = re.compile(rb'\{"agym_(%s)": (\d{1,9})\b' % "|".join(READERS).encode())
_HEAD = re.compile(rb'(\{.*), "crc32": (\d{1,10})\}')


def write_pickle(kind: str, path: str | os.PathLike[str], value: Any, head: dict[str, Any]) -> None:
    """Write a value to a file, which appears completely or not at all.

    Args:
        kind: A key of ``READERS``.
        path: The file.
        value: The value to pickle.
        head: The data of the line of JSON. ``"versions"`` are those of the writer's packages.

    Raises:
        UsageError: The file cannot be written.
    """
    file = _path(path)
    try:
        body = zlib.compress(dumps_by_value(value), 1)
        # `int` is for NumPy's integers, such as seeds.
        line = json.dumps({f"agym_{kind}": FORMAT, **head}, ensure_ascii=False, default=int)
    except Exception as error:
        raise UsageError(f"the {kind} cannot be written to {path}: {error}") from error
    # Lone surrogates, as in some file names, are escaped.
    start = line.encode(errors="backslashreplace").removesuffix(b"}")
    crc = zlib.crc32(b"\n" + body, zlib.crc32(start))
    with os_errors_as_usage_errors(f"{path} cannot be written"):
        if file.exists() and not file.is_file():  # such as a device, which would be replaced
            raise UsageError(f"path={str(path)!r} is not a regular file: choose another path")
        write_atomically(file, b'%s, "crc32": %d}\n%s' % (start, crc, body))


def read_pickle(kind: str, path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """Read a file that :func:`write_pickle` has written.

    Returns:
        The value and the head.

    Raises:
        UsageError: The file cannot be read, is damaged, or is of another kind.
    """
    try:
        content = _path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    line, _, body = content.partition(b"\n")
    start = _START.match(line)
    if start is None:
        raise UsageError(f"{path} is not an agym {kind} file")
    if (other := start[1].decode()) != kind:
        raise UsageError(f"{path} is a {other}, not a {kind}: use {READERS[other]}")
    if int(start[2]) > FORMAT:
        raise UsageError(f"{path} was written by a newer version of agym: update agym")
    checked = _HEAD.fullmatch(line)
    if checked is None or int(checked[2]) != zlib.crc32(b"\n" + body, zlib.crc32(checked[1])):
        raise UsageError(f"{path} is damaged: its checksum does not match")
    head = json.loads(line)
    try:
        return pickle.loads(zlib.decompress(body)), head
    except Exception as error:
        wrote = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
        raise UsageError(f"{path}, written by {wrote}, cannot be read here: {error}") from error


def _path(path: Any) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise UsageTypeError(f"path={path!r} is not a path") from None


@cache
def versions(*others: str) -> dict[str, str]:
    """Return the versions of agym, Python, Gymnasium, NumPy and other packages, if installed."""
    installed = {"agym": "unknown", "python": platform.python_version()}
    for name in ("agym", "gymnasium", "numpy", *others):
        with suppress(importlib.metadata.PackageNotFoundError):  # agym may run from its sources
            installed[name] = importlib.metadata.version(DISTRIBUTION if name == "agym" else name)
    return installed
