"""Nameless: multiprocessing's fork server, without the file that its socket is reached by.

The server listens on a socket that has a name in a temporary folder, which is removed when this
process ends, but not when it is killed. Only this process has to reach it: so it keeps a handle of
the socket's file, and takes the name away at once.
"""

from __future__ import annotations

import os
import tempfile
from multiprocessing import forkserver, process
from typing import Any


def ensure_fork_server() -> None:
    """Start the fork server, unless it runs already."""
    server: Any = forkserver._forkserver
    if not hasattr(os, "O_PATH"):  # macOS
        server.ensure_running()
        return
    config: Any = process.current_process()._config  # type: ignore[attr-defined]
    before = config.get("tempdir")
    with tempfile.TemporaryDirectory(prefix="agym-") as folder:
        config["tempdir"] = folder  # where multiprocessing puts its sockets
        try:
            server.ensure_running()
        finally:
            config["tempdir"] = before
        address = server._forkserver_address
        if address.startswith(folder):
            handle = os.open(address, os.O_PATH | os.O_CLOEXEC)
            server._forkserver_address = f"/proc/self/fd/{handle}"
