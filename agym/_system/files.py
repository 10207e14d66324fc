"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
