"""Each mistake gets one named error that says which environment, and everything stays usable."""

from __future__ import annotations

import pickle
import traceback
from functools import partial
from typing import Any

import gymnasium
import gymnasium.error
import pytest
from gymnasium import spaces

import agym
from tests.support.backends import FORK
from tests.support.drivers import each_setup
from tests.support.envs.faulty_envs import ABRUPT, EXCEPTIONS, Raises
from tests.support.envs.plain_envs import Echo, Nested, Tally

PROCESS = {"backend": FORK, "workers": 2}


def test_errors_are_subclasses_of_gymnasiums() -> None:
    for error in (
        agym.BusyError,
        agym.ClosedError,
        agym.EnvError,
        agym.MissingExtraError,
        agym.ResetNeededError,
        agym.StepTimeout,
        agym.UsageError,
        agym.WorkerDied,
    ):
        assert issubclass(error, agym.AgymError)
    assert issubclass(agym.BusyError, gymnasium.error.AlreadyPendingCallError)
    assert issubclass(agym.ClosedError, gymnasium.error.ClosedEnvironmentError)
    assert issubclass(agym.ResetNeededError, gymnasium.error.ResetNeeded)
    assert issubclass(agym.StepTimeout, TimeoutError)
    assert issubclass(agym.UsageError, ValueError)
    assert issubclass(agym.MissingExtraError, ImportError)


@pytest.mark.parametrize(
    "error",
    [
        agym.BusyError("busy"),
        agym.EnvError("raised", env_id=3, operation="step", seed=1, action=2),
        agym.RemoteError("gone", url="http://a", operation="step", code="TIMEOUT", session=3),
        agym.StepTimeout("late", operation="step", env_ids=[1, 2]),
        agym.WorkerDied("died", worker=0, pid=5, exitcode=-9, env_ids=range(2)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_a_pickle(error: agym.AgymError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


# ---------------------------------------------------------------- environments that raise


@pytest.mark.parametrize("exception", ["plain", "falsy", "stop-iteration"])
@pytest.mark.parametrize("where", ["make", "reset", "step", "render"])
@each_setup
def test_an_error_has_the_exception_and_its_traceback(
    setup: dict[str, Any], where: str, exception: str
) -> None:
    """That all kinds of exceptions are reported is a law."""

    def use() -> None:
        with agym.make([Tally, partial(Raises, where, exception)], **setup) as envs:
            envs.reset()
            envs.step([0, 9])
            envs.render()

    with pytest.raises(agym.EnvError, match=f"environment 1 raised in {where}") as caught:
        use()
    error = caught.value
    assert type(error.exception) is type(EXCEPTIONS[exception]())
    assert f"{type(error.exception).__name__}: boom" in str(error)
    assert "_maybe" in "".join(traceback.format_exception(error.__cause__))


@each_setup
def test_a_close_that_raises_hides_no_error_of_the_block(setup: dict[str, Any]) -> None:
    with pytest.raises(agym.EnvError, match="raised in close"):
        agym.make(partial(Raises, "close"), **setup).__exit__(None, None, None)
    with pytest.raises(KeyError), agym.make(partial(Raises, "close"), **setup):
        raise KeyError


@pytest.mark.parametrize("exception", ABRUPT)
def test_what_is_no_exception_gets_through_in_the_callers_thread(exception: str) -> None:
    """Ctrl-C inside a serial step is the caller's own; everything is usable after a reset."""
    factories = [partial(Tally, length=99), partial(Raises, "step", exception), partial(Tally, 99)]
    with agym.make(factories) as envs:
        envs.reset()
        with pytest.raises(type(ABRUPT[exception]())):
            envs.step([0, 9, 0])
        with pytest.raises(agym.ResetNeededError, match="interrupted"):
            envs.step([0, 0, 0])
        envs.reset()
        assert [o[1] for o in envs.step([0, 0, 0]).observations] == [1, 1, 1]


def test_nothing_is_left_of_an_interrupted_step() -> None:
    factories = [partial(Raises, "step"), partial(Raises, "step", "keyboard-interrupt")]
    with agym.make(factories) as envs:
        envs.reset()
        with pytest.raises(KeyboardInterrupt):
            envs.step([9, 9])
        _, infos = envs.reset()
        assert [info["seed"] for info in infos] == [None, None]


@each_setup
def test_environments_with_other_spaces(setup: dict[str, Any]) -> None:
    for other in (Nested, partial(Echo, Tally().observation_space, [0], spaces.Discrete(3))):
        with pytest.raises((agym.EnvError, agym.UsageError), match="environment 2"):
            agym.make([Tally, Tally, other, Tally], **setup)


# ---------------------------------------------------------------- what cannot travel


class Unreadable:
    """A factory that pickles, and cannot be unpickled."""

    def __call__(self) -> Tally:
        return Tally()

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise LookupError("this cannot be read here")


def test_a_factory_that_cannot_be_read_by_its_worker() -> None:
    with pytest.raises(agym.AgymError, match="cannot be read here") as caught:
        agym.make([Tally, Unreadable()], **PROCESS)
    assert caught.value.env_id == 1  # type: ignore[attr-defined]
