"""What agym neither opens to others nor changes: sockets, names, the parent's environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import agym
from agym.backends import Process
from tests.support.backends import FORK
from tests.support.envs.plain_envs import Probe
from tests.support.skips import needs_linux

SETUPS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread"},
    "spawn": {"backend": Process(start_method="spawn"), "workers": 2},
    "forkserver": {"backend": Process(start_method="forkserver"), "workers": 2},
    "fork": {"backend": FORK, "workers": 2},
}
pytestmark = [pytest.mark.usefixtures("fork_server"), needs_linux]

# In /proc/net/unix: the flag of a socket that listens.
ACCEPTS = 1 << 16


def held_by(pid: int) -> set[str]:
    """What a process's descriptors are."""
    return {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}


def listening(pids: set[int]) -> Iterator[str]:
    """Sockets of these processes that anybody could connect to."""
    for pid in pids:
        for connection in psutil.Process(pid).net_connections(kind="inet"):
            yield str(connection)
    sockets = set().union(*map(held_by, pids))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        _, _, _, flags, _, _, inode, *path = line.split()
        if int(flags, 16) & ACCEPTS and f"socket:[{inode}]" in sockets:
            yield f"{inode} {path}"


@pytest.mark.once
@pytest.mark.parametrize("setup", SETUPS)
def test_open_environments_have_no_side_effects(setup: str) -> None:
    """No process listens, and the variables of this process's environment do not change."""
    sockets, variables = {*listening({os.getpid()})}, dict(os.environ)
    with agym.make(Probe, 4, **SETUPS[setup]) as envs:
        assert dict(os.environ) == variables
        envs.reset()
        envs.step([0] * 4)
        pids = {os.getpid(), *envs.pid()}
        assert {*listening(pids)} == sockets
        if setup in ("spawn", "fork"):  # the workers are children: no manager process
            assert pids - {os.getpid()} <= {each.pid for each in psutil.Process().children()}
        assert dict(os.environ) == variables
        if setup in ("serial", "thread"):
            return
        for pid in pids:  # shared memory has no name that others could open
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            files = {line.split(maxsplit=5)[-1] for line in maps if " rw-s " in line}
            assert "/memfd:agym (deleted)" in files
            assert not any(Path(file).exists() for file in files)
    assert dict(os.environ) == variables
