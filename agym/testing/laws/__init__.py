"""The laws that every backend must obey, by subject; each law is a function of a world."""

from agym.testing.laws import (
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
from agym.testing.laws.law import LAWS, Law, assert_same

__all__ = [
    "LAWS",
    "Law",
    "arguments",
    "assert_same",
    "attributes",
    "failures",
    "groups",
    "lifecycle",
    "order",
    "receiving",
    "recovery",
    "resets",
    "results",
    "snapshots",
    "threads",
]
