"""The core: of each test the cases that together have every value of every parameter.

``pytest -m core`` runs them, and CI runs others as well (``-m rest``). Where each case takes long,
``once`` leaves the first of them in the core, and ``full`` leaves none: another test of the core
states the same, or it needs minutes, Ray or a browser. Of such tests CI runs the cases that have
every value once, on both loops, and ``pytest`` without ``-m`` runs all. Both mark a test, a module
(``pytestmark``), or ``full`` a value (``pytest.param(..., marks=pytest.mark.full)``).

Tests of properties are in both, with a fifth of the examples in the core.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from agym.testing import Law

# A worker's start is no reason to call an example slow; and a test leaves no files.
FULL = settings(deadline=None, database=None, print_blob=True)
settings.register_profile("full", FULL)
settings.register_profile("core", FULL, max_examples=FULL.max_examples // 5)

# Tests of coroutines run on two event loops (a parameter that pytest-asyncio adds); in the core not
# on the other one.
LOOP, LOOPS, OTHER = "_asyncio_loop_factory", ("asyncio", "uvloop"), "uvloop"


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
        tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        core = in_core(cases)
        for item in core:
            item.add_marker(pytest.mark.core)
        long = any(_is(case, "once") or _is(case, "full") for case in cases)
        for item in covering(cases) if long else cases:
            if item not in core or _draws_examples(getattr(item, "obj", None)):
                item.add_marker(pytest.mark.rest)


def in_core(cases: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of a test that are in the core."""
    quick = [c for c in cases if not _is(c, "full") and (LOOP, OTHER) not in _values(c)]
    return quick[:1] if any(_is(case, "once") for case in cases) else covering(quick)


def covering(cases: list[pytest.Item]) -> list[pytest.Item]:
    """A few of the cases that have every value of every parameter."""
    left = {case: _values(case) for case in cases}
    wanted = set().union(*left.values())
    chosen = []
    while wanted or (left and not chosen):
        best = max(left, key=lambda case: len(left[case] & wanted))  # the first of the best
        chosen.append(best)
        wanted -= left.pop(best)
    return chosen


def _draws_examples(test: Any) -> bool:
    return is_hypothesis_test(test) or getattr(test, "draws_examples", False)


def _is(case: pytest.Item, mark: str) -> bool:
    return case.get_closest_marker(mark) is not None


def _values(case: pytest.Item) -> set[tuple[Any, str]]:
    """The values of a case's parameters, by their places and names; the loop's by its own."""
    callspec = getattr(case, "callspec", None)
    names = [] if callspec is None else list(callspec._idlist)
    values: set[tuple[Any, str]] = set()
    if names and LOOP in callspec.params:
        loop = next(name for name in names if name in LOOPS)
        values.add((LOOP, loop))
        names.remove(loop)
    if names and isinstance(law := callspec.params.get("law"), Law):
        return {("law", law.name), ("world", str(callspec.params["world"]))}
    return values | {*enumerate(names)}
