"""The public surface: small, sorted, documented, typed."""

from __future__ import annotations

import ast
import importlib
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agym

PACKAGE = Path(agym.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def public_members() -> Iterator[Any]:
    """Everything in ``__all__``, and the methods and properties of its classes that are agym's."""
    for name in agym.__all__:
        thing = getattr(agym, name)
        yield pytest.param(thing, id=name)
        if inspect.isclass(thing):
            for attribute, member in vars(thing).items():
                if isinstance(member, property):
                    member = member.fget
                if inspect.isfunction(member) and not attribute.startswith("_"):
                    yield pytest.param(member, id=f"{name}.{attribute}")


MEMBERS = list(public_members())


def test_all_is_sorted_and_complete() -> None:
    assert list(agym.__all__) == sorted(agym.__all__)
    assert len(set(agym.__all__)) == len(agym.__all__)
    imported = {
        name
        for name, thing in vars(agym).items()
        if not name.startswith("_") and not inspect.ismodule(thing)
    }
    assert imported == set(agym.__all__)


@pytest.mark.parametrize("thing", MEMBERS)
def test_everything_public_is_documented(thing: Any) -> None:
    if not inspect.isclass(thing) and getattr(thing, "__name__", "") in ("send", "throw", "close"):
        return  # the coroutine protocol's own
    doc = thing.__doc__
    assert doc
    assert doc.splitlines()[0].rstrip().endswith((".", ":", "?", "``"))


@pytest.mark.parametrize("thing", MEMBERS)
def test_everything_public_is_annotated(thing: Any) -> None:
    function = thing.__init__ if inspect.isclass(thing) else thing
    if not inspect.isfunction(function) or getattr(thing, "_fields", None) is not None:
        return
    if getattr(thing, "_is_protocol", False):
        return  # its constructor is typing's
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.name != "self":
            assert parameter.annotation is not inspect.Parameter.empty, parameter
    if not inspect.isclass(thing):
        assert signature.return_annotation is not inspect.Signature.empty
    module = importlib.import_module(function.__module__)
    hints = typing.get_type_hints(function, vars(module))
    assert hints, "the annotations cannot be resolved"


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_why_it_exists(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc
    assert doc.splitlines()[0].endswith((".", ":", "::"))


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
