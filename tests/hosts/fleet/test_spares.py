"""Spares: environments that were reset ahead take the place of those whose episode ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from agym.backends import Process
from tests.support.backends import FORK
from tests.support.envs.fleet_envs import (
    AsyncDrawn,
    AsyncLastFails,
    Drawn,
    LastFails,
    Numbered,
    fail,
)
from tests.support.patience import deadline, patience

SETUPS = [
    pytest.param(Drawn, {"backend": "serial"}, id="serial"),
    pytest.param(Drawn, {"backend": "thread", "workers": 2}, id="thread"),
    pytest.param(Drawn, {"backend": FORK, "workers": 2}, id="process"),
    pytest.param(AsyncDrawn, {"backend": "asyncio"}, id="asyncio"),
    pytest.param(AsyncDrawn, {"backend": FORK, "workers": 2}, id="process-coroutines"),
]
everywhere = pytest.mark.parametrize(("env", "options"), SETUPS)
FAILING = {Drawn: LastFails, AsyncDrawn: AsyncLastFails}
NUM_ENVS = 5


def play(
    env: Any, options: dict[str, Any], spares: int, mode: Any = "next_step", steps: int = 40
) -> tuple[list[Any], agym.FleetStats]:
    """All that environments gave, and what is counted of the spares."""
    fleet = agym.Fleet(spares=spares)
    with agym.make(env, NUM_ENVS, autoreset=mode, output="array", fleet=fleet, **options) as envs:
        given: list[Any] = [envs.reset(seed=7)[0]]
        for _ in range(steps):
            result = envs.step([0] * NUM_ENVS)
            given += [result.observations, result.rewards, result.terminated]
            over = np.flatnonzero(result.terminated)
            if mode == "disabled" and len(over):
                given.append(envs.reset(env_ids=over.tolist())[0])
        return given, envs.stats().fleet


def step_often(envs: agym.Envs, *, reset: bool = False) -> None:
    if reset:
        envs.reset(seed=0)
    for _ in range(50):
        envs.step([0] * len(envs))


@everywhere
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_run_depends_on_its_seed_alone(env: Any, options: dict[str, Any], mode: str) -> None:
    """Not on the backend, the workers, the number of spares, or which of them was ready first."""
    expected, _ = play(Drawn, {"backend": "serial"}, 1, mode)
    slow = partial(env, delay=0.004)
    for spares in (1, NUM_ENVS):
        given, counts = play(slow, options, spares, mode)
        assert all(np.array_equal(a, b) for a, b in zip(given, expected, strict=True))
        assert counts.spares_used + counts.spares_late > 0


@everywhere
def test_whom_a_caller_waits_for_changes_no_environment(env: Any, options: dict[str, Any]) -> None:
    """What one environment gives is the same if others are stepped in another order."""
    fleet = agym.Fleet(spares=2)
    slow = partial(env, delay=0.002)
    runs = []
    for least in (1, NUM_ENVS):
        with agym.make(
            slow, NUM_ENVS, autoreset="next_step", output="array", fleet=fleet, **options
        ) as envs:
            envs.reset(seed=1)
            envs.send([0] * NUM_ENVS)
            given: list[list[Any]] = [[] for _ in range(NUM_ENVS)]
            while any(len(rows) < 20 for rows in given):
                batch = envs.recv(min_envs=least)
                for i, row in zip(batch.env_ids, batch.observations, strict=True):
                    given[i].append(row.tolist())
                envs.send([0] * len(batch.env_ids), batch.env_ids)
            runs.append([rows[:20] for rows in given])
    assert runs[0] == runs[1]


@everywhere
def test_each_end_is_counted_once(env: Any, options: dict[str, Any]) -> None:
    given, counts = play(env, options, 2)
    ends = sum(int(flags[: len(flags)].sum()) for flags in given[3:-3:3])  # but the last step's
    begun = counts.spares_used + counts.spares_late + counts.spares_missed
    assert begun == ends + NUM_ENVS  # with the first reset, for which none is ready


def test_an_ended_environment_is_the_next_spare() -> None:
    """There are never more than the spares and the environments themselves."""
    fleet = agym.Fleet(spares=2)
    with agym.make(
        Numbered(Drawn), 3, backend="serial", autoreset="next_step", fleet=fleet
    ) as envs:
        envs.reset(seed=0)
        numbers = set()
        for _ in range(60):
            infos = envs.step([0] * 3).infos
            numbers |= {info["number"] for info in infos if "number" in info}
    assert numbers == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("env", "options"), [SETUPS[0], SETUPS[1], SETUPS[3]])
def test_each_spare_is_reset_again_without_waiting_for_a_step(
    env: Any, options: dict[str, Any]
) -> None:
    """All episodes end in the same step; all spares are reset before the next one."""
    resets = threading.Semaphore(0)

    class Counted(env):  # type: ignore[misc]
        def reset(self, **keywords: Any) -> Any:
            resets.release()
            return super().reset(**keywords)

    def come(count: int) -> None:
        assert all(resets.acquire(timeout=patience()) for _ in range(count))

    fleet = agym.Fleet(spares=4)
    options = {**options, "workers": None, "autoreset": "same_step"}
    with agym.make(Counted, 4, fleet=fleet, **options) as envs:
        envs.reset(seed=0)
        come(4 + 4)
        ends = 0
        for _ in range(10):
            ended = int(np.sum(envs.step([0] * 4).terminated))
            come(ended)
            ends += ended
        assert ends
        assert envs.stats().fleet.spares_missed == 4


@everywhere
def test_spares_have_the_options_of_the_last_reset(env: Any, options: dict[str, Any]) -> None:
    fleet = agym.Fleet(spares=3)
    with agym.make(env, 2, autoreset="next_step", fleet=fleet, **options) as envs:
        for seed, level in ((0, 1), (1, 2)):
            envs.reset(seed=seed, options={"level": level})
            infos = [info for _ in range(20) for info in envs.step([0] * 2).infos]
            begun = [info for info in infos if "number" in info]
            assert begun
            assert all(info["options"] == {"level": level} for info in begun)
            assert all(info["seed"] is not None for info in begun)


def test_without_a_seed_any_spare_serves_any_environment() -> None:
    fleet = agym.Fleet(spares=1)
    with agym.make(Drawn, 3, backend="serial", autoreset="next_step", fleet=fleet) as envs:
        envs.reset()
        infos = [info for _ in range(30) for info in envs.step([0] * 3).infos]
        assert {info["seed"] for info in infos if "seed" in info} == {None}
        counts = envs.stats().fleet
    assert counts.spares_used + counts.spares_late > 0


def test_other_factories_have_other_spares() -> None:
    """An environment is replaced by one of its own factory only."""
    factories = [Numbered(Drawn), partial(Drawn, 50), partial(Drawn, 60)]
    fleet = agym.Fleet(spares=3)
    with agym.make(factories, backend="serial", autoreset="next_step", fleet=fleet) as envs:
        envs.reset(seed=0)
        for _ in range(30):
            for i, info in enumerate(envs.step([0] * 3).infos):
                if "number" in info:
                    assert info["number"] in ([1, 2], [50], [60])[i]


# ---------------------------------------------------------------- faults


@everywhere
@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_spare_that_fails_is_no_fault(env: Any, options: dict[str, Any], how: str) -> None:
    """The environment is reset as without spares, and the run is the same."""
    expected, _ = play(Drawn, {"backend": "serial"}, 1)
    factory = Numbered(FAILING[env], good=NUM_ENVS + 1, how=how)
    given, counts = play(factory, options, NUM_ENVS * 2)
    assert all(np.array_equal(a, b) for a, b in zip(given, expected, strict=True))
    assert counts.spares_missed > 0


@everywhere
def test_a_reset_that_fails_too_is_an_error_by_name(env: Any, options: dict[str, Any]) -> None:
    class Once(env):  # type: ignore[misc]
        resets = 0

        def reset(self, **keywords: Any) -> Any:
            self.resets += 1
            if self.resets > 1 or self.number > 3:
                raise ValueError("boom")
            return super().reset(**keywords)

    fleet = agym.Fleet(spares=1)
    with agym.make(Numbered(Once), 2, autoreset="next_step", fleet=fleet, **options) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.EnvError, match=r"environment \d.*reset"):
            step_often(envs)


coroutines = pytest.mark.parametrize(("env", "options"), SETUPS[3:])


@coroutines
def test_a_spare_that_hangs_is_a_missed_deadline_of_who_needs_it(
    env: Any, options: dict[str, Any]
) -> None:
    fleet = agym.Fleet(spares=1)
    factory = Numbered(AsyncLastFails, good=1, how="hang")
    with agym.make(
        factory, 1, autoreset="next_step", timeout=deadline(0.3), fleet=fleet,
        **{**options, "workers": None},
    ) as envs:  # fmt: skip
        envs.reset(seed=0)
        with pytest.raises(agym.StepTimeout, match="environment 0"):
            step_often(envs)


@coroutines
def test_closing_ends_resets_that_are_under_way(env: Any, options: dict[str, Any]) -> None:
    """Nothing outlives the test, although each spare hangs in its reset."""
    factory = Numbered(AsyncLastFails, good=NUM_ENVS + 1, how="hang")
    fleet = agym.Fleet(spares=NUM_ENVS)
    with agym.make(factory, NUM_ENVS, fleet=fleet, **options) as envs:
        envs.reset(seed=0)


class Held(Drawn):
    """A spare whose reset waits until the test lets it go on."""

    begun: threading.Event
    go_on: threading.Event

    def reset(self, **keywords: Any) -> Any:
        if self.number > 1:
            self.begun.set()
            assert self.go_on.wait(patience())
        return super().reset(**keywords)


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_closing_waits_for_a_reset_in_a_thread(backend: str) -> None:
    class Waits(Held):
        begun = threading.Event()
        go_on = threading.Event()

    envs = agym.make(Numbered(Waits), 1, backend=backend, fleet=agym.Fleet(spares=1))
    envs.reset(seed=0)
    assert Waits.begun.wait(patience())
    closing = threading.Thread(target=envs.close)
    closing.start()
    Waits.go_on.set()
    closing.join(patience())
    assert not closing.is_alive()


@pytest.mark.full
def test_closing_leaves_a_reset_behind_that_hangs() -> None:
    """Its thread ends when it comes back, and closes the spare."""
    closed = threading.Event()

    class Waits(Held):
        begun = threading.Event()
        go_on = threading.Event()

        def close(self) -> None:
            if self.number > 1:
                closed.set()
            super().close()

    with agym.make(Numbered(Waits), 1, backend="serial", fleet=agym.Fleet(spares=1)) as envs:
        envs.reset(seed=0)
        assert Waits.begun.wait(patience())
    assert not closed.is_set()
    Waits.go_on.set()
    assert closed.wait(patience())


def test_an_environment_waits_for_a_spare_that_is_not_ready() -> None:
    class Waits(Held):
        begun = threading.Event()
        go_on = threading.Event()

    fleet = agym.Fleet(spares=1)
    with agym.make(
        Numbered(Waits), 1, backend="thread", autoreset="next_step", fleet=fleet
    ) as envs:
        envs.reset(seed=0)
        assert Waits.begun.wait(patience())
        threading.Timer(0.05, Waits.go_on.set).start()
        for _ in range(6):
            envs.step([0])
        assert envs.stats().fleet.spares_late == 1


def test_a_spare_that_kills_its_worker() -> None:
    """That is the death of a worker, as if the environment's own reset had killed it."""
    factory = Numbered(LastFails, good=4, how="die")
    options: dict[str, Any] = {"backend": FORK, "workers": 1, "autoreset": "next_step"}
    with (
        agym.make(factory, 2, fleet=agym.Fleet(spares=2), **options) as envs,
        pytest.raises(agym.WorkerDied, match="environments 0 to 1"),
    ):
        step_often(envs, reset=True)
    options["on_fault"] = agym.FaultPolicy("restart", max_restarts=2)
    with (
        agym.make(factory, 2, fleet=agym.Fleet(spares=2), **options) as envs,
        pytest.raises(agym.CrashLoopError),
    ):
        step_often(envs, reset=True)


