"""``backend="auto"``: where environments live by default, and what that must not change."""

from __future__ import annotations

import multiprocessing
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core._system.load import CoreUse
from agym.core.planning import choosing
from agym.core.planning.caching import remember_profile
from agym.core.planning.choosing import plan_for
from agym.core.planning.model import Profile, Requirements
from tests.support.drivers import opened
from tests.support.envs.costly_envs import Costly, needs_cores
from tests.support.envs.plain_envs import Counted, Tally


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def made(log: Path) -> int:
    return log.read_text().count("made")


def lock_in(factory: Any) -> Any:
    """Return a factory that cannot be pickled."""
    lock = threading.Lock()
    return lambda: lock and factory()


COMPUTES = Profile("Computes", 1e-3, 1e-5, 2e-2)


@pytest.mark.usefixtures("full_cores")
@pytest.mark.parametrize(
    ("cost", "backend"),
    [
        pytest.param("sleeps", "thread"),
        pytest.param("computes", "process", marks=[pytest.mark.full, needs_cores]),
    ],
)
def test_auto_goes_by_what_a_plan_measured(log: Path, cost: str, backend: str) -> None:
    factory = partial(Costly, str(log), **{cost: 0.01})
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
    log: Path, option: dict[str, Any], make: Any, backend: str
) -> None:
    with agym.make(make(partial(Counted, str(log))), 2, **option) as envs:
        assert envs.backend == backend
    assert made(log) == 2


# ---------------------------------------------------------------- constructions


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


def test_environments_of_the_callers_own_are_used_as_they_are(log: Path) -> None:
    mine = [Counted(str(log)) for _ in range(3)]
    with agym.make([lambda env=env: env for env in mine]) as envs:
        assert "closed" not in log.read_text()
        envs.reset(seed=0)
    assert (made(log), log.read_text().count("closed")) == (3, 3)


def test_a_constructor_that_raises_is_called_once() -> None:
    calls: list[int] = []

    def fails() -> Tally:
        calls.append(1)
        raise KeyError("no such file")

    with pytest.raises(agym.EnvError, match="environment 0 raised in make: KeyError"):
        agym.make(fails, 3)
    assert len(calls) == 1


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
def test_what_cannot_be_pickled_is_said() -> None:
    needs = Requirements(8, cores=4)
    assert planned(COMPUTES, needs).backend == "process"
    plan = planned(COMPUTES, needs, lock_in(Tally))
    assert plan.backend == "serial"
    assert "process cannot run factories that can't be pickled" in plan.why


@pytest.mark.full
def test_where_no_processes_can_be_started_none_are_chosen(log: Path) -> None:
    """A daemon process of multiprocessing's, such as a pool's, may have no children."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    factory = partial(Costly, str(log), computes=0.01)
    agym.plan(factory, 3)

    def work() -> None:
        with agym.make(factory, 3) as envs:
            theirs.send(envs.backend)

    process = context.Process(target=work, daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.recv() == "serial"
    finally:
        process.join()
        process.close()
        ours.close()
