"""Several failures of one call are one exception group, which ``except*`` takes apart."""

from __future__ import annotations

import copy
import pickle
import traceback
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from agym.testing import Script
from tests.support.backends import SERIAL_OR_FORK
from tests.support.drivers import FORKED
from tests.support.envs.faulty_envs import Raises

each_backend = pytest.mark.parametrize("backend", ["thread", *SERIAL_OR_FORK])


def check_group(error: BaseException, ids: tuple[int, ...]) -> None:
    """The exception is the group of the failures of these environments."""
    assert type(error) is agym.AgymErrorGroup
    first, *others = error.exceptions
    assert [each.env_id for each in error.exceptions if isinstance(each, agym.EnvError)] == [*ids]
    assert str(error) == f"{first} (and {len(others)} more failure{'s' * (len(others) > 1)})"
    assert error.env_ids == ids
    shown = "".join(traceback.format_exception(error))
    assert all(str(each) in shown for each in error.exceptions)


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium's own words about each
@each_backend
def test_gymnasium_has_what_the_last_environment_raised(backend: Any) -> None:
    factories = [partial(Raises, "step", kind) for kind in ("plain", "eof", "stop-iteration")]
    with closing(agym.AgymVectorEnv(factories, backend=backend)) as envs:
        envs.reset()
        with pytest.raises(EOFError, match="boom") as caught:
            envs.step(np.array([9, 9, 0]))
        assert caught.value.__cause__ is not None
        check_group(caught.value.__cause__, (0, 1))
        envs.reset()


@each_backend
def test_stable_baselines3_raises_the_group(backend: Any) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    with closing(agym.sb3.AgymVecEnv([partial(Raises, "step")] * 4, backend=backend)) as envs:
        envs.reset()
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step(np.array([9, 0, 9, 9]))
        check_group(caught.value, (0, 2, 3))


@pytest.fixture
def mixed(script: Script) -> agym.AgymErrorGroup:
    """The error of a step in which a worker died, and environments of another raised."""
    with agym.make(script.factories(4), **FORKED, workers=2) as envs:
        envs.reset()
        for i, act in enumerate(["raise", "raise", "exit"]):
            script.set(i, "step", act)
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step([0, 0, 0, 0])
        return caught.value


def test_failures_of_several_kinds_are_taken_apart_by_except_star(
    mixed: agym.AgymErrorGroup,
) -> None:
    assert sorted(mixed.env_ids) == [0, 1, 2, 3]
    caught: dict[str, Any] = {}
    try:
        raise mixed
    except* agym.EnvError as group:
        caught["raised"] = group
    except* agym.WorkerDied as group:
        caught["died"] = group
    check_group(caught["raised"], (0, 1))
    (died,) = caught["died"].exceptions
    assert died.env_ids == caught["died"].env_ids == (2, 3)
    assert str(caught["died"]) == str(died)


def test_a_part_of_a_group_is_a_group(mixed: Any) -> None:
    raised, others = mixed.split(agym.EnvError)
    check_group(raised, (0, 1))
    assert others.env_ids == (2, 3)
    assert raised.__traceback__ is mixed.__traceback__
    assert mixed.subgroup(agym.AgymError) is mixed
    assert mixed.subgroup(KeyError) is None
    foreign = mixed.derive([*mixed.exceptions, KeyError("foreign")])
    assert type(foreign) is ExceptionGroup
    outer: Any = ExceptionGroup("errors in a TaskGroup", [mixed, KeyError("other")])
    _, not_ours = outer.split(agym.AgymError)
    assert [type(each) for each in not_ours.exceptions] == [KeyError]
    (group,) = outer.subgroup(agym.WorkerDied).exceptions
    assert [type(each) for each in group.exceptions] == [agym.WorkerDied]


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_a_group_survives_a_pickle(again: Any, mixed: agym.AgymErrorGroup) -> None:
    mixed.add_note("a note")
    other = again(mixed)
    assert type(other) is type(mixed)
    assert str(other) == str(mixed)
    assert other.env_ids == mixed.env_ids
    assert other.__notes__ == ["a note"]
    assert [type(each) for each in other.exceptions] == [type(each) for each in mixed.exceptions]
    check_group(again(mixed.subgroup(agym.EnvError)), (0, 1))


@pytest.mark.full
def test_environments_that_are_given_up_at_once() -> None:
    policy = agym.FaultPolicy("restart", max_restarts=0)
    with agym.make(partial(Raises, "step"), 3, on_fault=policy) as envs:
        envs.reset()
        with pytest.raises(agym.AgymErrorGroup) as caught:
            envs.step([9, 0, 9])
        assert [type(each) for each in caught.value.exceptions] == [agym.CrashLoopError] * 2
        assert caught.value.env_ids == (0, 2)
