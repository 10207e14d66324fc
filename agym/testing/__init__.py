"""Tests for what users write: the conformance suite, which every backend must pass."""

from agym.testing.conformance import (
    AsCoroutine,
    BackendConformance,
    any_spaces,
    assert_same,
    boxes,
    simple_spaces,
)

__all__ = [
    "AsCoroutine",
    "BackendConformance",
    "any_spaces",
    "assert_same",
    "boxes",
    "simple_spaces",
]
