"""The public surface: small, sorted, documented."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agym


def public_members() -> Iterator[tuple[str, Any]]:
    """Everything in ``__all__``, and the methods and properties of its classes that are agym's."""
    for name in agym.__all__:
        thing = getattr(agym, name)
        yield name, thing
        if inspect.isclass(thing):
            for attribute, member in vars(thing).items():
                if isinstance(member, property):
                    member = member.fget
                if inspect.isfunction(member) and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", member


def test_the_package_shows_its_public_names_and_nothing_else() -> None:
    assert list(agym.__all__) == sorted(agym.__all__)
    assert len(set(agym.__all__)) == len(agym.__all__)
    assert dir(agym) == agym.__all__
    assert all(hasattr(agym, name) for name in agym.__all__)


def test_everything_public_is_documented() -> None:
    """Ruff asks for docstrings of modules, classes and functions, and mypy for types."""
    assert not [name for name, thing in public_members() if not is_documented(thing)]


def is_documented(thing: Any) -> bool:
    if not inspect.isclass(thing) and getattr(thing, "__name__", "") in ("send", "throw", "close"):
        return True  # the coroutine protocol's own
    first_line, *_ = (thing.__doc__ or "").splitlines() or [""]
    return first_line.rstrip().endswith((".", ":", "?", "``"))


def test_the_package_is_typed() -> None:
    assert (Path(agym.__file__).parent / "py.typed").exists()


def test_errors_are_all_public() -> None:
    public = {
        name
        for name, thing in vars(agym.errors).items()
        if inspect.isclass(thing) and issubclass(thing, agym.AgymError)
    }
    assert public <= set(agym.__all__)


@pytest.mark.parametrize("function", [agym.make, agym.make_async])
def test_options_are_keyword_only_and_documented(function: Any) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    kinds = [parameter.kind for parameter in parameters]
    assert kinds[:2] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2
    assert kinds[-1] is inspect.Parameter.VAR_KEYWORD
    assert set(kinds[2:-1]) == {inspect.Parameter.KEYWORD_ONLY}
    for parameter in parameters:
        assert f"{parameter.name}:" in (agym.make.__doc__ or "")


def test_both_makers_take_the_same_arguments() -> None:
    ours = inspect.signature(agym.make).parameters
    theirs = inspect.signature(agym.make_async).parameters
    assert list(ours) == list(theirs)
    differing = {name for name in ours if ours[name].default != theirs[name].default}
    assert differing == {"autoreset", "output"}
