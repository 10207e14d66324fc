"""Each mistake gets one named error that says which environment, and everything stays usable."""

from __future__ import annotations

import pickle
import threading
import traceback
from functools import partial
from typing import Any

import gymnasium
import gymnasium.error
import pytest
from gymnasium import spaces

import agym
from tests.support.backends import FORK
from tests.support.drivers import APIS, SETUPS, opened
from tests.support.envs.faulty_envs import ABRUPT, EXCEPTIONS, Informs, Misfit, Raises
from tests.support.envs.plain_envs import Echo, Nested, Probe, Tally

PROCESS = {"backend": FORK, "workers": 2}
SOME = ("plain", "unpicklable", "mute")


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


def remote_text(error: BaseException) -> str:
    """The error's message and that of its cause."""
    return f"{error}\n{error.__cause__}"


@pytest.mark.parametrize(
    ("exception", "api"),
    [*((exception, "sync") for exception in EXCEPTIONS), ("plain", "async"), ("mute", "async")],
)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_step_that_raises(setup: dict[str, Any], api: str, exception: str) -> None:
    factories = [Tally, Tally, partial(Raises, "step", exception), Tally]
    factories[1] = factories[3] = factories[0] = partial(Tally, length=99)
    with opened(api, factories, **setup) as envs:
        envs.reset(seed=20)
        envs.step([1, 1, 1, 1])
        with pytest.raises(agym.EnvError) as caught:
            envs.step([1, 2, 9, 4])
        error = caught.value
        assert (error.env_id, error.operation, error.seed) == (2, "step", 22)
        assert (error.episode, error.step) == (1, 2)
        assert error.action == 9
        assert "environment 2 raised in step" in str(error)
        raised = EXCEPTIONS[exception]()
        assert type(raised).__name__ in str(error)
        if exception != "mute":
            assert "boom" in str(error)
        assert error.__cause__ is not None
        assert "_maybe" in "".join(_traceback(error.__cause__)), "where it was raised is not told"
        # The others have stepped, and go on; this one must be reset first.
        with pytest.raises(agym.ResetNeededError, match="environment 2"):
            envs.step([1, 1, 1, 1])
        observations, _ = envs.reset(env_ids=[2])
        assert [list(o)[:2] for o in observations] == [[1, 2], [1, 2], [2, 0], [1, 2]]
        assert [observations[i][2] for i in (0, 1, 3)] == [1, 2, 4]
        after = envs.step([1, 1, 1, 1])
        assert [list(o)[:2] for o in after.observations] == [[1, 3], [1, 3], [2, 1], [1, 3]]


def _traceback(cause: BaseException) -> list[str]:
    return traceback.format_exception(cause)


@pytest.mark.parametrize("exception", EXCEPTIONS)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_reset_that_raises(setup: dict[str, Any], exception: str) -> None:
    with agym.make([Tally, partial(Raises, "reset", exception), Tally], **setup) as envs:
        with pytest.raises(agym.EnvError, match="environment 1 raised in reset") as caught:
            envs.reset(seed=5)
        assert (caught.value.env_id, caught.value.operation) == (1, "reset")
        assert (caught.value.seed, caught.value.episode) == (6, 1)
        with pytest.raises(agym.ResetNeededError, match="environment 1"):
            envs.step([0, 0, 0])
        envs.step([0, 0], env_ids=[0, 2])
        envs.reset(env_ids=[1], options={"well": True})
        assert [o[1] for o in envs.step([0, 0, 0]).observations] == [2, 1, 2]


