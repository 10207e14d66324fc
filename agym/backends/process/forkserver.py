"""Starts multiprocessing's fork server without leaving its socket's file behind.

The server listens on a socket with a name in a temporary folder. Python removes it when this
process exits, but not when it is killed. Only this process has to reach the socket: so it keeps a
descriptor of the file, and removes the name at once.
"""

from __future__ import annotations

import os
import tempfile
from multiprocessing import forkserver, process
from typing import Any


def ensure_fork_server() -> None:
    """Start the fork server, unless it is running."""
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
