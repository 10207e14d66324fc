"""The examples of an adapter's docstrings."""

from __future__ import annotations

import doctest
from types import ModuleType


def failures(module: ModuleType) -> str:
    """Run the examples of a module; gives the report of those that are not true."""
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    found = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert found, f"{module.__name__} has no example"
    for test in found:
        runner.run(test, out=report.append)
    return "".join(report)
