"""The classes of the twins, by the names of the originals' classes, made when they are used."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from agym.twins.registration import FAMILIES
from agym.twins.twin import CompiledTwin, Twin

ENTRY_POINTS = {entry_point.partition(":")[2]: entry_point for entry_point in FAMILIES}


@cache
def twin_class(name: str) -> type[Twin]:
    """Return the class of the twins of a class of Gymnasium."""
    module, family_name = FAMILIES[ENTRY_POINTS[name]].split(":")
    family = getattr(import_module(f"agym.twins.{module}"), family_name)
    parts = {
        "entry_point": ENTRY_POINTS[name], "family": family, "__doc__": family.__doc__,
        "__module__": __name__,
    }  # fmt: skip
    return type(name, (CompiledTwin if module == "classic" else Twin,), parts)


def __getattr__(name: str) -> Any:
    if name in ENTRY_POINTS:
        return twin_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
