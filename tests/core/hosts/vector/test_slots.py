"""The same events lead to the same rows and counts as with ``serial``, by a ``VectorEnv``, too.

Either each has two environments, or each has one. Environments that share a ``VectorEnv``
cannot do what concerns one of them alone: agym refuses, or does it to all, as is documented.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import pytest

import agym
from agym.testing import assert_same
from tests.support.drivers import each_mode
from tests.support.envs.walking_envs import RAISES, VectorWalk, Walk

COUNT = 4
ALL = range(COUNT)
TOGETHER = {"backend": "vector", "workers": 2}
APART = {"backend": "vector", "workers": COUNT}


@dataclass
class Run:
    """Environments, and what each call returned.

    Attributes:
        resets: Whether what has ended is reset at once, if nothing else does.
    """

    envs: agym.Envs[Any, Any]
    resets: bool
    rows: list[Any] = field(default_factory=list)

    def reset(self, **arguments: Any) -> None:
        self._note(*self.envs.reset(**arguments))

    def step(self, steps: int = 1, raising: Any = (), *, resets: bool = True) -> None:
        for k in range(steps):
            actions = [RAISES if i in raising else (k + i) % 3 for i in ALL]
            observations, rewards, terminated, truncated, infos = self.envs.step(actions)
            self._note(observations, infos, rewards.tolist(), terminated, truncated)
            ended = (terminated | truncated).nonzero()[0].tolist()
            if ended and self.resets and resets:
                self.reset(env_ids=ended)

    def restore(self, snapshots: Any, ids: list[int] | None = None) -> None:
        self._note(*self.envs.restore(snapshots, ids))

    def _note(self, observations: Any, infos: Any, *columns: Any) -> None:
        finals = [info.get("final_obs") for info in infos]
        faults = [info.get("fault") for info in infos]
        known = [fault and (fault.kind, fault.operation, fault.episode) for fault in faults]
        self.rows.append([observations, finals, known, *columns])


def hold_still(run: Run) -> None:
    """What has ended is stepped on, and then reset with a seed."""
    run.reset(seed=3, options={"length": 4})
    run.step(7, resets=False)
    run.reset(seed=20)
    run.step(30)


def reset_some(run: Run) -> None:
    run.reset(seed=3)
    for _ in range(3):
        run.step(5)
        run.reset(env_ids=[0, 2])
        run.step(1)
        run.reset(env_ids=[1], seed=[50], options={"length": 5})
    run.step(10)


def restore(run: Run) -> None:
    """From the middle of an episode, from its end, and one into others."""
    run.reset(seed=3, options={"length": 6})
    run.step(4)
    middle = run.envs.snapshot()
    run.step(2)
    end = run.envs.snapshot()
    run.step(10)
    for snapshots in (middle, end, middle):
        run.restore(snapshots)
        run.step(10)
    run.restore(middle[2], [0, 1])
    run.step(10)


def restart(run: Run, ids: Any = ALL) -> None:
    run.reset(seed=3)
    run.step(5)
    assert run.envs.restart([*ids]) == [*ids]
    run.reset(env_ids=[*ids], seed=9)
    run.step(12)


def raise_in(run: Run, raising: Any = ALL) -> None:
    run.reset(seed=3)
    run.step(4)
    run.step(raising=raising, resets=False)
    run.reset(seed=9)
    run.step(12)


EVENTS: dict[str, Callable[[Run], None]] = {
    "held": hold_still,
    "reset of some": reset_some,
    "restore": restore,
    "restart": restart,
    "error": raise_in,
}
ALONE = {
    "restart of one": partial(restart, ids=[1]),
    "error of one": partial(raise_in, raising=[1]),
}


def happen(env: Any, options: dict[str, Any], mode: str, event: Callable[[Run], None]) -> Any:
    """Return the rows of an event, and the counts of each environment."""
    fixed: Any = {"autoreset": mode, "on_fault": "restart", "output": "array"}
    with agym.make(env, COUNT, **options, **fixed) as envs:
        run = Run(envs, mode == "disabled")
        event(run)
        counts = [(env.episodes, env.steps, env.faults) for env in envs.stats().envs]
    return run.rows, counts


@cache
def expected(mode: str, event: Callable[[Run], None]) -> Any:
    return happen(Walk, {"backend": "serial"}, mode, event)


CASES = [(TOGETHER, event) for event in EVENTS] + [(APART, event) for event in EVENTS | ALONE]


@each_mode
@pytest.mark.parametrize(("options", "event"), CASES)
def test_rows_and_counts_are_those_of_serial(
    options: dict[str, Any], event: str, mode: str
) -> None:
    function = (EVENTS | ALONE)[event]
    assert_same(happen(VectorWalk, options, mode, function), expected(mode, function))


@each_mode
def test_one_environment_of_a_vector_env_is_not_restarted(mode: str) -> None:
    """It is refused, and nothing else happens."""

    def refused(run: Run, *, refuses: bool = True) -> None:
        run.reset(seed=3)
        run.step(5)
        if refuses:
            with pytest.raises(agym.UsageError, match="are one VectorEnv: include all of them"):
                run.envs.restart([1])
        run.step(25)

    plain = partial(refused, refuses=False)
    assert_same(happen(VectorWalk, TOGETHER, mode, refused), expected(mode, plain))


@each_mode
def test_an_error_of_one_environment_is_one_of_its_vector_env(mode: str) -> None:
    """A ``VectorEnv`` does not say which of its environments raised."""
    outcome = happen(VectorWalk, TOGETHER, mode, ALONE["error of one"])
    assert_same(outcome, expected(mode, partial(raise_in, raising=[0, 1])))
