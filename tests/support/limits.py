"""Time limits: a test that exceeds its limit fails alone, with the stacks of all that it has run.

The limits are pytest-timeout's. Its own ways either end the whole pytest process, or show nothing
of other threads where tests are distributed, and of child processes never.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import time
from types import FrameType
from typing import Any

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.support.patience import patience

# A thread that is in native code hears no alarm, nor one in a part of agym that holds signals back.
# So much later (for ``patience``) its process ends, stacks first; pytest-xdist says so, and takes a
# new one for the tests that are left.
LAST_RESORT = 6.0

# What a run has started for itself.
HELPERS = ("tests/support/guardian.py", "multiprocessing.resource_tracker")

# Python processes that abort show their stacks first: so do a test's children at its limit.
os.environ["PYTHONFAULTHANDLER"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    limit = patience(settings.timeout / 10)

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        item.add_report_section("call", "stacks of all threads", stacks_of_threads())
        item.add_report_section("call", "children, aborted", abort_children())
        pytest.fail(f"Timeout: the test exceeded its limit of {limit:.0f} s")

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, limit)
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, 2)
    faulthandler.dump_traceback_later(limit + patience(LAST_RESORT), exit=True, file=stderr)
    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    return True


def stacks_of_threads() -> str:
    """The stacks of all threads of this process."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def abort_children() -> str:
    """Have all children show their stacks, on their standard error, and end; gives their names.

    One after the other, since processes that write their stacks at once write them into each other;
    and children before their parents, with which some of them end.

    It waits for their end: who makes environments kills what is left of them when a test fails.
    """
    told = []
    give_up = time.monotonic() + patience()
    for process in reversed(psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            command = " ".join(process.cmdline())
            if any(helper in command for helper in HELPERS):
                continue
            told.append(f"{process.pid} {command[:200]}")
            process.send_signal(signal.SIGABRT)
            psutil.wait_procs([process], timeout=max(0.0, give_up - time.monotonic()))
    return "\n".join(told)
