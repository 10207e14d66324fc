"""What `auto` learns from the first real batches, and what it says of it."""

from __future__ import annotations

from typing import Any

import pytest

import agym
from agym.core.engine.hooks import Hooks
from agym.core.engine.stats import BATCHES_PER_SAMPLE, FIRST, Traffic
from agym.core.planning import choosing
from agym.core.planning.caching import recall_measured, remember_profile
from agym.core.planning.choosing import learn_from, plan_for
from agym.core.planning.model import Profile, Requirements
from tests.support.envs.costly_envs import needs_cores
from tests.support.envs.plain_envs import Tally

pytestmark = pytest.mark.usefixtures("full_cores")
COMPUTES = Profile("Computes", 1e-3, 1e-5, 1e-3)


def planned(profile: Profile, num_envs: int) -> agym.Plan:
    return plan_for(profile, [Tally] * num_envs, Requirements(num_envs, cores=2), Tally)


def learned(batch: float, together: float) -> tuple[Traffic, agym.Plan]:
    """Learn from steps of 8 environments on two processes; return what is said, and the plan."""
    plan = planned(COMPUTES, 8)
    assert plan.backend == "process"
    traffic = Traffic(Hooks())
    learn_from(plan, Tally, traffic)
    assert traffic.learn is not None
    traffic.learn([(int(batch * 1e9), int(together * 1e9))] * FIRST)
    return traffic, plan


def test_a_choice_that_holds_is_not_mentioned() -> None:
    traffic, _ = learned(batch=5e-3, together=9e-3)
    assert not traffic.remark
    assert recall_measured(Tally, 8) == {}


def test_a_choice_that_is_refuted_is_remembered_and_said() -> None:
    traffic, plan = learned(batch=10e-3, together=9e-3)
    assert traffic.remark.startswith(f"{plan.chosen.name} took 10 ms per batch, but serial")
    assert recall_measured(Tally, 8) == {plan.chosen.name: 10e-3}
    again = planned(COMPUTES, 8)
    assert again.backend == "serial"
    assert f"{plan.chosen.name} took 10 ms" in again.why
    # With another number of environments nothing is known.
    assert planned(COMPUTES, 16).backend == "process"


def test_a_step_does_not_fail_because_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(choosing, "remember_measured", fails)
    traffic, _ = learned(batch=10e-3, together=9e-3)
    assert traffic.remark


def test_steps_that_are_longer_than_random_ones_refute_nothing() -> None:
    """The caller plays better than random actions do, and its steps take longer."""
    traffic, _ = learned(batch=50e-3, together=17e-3)
    assert not traffic.remark


@pytest.mark.parametrize("num_envs", [1, 4])
def test_what_stays_in_this_thread_is_not_compared(num_envs: int) -> None:
    plan = planned(Profile("Quick", 1e-3, 1e-5, 2e-6), num_envs)
    traffic = Traffic(Hooks())
    learn_from(plan, Tally, traffic)
    assert traffic.learn is None


@pytest.mark.full
@needs_cores
def test_what_was_learned_is_in_repr_and_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "REFUTED", 0.0)  # whatever batches take
    remember_profile(Tally, COMPUTES, None)
    with agym.make(Tally, 8, autoreset="next_step") as envs:
        assert envs.backend == "process"
        assert "took" not in repr(envs)
        envs.reset(seed=0)
        for _ in range(FIRST * BATCHES_PER_SAMPLE + BATCHES_PER_SAMPLE):
            envs.step([0] * 8)
        assert "took" in envs.stats().remark
        assert envs.stats().remark in str(envs.stats())
        assert "per batch, but serial is predicted to take" in repr(envs)
    assert recall_measured(Tally, 8)
