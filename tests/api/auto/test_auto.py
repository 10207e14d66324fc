"""``backend="auto"``: where environments live by default, and what that must not change."""

from __future__ import annotations

import asyncio
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
from tests.support.envs.costly_envs import (
    AsyncCostly,
    Costly,
    DearNested,
    RaisesInStep,
    needs_cores,
)
from tests.support.envs.plain_envs import Counted, Nested, Tally
from tests.support.equality import same
from tests.support.insides import backend_of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def made(log: Path) -> int:
    return sum(line.startswith("made") for line in log.read_text().splitlines())


def closed(log: Path) -> int:
    return sum(line.startswith("closed") for line in log.read_text().splitlines())


def backend(envs: Any) -> str:
    return repr(envs).rpartition("backend=")[2].strip("')")


def lock_in(factory: Any) -> Any:
    """A factory that cannot be pickled."""
    lock = threading.Lock()
    return lambda: lock and factory()


COMPUTES = Profile("Computes", 1e-3, 1e-5, 2e-2)


def test_quick_environments_stay_in_this_thread() -> None:
    with agym.make(Tally, 2) as envs:
        assert backend(envs) == "serial"


@pytest.mark.full
def test_what_was_seen_to_sleep_goes_to_threads(log: Path) -> None:
    factory = partial(Costly, str(log), sleeps=0.01)
    agym.plan(factory, 12)
    with agym.make(factory, 12) as envs:
        assert backend(envs) == "thread"
        assert len(backend_of(envs).ranges) == 12


@pytest.mark.full
@needs_cores
@pytest.mark.usefixtures("full_cores")
def test_what_was_seen_to_compute_goes_to_processes(log: Path) -> None:
    factory = partial(Costly, str(log), computes=0.01)
    agym.plan(factory, 4)
    with agym.make(factory, 4) as envs:
        assert backend(envs) == "process"


def test_what_computes_and_cannot_be_pickled_stays(log: Path) -> None:
    with agym.make(lock_in(partial(Costly, str(log), computes=0.01)), 4) as envs:
        assert backend(envs) == "serial"


def test_an_event_loop_is_not_blocked(log: Path) -> None:
    with opened("async", partial(Costly, str(log), sleeps=0.01), 1) as envs:
        assert backend(envs.envs) == "thread"
    with opened("async", Tally, 2) as envs:
        assert backend(envs.envs) == "thread"
    quick = partial(Tally, 7)
    remember_profile(quick, Profile("Quick", 1e-5, 1e-5, 1e-6), None)
    with opened("async", quick, 2) as envs:
        assert backend(envs.envs) == "serial"


def test_a_factory_of_coroutine_environments_gets_a_loop(log: Path) -> None:
    """Which is not known before one is made; it is made no second time."""
    with agym.make(lambda: AsyncCostly(str(log), 0.001), 3) as envs:
        assert backend(envs) == "asyncio"
        envs.reset(seed=0)
        envs.step([0, 1, 2])
    assert made(log) == closed(log) == 3


@pytest.mark.once
@pytest.mark.parametrize("option", [{"timeout": 9.0}, {"on_fault": "restart"}])
def test_where_faults_are_handled_nothing_is_tried_here(log: Path, option: dict[str, Any]) -> None:
    with agym.make(partial(Counted, str(log)), 2, workers=1, **option) as envs:
        assert backend(envs) == "process"
    assert made(log) == 2


def test_deadlines_of_what_cannot_be_pickled_are_honoured_by_threads(log: Path) -> None:
    with agym.make(lock_in(partial(Counted, str(log))), 2, timeout=9.0) as envs:
        assert backend(envs) == "thread"
    assert made(log) == 2


# ---------------------------------------------------------------- constructions


def test_one_environment_is_not_measured(log: Path) -> None:
    with agym.make(partial(Counted, str(log))):
        assert made(log) == 1


