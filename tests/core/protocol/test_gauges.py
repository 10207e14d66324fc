"""The gauges: percentiles from buckets, and who is timed when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.core.protocol.metrics.gauges import (
    BUCKETS,
    Meter,
    bucket_of,
    percentiles,
)
from tests.support.insides import gauges_of


def typical(counts: np.ndarray[Any, Any], share: float) -> float | None:
    """Of one environment, beside others that must not matter."""
    others = np.ones_like(counts), np.zeros_like(counts)
    (_, (_, found), (nothing, _)) = percentiles(
        np.stack([others[0], counts, others[1]]), (0.1, share)
    )
    assert nothing is None
    return found


@given(st.integers(0, 2**60))
def test_every_duration_has_a_bucket(nanoseconds: int) -> None:
    assert 0 <= bucket_of(nanoseconds) < BUCKETS
    assert bucket_of(nanoseconds) <= bucket_of(nanoseconds + 1)


@given(st.lists(st.integers(4, 2**42), min_size=1, max_size=200), st.sampled_from([0.5, 0.99]))
def test_percentiles_are_exact_to_an_eighth(durations: list[int], share: float) -> None:
    counts = np.zeros(BUCKETS, np.uint32)
    for duration in durations:
        counts[bucket_of(duration)] += 1
    found = typical(counts, share)
    exact = np.quantile(durations, share, method="inverted_cdf")
    assert found is not None
    assert found * 1e9 == pytest.approx(exact, rel=0.126)


def timed_rounds(nanoseconds: int, count: int, rounds: int) -> int:
    meter = Meter(gauges_of(count), 0)
    timed = 0
    for _ in range(rounds):
        due = meter.start(0, count, whole=True)
        timed += due
        if due:
            meter._started -= nanoseconds  # so long ago
        meter.end(count, timed=due)
    return timed


def test_slow_environments_are_timed_at_every_step() -> None:
    assert timed_rounds(10**9, 8, 100) == 100


def test_quick_environments_are_timed_a_few_times_in_a_hundred_steps() -> None:
    assert 2 <= timed_rounds(0, 1000, 100) <= 20