@pytest.mark.parametrize("exception", ["plain", "falsy"])
@pytest.mark.parametrize("setup", SETUPS)
def test_the_error_has_the_exception_of_the_environment(
    setup: dict[str, Any], exception: str
) -> None:
    with agym.make([Tally, partial(Raises, "reset", exception)], **setup) as envs:
        with pytest.raises(agym.EnvError) as caught:
            envs.reset()
        assert type(caught.value.exception) is type(EXCEPTIONS[exception]())


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("setup", SETUPS)
def test_an_automatic_reset_that_raises(setup: dict[str, Any], mode: Any) -> None:
    factories = [partial(Tally, length=9), partial(Raises, "reset", length=1)]
    with agym.make(factories, autoreset=mode, **setup) as envs:
        envs.reset(env_ids=[0])
        envs.reset(env_ids=[1], options={"well": True})
        envs.set_attr("where", "nowhere")
        envs.reset()
        envs.set_attr("where", "reset")
        if mode == "next_step":
            envs.step([0, 0])
        with pytest.raises(agym.EnvError, match="environment 1") as caught:
            envs.step([0, 0])
        assert caught.value.env_id == 1
        with pytest.raises(agym.ResetNeededError, match="environment 1"):
            envs.step([0, 0])
        envs.set_attr("where", "nowhere")
        envs.reset(env_ids=[1])
        envs.step([0, 0])


@pytest.mark.parametrize("exception", EXCEPTIONS)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_constructor_that_raises(setup: dict[str, Any], exception: str) -> None:
    with pytest.raises(agym.EnvError, match="environment 1 raised in make") as caught:
        agym.make([Tally, partial(Raises, "make", exception), Tally, Tally], **setup)
    assert (caught.value.env_id, caught.value.operation) == (1, "make")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("exception", SOME)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_render_that_raises(setup: dict[str, Any], exception: str) -> None:
    with agym.make([Tally, partial(Raises, "render", exception), Tally], **setup) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="environment 1 raised in render") as caught:
            envs.render()
        assert (caught.value.env_id, caught.value.operation) == (1, "render")
        assert envs.render(env_ids=[0, 2]) == ["1:0", "1:0"]
        assert [o[1] for o in envs.step([0, 0, 0]).observations] == [1, 1, 1]


@pytest.mark.parametrize("exception", SOME)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_close_that_raises(setup: dict[str, Any], api: str, exception: str) -> None:
    with opened(api, [Tally, partial(Raises, "close", exception), Tally], **setup) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="environment 1 raised in close"):
            envs.close()
        with pytest.raises(agym.ClosedError):
            envs.reset()
        envs.close()


@pytest.mark.parametrize("setup", SETUPS)
def test_a_close_that_raises_hides_no_error_of_the_block(setup: dict[str, Any]) -> None:
    with pytest.raises(agym.EnvError, match="raised in close"):
        agym.make(partial(Raises, "close"), **setup).__exit__(None, None, None)
    with pytest.raises(KeyError), agym.make(partial(Raises, "close"), **setup):
        raise KeyError


@pytest.mark.once
@pytest.mark.parametrize(
    ("where", "exception"),
    [(where, "abrupt") for where in ("make", "reset", "step", "render")]
    + [("step", "system-exit"), ("step", "keyboard-interrupt")],
)
def test_what_is_no_exception_ends_no_worker(where: str, exception: str) -> None:
    factories = [partial(Tally, length=99), partial(Raises, where, exception)]
    with pytest.raises(agym.EnvError) as caught:
        _use(factories)
    assert (caught.value.env_id, caught.value.operation) == (1, where)
    assert type(ABRUPT[exception]()).__name__ in str(caught.value)


def _use(factories: list[Any]) -> None:
    with agym.make(factories, **PROCESS) as envs:
        try:
            envs.reset()
            envs.step([0, 9])
            envs.render()
        finally:
            envs.set_attr("where", "nowhere")
            envs.reset()
            envs.step([0, 0])


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


@pytest.mark.parametrize("setup", SETUPS)
def test_several_environments_that_raise_come_as_a_group(setup: dict[str, Any]) -> None:
    with agym.make(partial(Raises, "step"), 4, **setup) as envs:
        envs.reset()
        with pytest.raises(ExceptionGroup, match="step") as caught:
            envs.step([9, 0, 9, 9])
        errors = caught.value.exceptions
        assert {type(error) for error in errors} == {agym.EnvError}
        assert sorted(error.env_id for error in errors) == [0, 2, 3]  # type: ignore[attr-defined]
        with pytest.raises(agym.ResetNeededError, match=r"reset environments \[0, 2, 3\]"):
            envs.step([0, 0, 0, 0])
        envs.reset(env_ids=[0, 2, 3])
        assert [o[1] for o in envs.step([0, 0, 0, 0]).observations] == [1, 2, 1, 1]


