"""Docstrings of public names begin with an example, and the examples are true."""

from __future__ import annotations

import doctest
import inspect
from types import ModuleType

import pytest

import agym
from agym.core.backends.options import SPECS

NAMES = {name: getattr(agym, name) for name in agym.__all__} | {
    f"backends.{spec.__name__}": spec for spec in SPECS.values()
}
OWN = {
    name: named
    for name, named in NAMES.items()
    # errors are raised, not made: docs/reference/errors.md has an example of each
    if not isinstance(named, ModuleType)
    and not (isinstance(named, type) and issubclass(named, BaseException))
}
EXAMPLES = [
    pytest.param(test, id=test.name)
    for name, named in OWN.items()
    for test in doctest.DocTestFinder().find(named, name, globs={})
    if test.examples
]


@pytest.mark.parametrize("name", OWN)
def test_a_public_docstring_begins_with_an_example(name: str) -> None:
    text = inspect.getdoc(OWN[name]) or ""
    sections = text.split("\n\n")
    assert sections[1].startswith("Example:\n    >>> "), text


@pytest.mark.once
@pytest.mark.parametrize("test", EXAMPLES)
def test_examples_are_true(test: doctest.DocTest) -> None:
    if test.name.lower() == "tensorboard":
        pytest.importorskip("tensorboard")
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(test, out=report.append).failed == 0, "".join(report)
