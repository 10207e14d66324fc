"""The limit of open files, which is 1,024 in many shells, while a connection is one file."""

from __future__ import annotations

import resource


def allow_open_files(count: int) -> None:
    """Raise this process's soft limit of open files, as far as the hard limit permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
