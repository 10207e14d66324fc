"""How long steps take is followed by what hosts have timed, and what is usual is learnt first."""

from __future__ import annotations

import numpy as np
import pytest

from agym.core.arena import Arena
from agym.core.gauges import Gauges, Meter, gauge_fields
from agym.core.migration import LEAST_STEPS, Watch, has_drifted


class Host:
    """Times steps that never were."""

    def __init__(self, num_envs: int = 4) -> None:
        fields = gauge_fields(num_envs)
        self.gauges = Gauges(Arena(Arena.size_of(fields)).carve(fields))
        self._meter = Meter(self.gauges, 0)
        self.watch = Watch()

    def run(self, seconds: float, *, computed: float | None = None, yields: int = 0) -> None:
        for k in range(LEAST_STEPS):
            self._meter.timed(k % 4, int(seconds * 1e9))
            self.gauges.computed[0] += int((seconds if computed is None else computed) * 1e9)
            self.gauges.yields[0] += yields

    def look(
        self, seconds: float, *, computed: float | None = None, yields: int = 0
    ) -> float | None:
        self.run(seconds, computed=computed, yields=yields)
        return self.watch.look(self.gauges)


def watching(seconds: float) -> Host:
    host = Host()
    for _ in range(3):
        host.look(seconds)
    assert host.look(seconds) == pytest.approx(1.0)
    return host


def test_steps_that_take_longer_have_drifted() -> None:
    host = watching(20e-6)
    ratio = host.look(200e-6)
    assert ratio == pytest.approx(10, rel=0.15)
    assert has_drifted(ratio or 0.0)
    ratio, waiting = host.watch.accept()
    assert waiting == 0.0
    assert host.look(200e-6) == pytest.approx(1.0)
    assert has_drifted(host.look(20e-6) or 1.0)


def test_quick_steps_are_all_alike() -> None:
    assert watching(1e-6).look(0.1e-6) == 1.0


def test_a_slow_beginning_is_not_usual() -> None:
    host = Host()
    assert [host.look(s) for s in (1e-2, 1e-2, 20e-6)] == [None] * 3
    assert host.look(20e-6) == pytest.approx(1.0)


def test_too_few_steps_tell_nothing() -> None:
    host = watching(20e-6)
    assert host.watch.look(host.gauges) is None
    assert host.look(20e-6) == pytest.approx(1.0)


def test_what_other_programs_take_is_no_drift() -> None:
    host = watching(100e-6)
    assert not has_drifted(host.look(1e-3, computed=100e-6) or 0.0)


def test_what_it_waits_for_by_itself_is() -> None:
    host = watching(100e-6)
    assert has_drifted(host.look(1e-3, computed=100e-6, yields=1) or 0.0)
    ratio, waiting = host.watch.accept()
    assert ratio == pytest.approx(10, rel=0.15)
    assert waiting == pytest.approx(0.9, abs=0.02)


def test_steps_are_counted_on_when_hosts_change() -> None:
    host = Host()
    host.gauges.rounds[0], host.gauges.rounds[2] = 5, 7
    host.gauges.steps[1] = 1
    host.gauges.settle([range(2), range(2, 4)])
    assert np.array_equal(host.gauges.arrays["steps"], [5, 6, 7, 7])
    assert not host.gauges.arrays["rounds"].any()