@pytest.mark.parametrize("kind", [partial, "function"])
@pytest.mark.parametrize("make", [0.0, 0.08])
def test_no_more_are_made_than_the_caller_gets(log: Path, make: float, kind: Any) -> None:
    factory: Any = partial(Costly, str(log), make=make)
    for count in (1, 2):
        with agym.make(factory if kind is partial else lambda: factory(), 2) as envs:
            assert backend(envs) == "serial"
            assert made(log) == 2 * count
            assert envs.reset(seed=0)[0][0][0] == 1.0  # its first episode
    assert made(log) == closed(log) == 4


def test_there_may_be_only_one_at_a_time(tmp_path: Path) -> None:
    port = tmp_path / "taken"

    class Port(Tally):
        def __init__(self) -> None:
            super().__init__()
            port.touch(exist_ok=False)

        def close(self) -> None:
            port.unlink()

    async def main() -> None:
        async with agym.make_async(lambda: Port(), 1) as envs:
            await envs.reset()

    asyncio.run(main())


class Shown(Counted):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.render_mode = "human"

    def step(self, action: Any) -> Any:
        self._log("stepped")
        return super().step(action)


def test_what_shows_a_window_is_not_stepped(log: Path) -> None:
    with agym.make(partial(Shown, str(log)), 1, workers=1) as envs:
        assert backend(envs) == "process"
    assert made(log) > 0
    assert "stepped" not in log.read_text()


class Leaves(Tally):
    def step(self, action: Any) -> Any:
        raise SystemExit(3)


def test_one_that_wants_to_leave_is_left_where_that_does_no_harm() -> None:
    with agym.make(Leaves, 2) as envs:
        assert backend(envs) == "serial"


def test_environments_of_the_callers_own_are_used_as_they_are(log: Path) -> None:
    mine = [Counted(str(log)) for _ in range(3)]
    with agym.make([lambda env=env: env for env in mine]) as envs:
        assert closed(log) == 0
        assert made(log) == 3
        envs.reset(seed=0)
    assert made(log) == closed(log) == 3


# ---------------------------------------------------------------- nothing else changes


def test_a_constructor_that_raises_is_called_once_and_told() -> None:
    calls: list[int] = []

    def fails() -> Tally:
        calls.append(1)
        raise KeyError("no such file")

    with pytest.raises(agym.EnvError, match="environment 0 raised in make: KeyError"):
        agym.make(fails, 3)
    assert len(calls) == 1


def test_what_raises_when_stepped_can_be_made(log: Path) -> None:
    with agym.make(partial(RaisesInStep, str(log)), 2) as envs:
        assert backend(envs) == "serial"
        envs.reset(seed=0)
        envs.step([0, 0])
        with pytest.raises(ExceptionGroup):
            envs.step([0, 0])


@pytest.mark.parametrize("factory", [Nested, DearNested, "CartPole-v1"])
def test_trajectories_are_those_of_serial(factory: Any) -> None:
    def play(**options: Any) -> list[Any]:
        with agym.make(factory, 2, output="array", autoreset="next_step", **options) as envs:
            envs.action_space.seed(4)
            return [
                envs.reset(seed=3),
                *(envs.step(envs.action_space.sample()) for _ in range(40)),
            ]

    assert same(play(), play(backend="serial"))


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
    ("cores", "others", "name"),
    [
        (4, 0, "process ×4"),
        (4, 1, "process ×3"),
        (4, 2, "process ×2"),
        (2, 1, "serial"),  # a batch lasts until the worker that shares its core is done
        (2, 2, "process ×2"),  # two of four threads get more than one of three
    ],
)
def test_the_cores_that_other_programs_keep_busy_count(
    cores: int, others: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "busy_cores", lambda: others)
    assert planned(COMPUTES, Requirements(8, cores=cores)).chosen.name == name


def test_beside_other_programs_quick_batches_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "busy_cores", lambda: 2)
    quick = replace(COMPUTES, step=0.2e-3)
    assert planned(quick, Requirements(8, cores=2)).backend == "serial"


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
def test_what_cannot_be_pickled_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "busy_cores", lambda: 0)
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
            theirs.send(backend(envs))

    process = context.Process(target=work, daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.recv() == "serial"
    finally:
        process.join()
        process.close()
        ours.close()
