"""The laws that every backend must obey, by subject; each law is a function of a world."""

from agym.testing.law import LAWS, Law, assert_same
from agym.testing.laws import (  # noqa: F401 - each registers its laws
    arguments,
    attributes,
    failures,
    groups,
    lifecycle,
    order,
    receiving,
    recovery,
    resets,
    results,
    snapshots,
    threads,
)

__all__ = ["LAWS", "Law", "assert_same"]