@pytest.mark.parametrize("wrong", ["shape", "dtype", "type", "reward", "four", "info"])
@pytest.mark.parametrize("setup", SETUPS)
def test_results_that_fit_no_space(setup: dict[str, Any], wrong: str) -> None:
    with agym.make([Tally, partial(Misfit, wrong), Tally], **setup) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="environment 1") as caught:
            envs.step([1, 9, 1])
        assert caught.value.env_id == 1
        observations, _ = envs.reset(env_ids=[1])
        assert [o[1] for o in observations] == [1, 0, 1]
        assert [o[1] for o in envs.step([1, 1, 1]).observations] == [2, 1, 2]


@pytest.mark.parametrize("setup", SETUPS)
def test_environments_with_other_spaces(setup: dict[str, Any]) -> None:
    for other in (Nested, partial(Echo, Tally().observation_space, [0], spaces.Discrete(3))):
        with pytest.raises((agym.EnvError, agym.UsageError), match="environment 2"):
            agym.make([Tally, Tally, other, Tally], **setup)


@pytest.mark.parametrize("setup", SETUPS)
def test_methods_that_raise(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 2, **setup) as envs:
        envs.reset()
        with pytest.raises(ExceptionGroup) as caught:
            envs.add("text")
        errors = caught.value.exceptions
        assert {type(error) for error in errors} == {agym.EnvError}
        assert {error.operation for error in errors} == {"call"}  # type: ignore[attr-defined]
        assert envs.add(1) == [10.8] * 2
        envs.step([0, 0])


# ---------------------------------------------------------------- what cannot travel


def test_an_answer_that_cannot_be_pickled() -> None:
    with agym.make(Probe, 2, backend=FORK, workers=1) as envs:
        envs.reset()
        with pytest.raises(ExceptionGroup) as caught:
            envs.unpicklable()
        assert [e.env_id for e in caught.value.exceptions] == [0, 1]  # type: ignore[attr-defined]
        assert envs.add(1) == [10.8] * 2
        envs.step([0, 0])


@pytest.mark.parametrize("bad", ["unpicklable", "many-arguments"])
def test_an_info_that_cannot_travel(bad: str) -> None:
    factories = [partial(Informs, infos) for infos in ([{"a": 1}], [{"b": 1}, bad, {"c": 1}])]
    with agym.make(factories, backend=FORK, workers=1) as envs:
        envs.reset()
        assert envs.step([0, 0]).infos == [{"a": 1}, {"b": 1}]
        with pytest.raises(agym.EnvError, match="environment 1") as caught:
            envs.step([0, 0])
        assert caught.value.env_id == 1
        # Its step was taken all the same, and so was the other's.
        result = envs.step([0, 0])
        assert result.infos == [{"a": 1}, {"c": 1}]
        assert [o[1] for o in result.observations] == [3, 3]


def test_such_an_info_is_fine_where_it_need_not_travel() -> None:
    with agym.make(partial(Informs, ["unpicklable"]), 2) as envs:
        envs.reset()
        assert [info.keys() for info in envs.step([0, 0]).infos] == [{"function"}] * 2


def test_a_call_that_cannot_be_sent() -> None:
    with agym.make(Tally, 2, **PROCESS) as envs:
        envs.reset()
        with pytest.raises(Exception, match="pickle"):
            envs.remember(x for x in "not to be pickled")
        assert envs.remember("fine") == ["", ""]
        envs.step([0, 0])


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


def test_a_factory_that_cannot_be_sent() -> None:
    lock = threading.Lock()
    with pytest.raises(Exception, match="pickle"):
        agym.make([Tally, lambda: Tally(lock)], **PROCESS)  # type: ignore[arg-type]
    with agym.make([Tally, lambda: Tally(lock)]) as envs:  # type: ignore[arg-type]
        assert envs.length[1] is lock
