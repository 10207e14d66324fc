"""Fails a run that leaves a file in the checkout, in which nobody would look for it.

Tests run side by side, so that the run is looked at, not each test: the folder before and after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# What tools keep there on purpose.
CACHES = {
    ".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "__pycache__",
    "build", "dist",
}  # fmt: skip

BEFORE = pytest.StashKey[set[Path]]()


def files(folder: Path) -> Iterator[Path]:
    """The files of a checkout."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in CACHES]
        yield from (Path(parent, name) for name in names)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.stash[BEFORE] = {*files(session.config.rootpath)}


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _left(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for path in _left(terminalreporter.config):
        terminalreporter.write_line(f"ERROR left in the checkout: {path}", red=True)


def _left(config: pytest.Config) -> list[Path]:
    before = config.stash.get(BEFORE, None)
    return [] if before is None else sorted({*files(config.rootpath)} - before)