class DiesOnDemand(Drawn):
    """Ends its process in a step with action 1."""

    def step(self, action: Any) -> Any:
        return fail("die") if action == 1 else super().step(action)


def test_a_replay_goes_on_with_the_same_seeds() -> None:
    """Those that shared a worker with one that died go on as if nothing had been."""
    fleet = agym.Fleet(spares=2)
    options: dict[str, Any] = {"autoreset": "next_step", "output": "array", "fleet": fleet}
    runs: list[list[Any]] = []
    for more in ({"backend": "serial"}, {"backend": FORK, "workers": 2, "on_fault": "replay"}):
        with agym.make(DiesOnDemand, NUM_ENVS, **options, **more) as envs:
            given = [envs.reset(seed=7)[0][:-1]]
            for k in range(40):
                dies = k in (9, 22) and more["backend"] is FORK
                result = envs.step([0] * (NUM_ENVS - 1) + [int(dies)])
                given += [result.observations[:-1], result.terminated[:-1], result.truncated[:-1]]
            runs.append(given)
            restarts = sum(worker.restarts for worker in envs.stats().workers)
    assert restarts == 2
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize(("env", "options"), [SETUPS[0], SETUPS[3]])
def test_snapshots_go_on_with_the_same_seeds(env: Any, options: dict[str, Any]) -> None:
    fleet = agym.Fleet(spares=2)
    with agym.make(env, 3, autoreset="next_step", output="array", fleet=fleet, **options) as envs:
        envs.reset(seed=3)
        for _ in range(5):
            envs.step([0] * 3)
        snapshots = envs.snapshot()
        one = [envs.step([0] * 3).observations for _ in range(20)]
        envs.restore(snapshots)
        other = [envs.step([0] * 3).observations for _ in range(20)]
    assert np.array_equal(one, other)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: agym.Fleet(spares=-1), "spares=-1"),
        (lambda: agym.Fleet(spares=1.5), "spares=1.5"),  # type: ignore[arg-type]
        (lambda: agym.make(Drawn, fleet={"spares": 1}), "agym.Fleet"),  # type: ignore[arg-type]
        (
            lambda: agym.make(
                "CartPole-v1", 2, backend=agym.backends.Native(), fleet=agym.Fleet(spares=1)
            ),
            "spares=.*backend='native'.*take",
        ),
        (
            lambda: agym.make(
                Drawn, 2, backend=Process(recycle=agym.Recycle(episodes=2)),
                fleet=agym.Fleet(spares=1),
            ),
            "recycle=.*leave one of them out",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(agym.UsageError, match=text):
        make()
