"""The core: of each test the cases that together have every value of every parameter.

``pytest -m core`` runs them at every commit, and CI runs the others as well (``-m rest``). Where
each case takes long, ``once`` leaves the first of them in the core, and ``full`` leaves none: for
a promise that another test of the core states too. Both mark a test, a module (``pytestmark``), or
``full`` a value (``pytest.param(..., marks=pytest.mark.full)``).

Tests of properties are in both, with a fifth of the examples in the core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import is_hypothesis_test, settings

# A worker's start is no reason to call an example slow; and a test leaves no files.
FULL = settings(deadline=None, database=None, print_blob=True)
settings.register_profile("full", FULL)
settings.register_profile("core", FULL, max_examples=FULL.max_examples // 5)

# Tests of coroutines run on two event loops; in the core not on this one.
LOOP, OTHER = "_asyncio_loop_factory", "uvloop"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: not in the core")
    config.addinivalue_line("markers", "once: in the core with its first case only")
    config.addinivalue_line("markers", "core: what runs at every commit; given by itself")
    settings.load_profile("core" if config.getoption("markexpr") == "core" else "full")


def examples(count: int) -> settings:
    """So many examples of a property, and fewer in the core."""
    return settings(max_examples=max(2, count * settings().max_examples // FULL.max_examples))


@pytest.hookimpl(tryfirst=True)  # before others select by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("full") is None:
            tests[item.nodeid.partition("[")[0]].append(item)
    core = {item for cases in tests.values() for item in covering(cases)}
    for item in items:
        if item in core:
            item.add_marker(pytest.mark.core)
        if item not in core or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.rest)


def covering(cases: Iterable[pytest.Item]) -> list[pytest.Item]:
    """A few of the cases that have every value of every parameter."""
    left = {item: _values(item) for item in cases}
    left = {item: values for item, values in left.items() if values is not None}
    if any(item.get_closest_marker("once") for item in left):
        return [*left][:1]
    wanted = set().union(*left.values())
    chosen = []
    while wanted or (left and not chosen):
        best = max(left, key=lambda item: len(left[item] & wanted))  # the first of the best
        chosen.append(best)
        wanted -= left.pop(best)
    return chosen


def _values(item: pytest.Item) -> set[tuple[int, str]] | None:
    """A case's values, by their names; ``None`` for those on the other loop."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return set()
    other = LOOP in callspec.params and OTHER in callspec._idlist
    return None if other else {*enumerate(callspec._idlist)}
