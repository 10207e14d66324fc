"""Skipped tests: those of extras that are not installed, with their reason.

CI runs the core with what the README's commands install, and writes down what was skipped::

    AGYM_SKIPPED=build/skipped pytest -m core

Then it installs everything, and runs that as well, with no skip allowed::

    AGYM_NO_SKIPS=build/skipped pytest -m rest
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

# For tests of what Linux alone has, or shows of processes.
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at what only Linux has")

# What was skipped, in order; under xdist, the reports of all workers come to the controller.
_skipped: dict[str, None] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rest: what only CI runs; given by itself")


@pytest.hookimpl(tryfirst=True)  # before others select by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What an earlier run has skipped, a test or a whole file, is left to run."""
    path = os.environ.get("AGYM_NO_SKIPS")
    left = set(Path(path).read_text().splitlines()) if path else set()
    for item in items:
        if {item.nodeid, item.nodeid.partition("::")[0]} & left:
            item.add_marker(pytest.mark.rest)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _was_skipped(report):
        _skipped[_without_group(report.nodeid)] = None


def _without_group(nodeid: str) -> str:
    """Cut off what pytest-xdist puts behind the id of a test in a group."""
    name, _, group = nodeid.rpartition("@")
    return name if "::" in name and "]" not in group else nodeid


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if _was_skipped(report):
        _skipped[report.nodeid] = None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "AGYM_SKIPPED" in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ["AGYM_SKIPPED"]).write_text("".join(f"{name}\n" for name in _skipped))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse(report)
    return report


def _refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Where everything is installed a skip hides a gap."""
    if _was_skipped(report) and "AGYM_NO_SKIPS" in os.environ:
        report.outcome = "failed"


def _was_skipped(report: pytest.TestReport | pytest.CollectReport) -> bool:
    return report.skipped and not hasattr(report, "wasxfail")
