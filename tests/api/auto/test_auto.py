"""``backend="auto"``: where environments live by default, and what that must not change."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agym
from agym.core._system.load import CoreUse
from agym.core.engine.calls.traffic import BATCHES_PER_SAMPLE, FIRST, Traffic
from agym.core.engine.hooks import Hooks
from agym.core.planning import choosing
from agym.core.planning.caching import recall_measured, remember_profile
from agym.core.planning.choosing import learn_from, plan_for
from agym.core.planning.model import Profile, Requirements
from tests.support.drivers import APIS, opened
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.costly_envs import Costly, Recorded, needs_cores
from tests.support.envs.plain_envs import Tally

pytestmark = pytest.mark.usefixtures("empty_folder")


def lock_in(factory: Any) -> Any:
    """Return a factory that cannot be pickled."""
    lock = threading.Lock()
    return lambda: lock and factory()


COMPUTES = Profile("Computes", 1e-3, 1e-5, 2e-2)
QUICK = replace(COMPUTES, step=1e-3)
TWO_CORES = Requirements(8, cores=2)


@pytest.mark.usefixtures("full_cores")
@pytest.mark.parametrize(
    ("cost", "backend"),
    [
        pytest.param("sleeps", "thread"),
        pytest.param("computes", "process", marks=[pytest.mark.full, needs_cores]),
    ],
)
def test_auto_goes_by_what_a_plan_measured(cost: str, backend: str) -> None:
    factory = partial(Costly, "diary", **{cost: 0.01})
    with agym.make(factory, 4) as envs:
        assert envs.backend == "serial"
    assert agym.plan(factory, 4).backend == backend
    with agym.make(factory, 4) as envs:
        assert envs.backend == backend


def test_an_event_loop_is_not_blocked() -> None:
    quick = partial(Tally, 7)
    with opened("async", quick, 2) as envs:
        assert envs.backend == "thread"
    remember_profile(quick, Profile("Quick", 1e-5, 1e-5, 1e-6), None)
    with opened("async", quick, 2) as envs:
        assert envs.backend == "serial"


@pytest.mark.once
@pytest.mark.parametrize(
    ("option", "make", "backend"),
    [
        ({"timeout": 9.0, "workers": 1}, lambda factory: factory, "process"),
        ({"on_fault": "restart", "workers": 1}, lambda factory: factory, "process"),
        ({"timeout": 9.0}, lock_in, "thread"),
    ],
)
def test_where_faults_are_handled_nothing_is_tried_here(
    option: dict[str, Any], make: Any, backend: str
) -> None:
    with agym.make(make(Recorded), 2, **option) as envs:
        pid = envs.stats().workers[0].pid if backend == "process" else os.getpid()
        assert envs.backend == backend
        assert Path("diary").read_text() == f"made {pid}\n" * 2


# ---------------------------------------------------------------- what is made


@pytest.fixture
def registered() -> Iterator[str]:
    gymnasium.register("Recorded-v0", entry_point=Recorded, disable_env_checker=True)
    yield "Recorded-v0"
    del gymnasium.registry["Recorded-v0"]


def kind_of(kind: str, env_id: str) -> Any:
    """Return what ``agym.make`` takes, of each kind."""
    return {
        "class": Recorded,
        "partial": partial(Recorded, "diary"),
        "lambda": lambda: Recorded(),
        "list": [lambda: Recorded()] * 3,
        "id": env_id,
        "spec": gymnasium.spec(env_id),
    }[kind]


def deeds() -> list[str]:
    return [line.split()[0] for line in Path("diary").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["class", "partial", "lambda", "list", "id", "spec"])
@pytest.mark.parametrize("make", [agym.make, agym.make_vec])
def test_only_what_the_caller_gets_is_made(make: Any, kind: str, registered: str) -> None:
    with closing(make(kind_of(kind, registered), 3)) as envs:
        assert deeds() == ["made"] * 3
        envs.reset(seed=0)
        assert deeds() == ["made"] * 3 + ["reset"] * 3


@pytest.mark.parametrize("kind", ["class", "lambda", "id"])
async def test_nothing_is_stepped_beside_an_event_loop(kind: str, registered: str) -> None:
    async with agym.make_async(kind_of(kind, registered), 3):
        *tried, one, two, three = deeds()
        assert [one, two, three] == ["made"] * 3
        # A lambda may make coroutine environments, which only a call of it tells.
        assert {*tried} <= ({"made", "closed"} if kind == "lambda" else set())
        assert tried.count("made") == tried.count("closed")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", [partial(AsyncTally, Recorded), lambda: AsyncTally(Recorded)])
def test_coroutine_environments_are_made_once(api: str, kind: Any) -> None:
    with opened(api, kind, 3) as envs:
        assert deeds() == ["made"] * 3
        assert envs.backend == "asyncio"


def test_there_may_be_only_one_environment_at_a_time(tmp_path: Path) -> None:
    port = tmp_path / "taken"

    class Port(Tally):
        def __init__(self) -> None:
            super().__init__()
            port.touch(exist_ok=False)

        def close(self) -> None:
            port.unlink()

    with opened("async", lambda: Port(), 1) as envs:
        envs.reset()


def test_environments_of_the_callers_own_are_used_as_they_are() -> None:
    mine = [Recorded() for _ in range(3)]
    with agym.make([lambda env=env: env for env in mine]):
        pass
    assert deeds() == ["made"] * 3 + ["closed"] * 3


def refuse() -> None:
    raise KeyError("no such file")


def test_a_constructor_that_raises_is_called_once() -> None:
    with pytest.raises(agym.EnvError, match="environment 0 raised in make: KeyError"):
        agym.make(partial(Recorded, "diary", "made", refuse), 3)
    assert deeds() == ["made"]


# ---------------------------------------------------------------- other programs, and plans


def test_other_programs_are_watched_only_where_processes_would_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def watched() -> int:
        raise AssertionError("other programs were watched")

    monkeypatch.setattr("agym.core.planning.choosing.busy_cores", watched)
    quick = Profile("Quick", 1e-3, 1e-5, 2e-6)
    assert planned(quick, Requirements(2, cores=4)).backend == "serial"
    sleeps = Profile("Sleeps", 1e-3, 1e-5, 2e-2, waiting=1.0)
    assert planned(sleeps, Requirements(64, cores=4)).backend == "thread"
    needs = Requirements(8, blocking=False, cores=4)  # an event loop must not be blocked
    assert planned(COMPUTES, needs).backend == "process"
    with pytest.raises(AssertionError, match="were watched"):
        planned(COMPUTES, Requirements(8, cores=4))


def planned(profile: Profile, needs: Requirements, factory: Any = Tally) -> agym.Plan:
    return plan_for(profile, [factory] * needs.num_envs, needs, factory)


@pytest.mark.parametrize(
    ("step", "cores", "others", "name"),
    [
        (2e-2, 4, 0, "process ×4"),
        (2e-2, 4, 1, "process ×3"),
        (2e-2, 4, 2, "process ×2"),
        (2e-2, 2, 1, "serial"),  # a batch lasts until the worker that shares its core is done
        (2e-2, 2, 2, "process ×2"),  # two of four threads get more than one of three
        (2e-4, 2, 2, "serial"),  # quick batches
    ],
)
def test_the_cores_that_other_programs_keep_busy_count(
    step: float, cores: int, others: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "busy_cores", lambda: others)
    profile = replace(COMPUTES, step=step)
    assert planned(profile, Requirements(8, cores=cores)).chosen.name == name


@pytest.mark.parametrize(
    ("machine", "others", "busy"),
    [(4, 0.0, 0), (4, 0.4, 0), (4, 0.9, 1), (4, 9.0, 4), (8, 3.0, 0), (8, 6.0, 2)],
)
def test_other_programs_may_have_the_cores_beyond_our_quota(
    machine: int, others: float, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "core_numbers", lambda: [*range(machine)])
    monkeypatch.setattr(choosing, "available_cores", lambda: 4)
    use = CoreUse(machine, 0.0, 0.0, others)
    monkeypatch.setattr(choosing.Load, "read", lambda self: use)
    assert choosing.busy_cores() == busy


@pytest.mark.usefixtures("full_cores")
def test_a_plan_tells_what_cannot_be_pickled() -> None:
    plan = planned(COMPUTES, Requirements(8, cores=4), lock_in(Tally))
    assert "process cannot run factories that can't be pickled" in plan.why


@pytest.mark.full
def test_where_no_processes_can_be_started_none_are_chosen() -> None:
    """A daemon process of multiprocessing's, such as a pool's, may have no children."""
    factory = partial(Costly, "diary", computes=0.01)
    agym.plan(factory, 3)

    def work() -> None:
        with agym.make(factory, 3) as envs:
            sys.exit(envs.backend != "serial")

    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0
    process.close()


# ---------------------------------------------------------------- what is learned from batches


def learned(batch: float, together: float) -> tuple[Traffic, agym.Plan]:
    """Learn from steps of 8 environments on two processes; return what is said, and the plan."""
    plan = planned(QUICK, TWO_CORES)
    assert plan.backend == "process"
    traffic = Traffic(Hooks())
    learn_from(plan, Tally, traffic)
    assert traffic.learn is not None
    traffic.learn([(int(batch * 1e9), int(together * 1e9))] * FIRST)
    return traffic, plan


@pytest.mark.usefixtures("full_cores")
@pytest.mark.parametrize(
    ("batch", "together"),
    [
        (5e-3, 9e-3),
        (50e-3, 17e-3),  # the caller's steps take longer than those of random actions
    ],
)
def test_a_choice_that_holds_is_not_mentioned(batch: float, together: float) -> None:
    traffic, _ = learned(batch, together)
    assert not traffic.remark
    assert recall_measured(Tally, 8) == {}


@pytest.mark.usefixtures("full_cores")
def test_a_choice_that_is_refuted_is_remembered_and_said() -> None:
    traffic, plan = learned(batch=10e-3, together=9e-3)
    assert traffic.remark.startswith(f"{plan.chosen.name} took 10 ms per batch, but serial")
    assert recall_measured(Tally, 8) == {plan.chosen.name: 10e-3}
    again = planned(QUICK, TWO_CORES)
    assert again.backend == "serial"
    assert f"{plan.chosen.name} took 10 ms" in again.why
    # With another number of environments nothing is known.
    assert planned(QUICK, replace(TWO_CORES, num_envs=16)).backend == "process"


@pytest.mark.usefixtures("full_cores")
def test_a_step_does_not_fail_because_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(choosing, "remember_measured", fails)
    traffic, _ = learned(batch=10e-3, together=9e-3)
    assert traffic.remark


@pytest.mark.parametrize("num_envs", [1, 4])
def test_what_stays_in_this_thread_is_not_compared(num_envs: int) -> None:
    plan = planned(replace(QUICK, step=2e-6), replace(TWO_CORES, num_envs=num_envs))
    traffic = Traffic(Hooks())
    learn_from(plan, Tally, traffic)
    assert traffic.learn is None


@pytest.mark.full
@needs_cores
@pytest.mark.usefixtures("full_cores")
def test_what_was_learned_is_in_repr_and_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "REFUTED", 0.0)  # whatever batches take
    remember_profile(Tally, QUICK, None)
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
