"""The same events lead to the same rows and counts, whichever kind of host runs the environments.

``serial`` is the oracle. A ``VectorEnv`` of several environments cannot do what concerns one of
them alone: it refuses, or does it to all, as is documented.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.core.hosts.async_env import AnySpace
from agym.core.hosts.slot import same_observation
from agym.core.protocol.space_layout import Layout
from tests.support.backends import FORK
from tests.support.drivers import each_mode
from tests.support.envs.walking_envs import RAISES, AsyncWalk, VectorWalk, Walk

COUNT = 4
ALL = range(COUNT)


class Kind(NamedTuple):
    """A kind of host, and what it runs."""

    env: Any
    options: dict[str, Any]

    @property
    def together(self) -> bool:
        """Several environments are one ``VectorEnv``."""
        return self.env is VectorWalk and self.options["workers"] < COUNT


SERIAL = Kind(Walk, {"backend": "serial"})
KINDS = {
    "process": Kind(Walk, {"backend": FORK, "workers": 2}),
    "asyncio": Kind(AsyncWalk, {"backend": "asyncio"}),
    "process-coroutines": Kind(AsyncWalk, {"backend": FORK, "workers": 2}),
    "vector": Kind(VectorWalk, {"backend": "vector", "workers": 1}),
    "vector-apart": Kind(VectorWalk, {"backend": "vector", "workers": COUNT}),
}


class Run:
    """What happens to the environments of one run.

    Attributes:
        rows: What each call returned.
    """

    def __init__(self, envs: agym.Envs[Any, Any], mode: str, *, single: bool) -> None:
        """``single`` says to note what is known of single environments alone."""
        self.envs = envs
        self.mode = mode
        self.single = single
        self.rows: list[Any] = []
        self._number = 0

    def reset(self, **arguments: Any) -> None:
        observations, infos = self.envs.reset(**arguments)
        self.rows.append(["reset", *self._readable(observations, infos)])

    def step(self, steps: int = 1, raising: tuple[int, ...] = ()) -> None:
        """Step, and reset what has ended at once, if nothing else does."""
        for _ in range(steps):
            self._number += 1
            actions = [RAISES if i in raising else (self._number + i) % 3 for i in ALL]
            observations, rewards, terminated, truncated, infos = self.envs.step(actions)
            flags = [[bool(flag) for flag in column] for column in (terminated, truncated)]
            rewards = [float(reward) for reward in rewards]
            self.rows.append(["step", rewards, *flags, *self._readable(observations, infos)])
            ended = [i for i in ALL if flags[0][i] or flags[1][i]]
            if ended and self.mode == "disabled":
                self.reset(env_ids=ended)

    def restore(self, snapshots: Any, ids: list[int] | None = None) -> None:
        self.rows.append(["restore", *self._readable(*self.envs.restore(snapshots, ids))])

    def _readable(self, observations: Any, infos: Any) -> list[Any]:
        finals, statistics = {}, {}
        for i, info in enumerate(infos):
            if "final_obs" in info:
                finals[i] = info["final_obs"].tolist()
            episode = info.get("final_info", info).get("episode")
            if episode is not None:
                statistics[i] = float(episode["r"]), int(episode["l"])
        faults = {
            i: self._describe(info["fault"]) for i, info in enumerate(infos) if "fault" in info
        }
        return [
            [observation.tolist() for observation in observations],
            finals,
            statistics,
            faults,
        ]

    def _describe(self, fault: agym.Fault) -> list[Any]:
        known = [fault.kind, fault.operation, fault.episode]
        return [*known, fault.seed, fault.step, fault.action] if self.single else known


# ---------------------------------------------------------------- events


def play_steps(run: Run) -> None:
    run.reset(seed=3)
    run.step(30)


def hold_still(run: Run) -> None:
    """What has ended is stepped on, and then reset with a seed."""
    run.reset(seed=3, options={"length": 4})
    for _ in range(2):
        mode, run.mode = run.mode, ""
        run.step(7)
        run.mode = mode
        run.reset(seed=20)
        run.step(3)


def reset_all(run: Run) -> None:
    run.reset(seed=3)
    run.step(7)
    run.reset(seed=8, options={"length": 4})
    run.step(12)
    run.reset()
    run.step(12)


def reset_some(run: Run) -> None:
    run.reset(seed=3)
    for _ in range(3):
        run.step(5)
        run.reset(env_ids=[0, 2])
        run.step(1)
        run.reset(env_ids=[1], seed=[50], options={"length": 5})
    run.step(10)


def restore_all(run: Run) -> None:
    run.reset(seed=3, options={"length": 6})
    run.step(4)
    middle = run.envs.snapshot()
    run.step(2)
    end = run.envs.snapshot()
    run.step(10)
    for snapshots in (middle, end, middle):
        run.restore(snapshots)
        run.step(10)


def restore_some(run: Run) -> None:
    run.reset(seed=3)
    run.step(5)
    snapshots = run.envs.snapshot()
    run.step(5)
    run.restore(snapshots[2], [0, 1])
    run.step(10)


def restart_one(run: Run) -> None:
    run.reset(seed=3)
    run.step(5)
    assert run.envs.restart([1]) == [1]
    run.reset(env_ids=[1])
    run.step(12)


def restart_all(run: Run) -> None:
    run.reset(seed=3)
    run.step(5)
    assert run.envs.restart([*ALL]) == [*ALL]
    run.reset(seed=9)
    run.step(12)


def raise_one(run: Run) -> None:
    run.reset(seed=3)
    run.step(4)
    run.step(raising=(1,))
    run.step(12)


def raise_all(run: Run, raising: tuple[int, ...] = (*ALL,)) -> None:
    run.reset(seed=3)
    run.step(4)
    mode, run.mode = run.mode, ""
    run.step(raising=raising)
    run.mode = mode
    run.reset(seed=9)
    run.step(12)


EVENTS: dict[str, Callable[[Run], None]] = {
    "steps": play_steps,
    "held": hold_still,
    "reset": reset_all,
    "reset of some": reset_some,
    "restore": restore_all,
    "restore of some": restore_some,
    "restart": restart_one,
    "restart of all": restart_all,
    "error": raise_one,
    "error of all": raise_all,
}


class Outcome(NamedTuple):
    """What a run returned and counted."""

    rows: list[Any]
    episodes: list[int]
    steps: list[int]
    faults: list[int]


def happen(kind: Kind, mode: str, event: Callable[[Run], None], *, single: bool = False) -> Outcome:
    options = {**kind.options, "autoreset": mode, "on_fault": "restart"}
    with agym.make(kind.env, COUNT, episode_stats=single, **options) as envs:
        run = Run(envs, mode, single=single)
        event(run)
        counted = envs.stats().envs
    return Outcome(
        run.rows,
        [env.episodes for env in counted],
        [env.steps for env in counted],
        [env.faults for env in counted],
    )


@cache
def expected(mode: str, event: str, *, single: bool = False) -> Outcome:
    return happen(SERIAL, mode, EVENTS[event], single=single)


def compare(outcome: Outcome, oracle: Outcome) -> None:
    for k, (row, expected_row) in enumerate(zip(outcome.rows, oracle.rows, strict=True)):
        assert row == expected_row, f"call {k}"
    assert outcome == oracle


# ---------------------------------------------------------------- tests

# What one environment of a VectorEnv of several cannot do alone.
ALONE = ("restart", "error")


def pairs() -> list[Any]:
    return [
        pytest.param(name, event, id=f"{name}-{event}")
        for name, kind in KINDS.items()
        for event in EVENTS
        if not (kind.together and event in ALONE)
    ]


@each_mode
@pytest.mark.parametrize(("kind", "event"), pairs())
def test_rows_and_counts_are_those_of_serial(kind: str, event: str, mode: str) -> None:
    single = KINDS[kind].env is not VectorWalk
    outcome = happen(KINDS[kind], mode, EVENTS[event], single=single)
    compare(outcome, expected(mode, event, single=single))


@each_mode
def test_one_environment_of_a_vector_env_is_not_restarted(mode: str) -> None:
    """It is refused, and nothing else happens."""

    def refused(run: Run) -> None:
        run.reset(seed=3)
        run.step(5)
        with pytest.raises(agym.UsageError, match="are one VectorEnv: include all of them"):
            run.envs.restart([1])
        run.step(25)

    compare(happen(KINDS["vector"], mode, refused), expected(mode, "steps"))


@each_mode
def test_an_error_of_one_environment_is_one_of_its_vector_env(mode: str) -> None:
    """A ``VectorEnv`` does not say which of its environments raised."""
    outcome = happen(KINDS["vector"], mode, partial(raise_all, raising=(1,)))
    compare(outcome, expected(mode, "error of all"))


def test_observations_with_arrays_in_sequences_are_compared() -> None:
    layout = Layout(spaces.Sequence(spaces.Box(0, 1, (2,))))
    arrays = (np.zeros(2, np.float32), np.ones(2, np.float32))
    assert same_observation(layout, arrays, tuple(array.copy() for array in arrays))
    assert not same_observation(layout, arrays, arrays[::-1])


def test_objects_that_only_their_class_can_compare_are_compared() -> None:
    @dataclass
    class Board:
        cells: str

    layout = Layout(AnySpace())
    assert same_observation(layout, Board("x.o"), Board("x.o"))
    assert not same_observation(layout, Board("x.o"), Board("x.x"))
