"""Files that appear complete or not at all, and remedies for errors of the operating system."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agym.errors import AgymError, UsageError

_NO_SPACE = "free some space on that file system"
_NO_FILES = "raise the limit of open files, as by `ulimit -n 4096`, or use fewer workers"
_NO_FOLDER = "make its folder first"
_NOT_PERMITTED = "choose a folder that this program may write to"
REMEDIES = {
    errno.EMFILE: _NO_FILES,
    errno.ENFILE: _NO_FILES,
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: "raise the limit of a file's size, as by `ulimit -f unlimited`",
    errno.ENOMEM: "use fewer environments or workers, or end other programs",
    errno.EAGAIN: "raise the limit of processes, as by `ulimit -u 4096`, or use fewer workers",
    errno.ENOENT: _NO_FOLDER,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EACCES: _NOT_PERMITTED,
    errno.EPERM: _NOT_PERMITTED,
    errno.EROFS: _NOT_PERMITTED,
}


@contextmanager
def os_errors_as_usage_errors(failure: str) -> Iterator[None]:
    """Raise an operating system's error as a UsageError with its remedy.

    Args:
        failure: What fails by them, as ``"the environments cannot be made"``.

    Raises:
        UsageError: The system has refused something.
    """
    try:
        yield
    except AgymError:  # some are an OSError too
        raise
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0)
        text = f"{failure}: {error.strerror or error}" + (f"; {remedy}" if remedy else "")
        raise UsageError(text) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read; it appears complete or not at all.

    Raises:
        OSError: It cannot be written.
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
        if isinstance(error, OSError):  # which names the temporary file
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
