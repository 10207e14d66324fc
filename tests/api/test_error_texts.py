"""Mistakes that users make: each error names what, where, and the remedy."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.testing.scripted import ManyArguments
from tests.support.backends import FORK, SERIAL_OR_FORK
from tests.support.drivers import each_setup
from tests.support.envs.faulty_envs import Misfit
from tests.support.envs.plain_envs import Echo, Tally

PROCESS: dict[str, Any] = {"backend": FORK, "workers": 2}

# ---------------------------------------------------------------- results that do not fit

PARTS = spaces.Dict(
    a=spaces.Box(-1, 1, (2,), np.float32),
    b=spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (), np.float32))),
    words=spaces.Text(5),
)
PLAIN = spaces.Box(-1, 1, (2,), np.float32)
A, B = np.zeros(2, np.float32), (1, np.array(0, np.float32))
MISFITS: list[tuple[spaces.Space[Any], Any, str]] = [
    (PARTS, {"a": A, "words": ""}, r"observation\['b'\] is missing"),
    (PARTS, {"a": A, "b": B}, r"observation\['words'\] is missing"),
    (PARTS, {"a": None, "b": B, "words": ""}, r"\['a'\] is None"),
    (PARTS, {"a": A, "b": (None, 0), "words": ""}, r"\['b'\]\[0\] is None where .*int64"),
    (PARTS, {"a": A, "b": (1, None), "words": ""}, r"\['b'\]\[1\] is None where .*float32"),
    (PARTS, {"a": A, "b": None, "words": ""}, r"\['b'\] is None"),
    (PARTS, {"a": A, "b": (1,), "words": ""}, r"\['b'\] has 1 parts"),
    (PARTS, {"a": A[:1], "b": B, "words": ""}, r"\['a'\] has shape \(1,\) where .*shape \(2,\)"),
    (PARTS, {"a": A * 1j, "b": B, "words": ""}, r"\['a'\] has dtype complex"),
    (PARTS, None, "observation is None where .*'a', 'b', 'words'"),
    (PARTS, A, "observation is of type ndarray"),
    (PLAIN, None, r"observation is None where .*float32 of shape \(2,\)"),
    (PLAIN, [[1, 2], [3]], "observation is of type list"),
    (spaces.Discrete(3), None, "observation is None where .*int64"),
]


@each_setup
@pytest.mark.parametrize("wrong", ["dtype", "type", "reward", "four", "info"])
def test_a_step_that_does_not_fit_spoils_no_other(setup: dict[str, Any], wrong: str) -> None:
    with agym.make([Tally, partial(Misfit, wrong), Tally], **setup) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="environment 1"):
            envs.step([1, 9, 1])
        assert [observation[1] for observation in envs.reset(env_ids=[1])[0]] == [1, 0, 1]


@each_setup
def test_an_observation_that_does_not_fit_is_described(setup: dict[str, Any]) -> None:
    for space, wrong, words in MISFITS:
        right = space.sample()
        factories = [partial(Echo, space, [right]), partial(Echo, space, [right, wrong])]
        with agym.make(factories, **setup) as envs:
            envs.reset()
            with pytest.raises(agym.EnvError, match=f"environment 1 returned an .*{words}") as got:
                envs.step([0, 0])
            assert "observation_space" in str(got.value)
            assert isinstance(got.value.exception, ValueError)
        with (
            agym.make(partial(Echo, space, [wrong]), 2, **setup) as envs,
            pytest.raises(agym.EnvError, match=f"environment 1 returned an .*{words}"),
        ):
            envs.reset(env_ids=[1])


@pytest.mark.parametrize("make", [agym.make, agym.AgymVectorEnv, "sb3"])
@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium's classes log errors of environments
def test_a_reward_that_is_no_number_is_described(make: Any) -> None:
    if make == "sb3":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
        make = agym.sb3.AgymVecEnv
    for wrong, words in (("reward", "type str"), ("rewards", r"shape \(2,\)")):
        with closing(make([Tally, partial(Misfit, wrong)], backend="serial")) as envs:
            envs.reset()
            envs.step(np.zeros(2, int))
            words = f"environment 1 returned a reward of {words}, which must be a number.* step 2"
            with pytest.raises(agym.EnvError, match=words) as caught:
                envs.step(np.array([0, 9]))
            assert (caught.value.env_id, caught.value.step) == (1, 2)


# ---------------------------------------------------------------- what cannot be pickled


class Holds(Tally):
    """Has something in its infos."""

    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.thing = thing

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        return *result, {**info, "inner": {"things": [1, self.thing]}} if action else info

    def give(self) -> Any:
        return self.thing


@pytest.mark.parametrize("make", [threading.Lock, partial(ManyArguments, 7, "boom")])
def test_infos_and_values_that_cannot_be_sent_are_named(make: Callable[[], Any]) -> None:
    with agym.make(lambda: Holds(make()), 3, **PROCESS) as envs:
        envs.reset()
        words = r"environment 2 .*info\['inner'\]\['things'\]\[1\] .*backend='thread'.*"
        with pytest.raises(agym.EnvError, match=words) as caught:
            envs.step([0, 0, 1])
        assert "omit it" in str(caught.value)
        result = envs.step([0, 0, 0])
        assert [observation[1] for observation in result.observations] == [2, 2, 2]
        assert [info["now"] for info in result.infos] == [2, 2, 2]
        with pytest.raises(agym.EnvError, match=r"environment 2 .*the returned value"):
            envs[2].call("give")
        for give in (partial(envs.call, "give"), lambda: envs.thing):
            with pytest.raises(agym.AgymErrorGroup, match="the returned value") as group:
                give()
            assert group.value.env_ids == (0, 1, 2)
        envs.step([0, 0, 0])
    factories = [Tally, Tally, lambda: Holds(make())]
    match = "2.*(the returned value|no attribute)"
    with agym.make(factories, **PROCESS) as envs, pytest.raises(Exception, match=match):
        _ = envs.thing


def test_what_need_not_be_sent_may_be_anything() -> None:
    lock = threading.Lock()
    with agym.make([Tally, lambda: Holds(lock)], backend="serial") as envs:
        envs.reset()
        assert envs.step([1, 1]).infos[1]["inner"]["things"][1] is lock
        assert envs[1].call("give") is lock


def test_factories_and_arguments_that_cannot_be_sent_are_named() -> None:
    lock = threading.Lock()
    space = spaces.Tuple((spaces.Discrete(3), spaces.Sequence(spaces.Discrete(3))))
    calls: dict[str, Callable[[Any], Any]] = {
        r"the options of reset\b": lambda envs: envs.reset(options={"lock": lock}),
        r"the arguments of call\('get_wrapper_attr'\)": lambda envs: envs.get_wrapper_attr(lock),
        "the value of 'ends' for environment 1": lambda envs: envs.set_attr("ends", [1, lock, 1]),
        "the action of environment 2": lambda envs: envs.step([(1, (1,))] * 2 + [(1, (lock,))]),
    }
    with agym.make(partial(Echo, spaces.Discrete(2), [0], space), 3, **PROCESS) as envs:
        envs.reset()
        for words, call in calls.items():
            with pytest.raises(agym.UsageError, match=f"{words} can't be pickled: .*'thread'"):
                call(envs)
        with pytest.raises(agym.UsageError, match="can't be pickled"):
            envs.ends = lock
        assert envs.ends == [False] * 3
        assert envs.what_was_received() == [[], [], []]
    words = r"the factory of environment 1 can't be pickled: .*_thread\.lock"
    with pytest.raises(agym.UsageError, match=words) as caught:
        agym.make([Tally, lambda: Holds(lock), Tally], backend="process", workers=2)
    assert "Create it in the factory" in str(caught.value)
    assert "backend='thread'" in str(caught.value)


# ---------------------------------------------------------------- factories


async def makes_later(num_envs: int = 1) -> Tally:
    return Tally()


class Parallel:
    """Has the API of PettingZoo's ``ParallelEnv``: a space for each agent."""

    reset = step = close = observation_space = action_space = lambda *args, **keywords: None


class Turns:
    """Has the API of PettingZoo's ``AECEnv`` in its older form: dicts of spaces."""

    possible_agents = ("left", "right")
    reset = step = close = last = lambda *args, **keywords: None


FACTORIES: dict[str, tuple[Any, str]] = {
    "none": (lambda num_envs=1: None, r"returned None.*return"),
    "async": (makes_later, r"is `async def`.*plain function"),
    "partial of async": (partial(makes_later), r"is `async def`"),
    "class": (lambda: Tally, r"returned the class Tally.*Tally\(\)"),
    "id": (lambda: "CartPole-v1", r"returned str.*gymnasium\.Env"),
    "space": (lambda: spaces.Discrete(2), r"returned Discrete.*gymnasium\.Env"),
    "pettingzoo": (Parallel, r"returned Parallel, .*PettingZoo's API.*make_parallel"),
    "pettingzoo in turns": (Turns, r"returned Turns, .*PettingZoo's API.*make_aec"),
}


@pytest.mark.parametrize("backend", ["thread", "auto", *SERIAL_OR_FORK])
@pytest.mark.parametrize("case", FACTORIES)
def test_a_factory_that_makes_no_environment_is_described(case: str, backend: Any) -> None:
    factory, words = FACTORIES[case]
    with pytest.raises(agym.UsageError, match=f"environment [01]: its factory {words}"):
        agym.make([factory, factory], backend=backend)
    with pytest.raises(agym.UsageError, match=f"environment 1: its factory {words}"):
        agym.AgymVectorEnv([Tally, factory], backend=backend)
    with pytest.raises(agym.UsageError, match=f"environment 0: its factory {words}"):
        agym.make_vec(factory, 1, backend=backend)


@pytest.mark.once
@pytest.mark.parametrize("case", FACTORIES)
async def test_other_functions_describe_such_a_factory_too(case: str) -> None:
    factory, words = FACTORIES[case]
    for backend in ("auto", "asyncio"):
        with pytest.raises(agym.UsageError, match=f"environment 0: its factory {words}"):
            async with agym.make_async(factory, 2, backend=backend):
                pass
    with pytest.raises(agym.UsageError, match=f"its factory {words}"):
        agym.plan(factory, 2)
    if case in ("none", "async"):
        with pytest.raises(agym.UsageError, match=f"its factory {words}"):
            agym.make(factory, 2, backend="vector")


@pytest.mark.parametrize("n_envs", [1, 2])
def test_pettingzoo_is_described_under_stable_baselines3(n_envs: int) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    factory: Any = Parallel
    with pytest.raises(agym.UsageError, match=r"environment 0: .* Parallel, .*PettingZoo's API"):
        agym.sb3.make_vec_env(factory, n_envs)


# ---------------------------------------------------------------- await


async def test_results_that_were_not_awaited() -> None:
    async with agym.make_async(Tally, 2, backend="serial") as envs:
        pending = envs.reset()
        for use in (lambda: [*pending], lambda: pending[0]):
            with pytest.raises(agym.UsageTypeError, match=r"reset was not awaited.*`await "):
                use()
        with pytest.raises(AttributeError, match=r"no attribute 'observations'.*not awaited"):
            _ = pending.observations  # type: ignore[attr-defined]
        assert not hasattr(pending, "cr_frame")
        await pending
        with pytest.raises(agym.UsageTypeError, match=r"step was not awaited"):
            _, _ = envs.step([0, 0])  # type: ignore[misc]
        assert await asyncio.gather(envs[0].render(), envs[1].render()) == ["1:1", "1:1"]


def test_with_for_async_with() -> None:
    envs: Any = agym.make_async(Tally, 2, backend="serial")
    words = r"agym\.make_async.*`async with`.*agym\.make\("
    with pytest.raises(agym.UsageTypeError, match=words), envs:
        pass
    with pytest.raises(AttributeError, match=r"'action_space' yet: .*not open yet"):
        _ = envs.action_space
    assert not hasattr(envs, "nothing")


@each_setup
async def test_async_with_for_with(setup: dict[str, Any]) -> None:
    with agym.make(Tally, 2, **setup) as made:
        envs: Any = made
        words = r"without `await`.*agym\.make_async"
        with pytest.raises(agym.UsageTypeError, match=f"{words}|`with`"):
            async with envs:
                pass
        with pytest.raises(agym.UsageTypeError, match=words):
            await envs
        already = r"result is complete; remove `await`.*agym\.make_async"
        for method, arguments in (("reset", []), ("step", [[0, 0]]), ("recv", [2])):
            if method == "recv":
                envs.send([0, 0])
            with pytest.raises(TypeError, match=already):
                await getattr(envs, method)(*arguments)


async def test_rollouts_of_what_cannot_be_awaited() -> None:
    unopened: Any = agym.make_async(Tally, 2, backend="serial")
    with (
        agym.make(Tally, 2, backend="serial", output="array", autoreset="next_step") as envs,
        closing(agym.make_vec(Tally, 2, backend="serial")) as vector,
    ):
        for wrong, error, words in (
            (envs, agym.UsageTypeError, r"agym\.make_async.* Envs"),
            (vector, agym.UsageTypeError, r"agym\.make_async.* AgymVectorEnv"),
            (unopened, agym.ClosedError, "not open yet"),
        ):
            with pytest.raises(error, match=words):
                async for _ in agym.rollout(wrong, lambda o: [0] * len(o), 4):
                    pass


# ---------------------------------------------------------------- event loops


def test_another_event_loop_or_none() -> None:
    trio = pytest.importorskip("trio", reason="no extra: somebody else's event loop")

    async def main() -> None:
        async with agym.make_async(Tally, 2, backend="serial"):
            pass

    with pytest.raises(agym.UsageError, match=r"asyncio.*trio.*agym\.run"):
        trio.run(main)
    with pytest.raises(agym.UsageError, match=r"asyncio.*agym\.run"):
        main().send(None)


async def test_run_needs_a_coroutine_and_no_running_loop() -> None:
    async def main() -> int:
        return 1

    with pytest.raises(agym.UsageError, match=r"running already.*Jupyter.*`await main\(\)`"):
        agym.run(main())
    with pytest.raises(agym.UsageTypeError, match=r"agym\.run\(main\(\)\)"):
        agym.run(main)  # type: ignore[arg-type]
    with pytest.raises(agym.UsageTypeError, match=r"coroutine.* not int"):
        agym.run(5)  # type: ignore[arg-type]
    assert await main() == 1


# ---------------------------------------------------------------- copies, processes


@each_setup
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_environments_are_not_copied(
    duplicate: Callable[[Any], Any], setup: dict[str, Any]
) -> None:
    words = "can't be pickled or copied.*agym.make"
    with (
        agym.make(Tally, 2, **setup) as envs,
        closing(agym.make_vec(Tally, 2, **setup)) as vector,
    ):
        some = [envs, envs.split(2)[1], agym.make_async(Tally, 2, **setup)]
        if duplicate is not copy.copy:  # a handle is no more than a name
            some += [envs[0], vector]
        for one in some:
            with pytest.raises(agym.UsageTypeError, match=words):
                duplicate(one)
        with pytest.raises(agym.UsageTypeError, match=words):
            agym.make([partial(Holds, envs)], backend=FORK)
        envs.reset()


def make_in_a_daemon(queue: SimpleQueue[str], backend: str) -> None:
    try:
        with agym.make(Tally, 2, backend=backend) as envs:
            envs.reset()
        queue.put("made")
    except agym.UsageError as error:
        queue.put(str(error))


def test_processes_in_a_daemonic_process_are_refused() -> None:
    context = multiprocessing.get_context("fork")
    queue: SimpleQueue[str] = context.SimpleQueue()
    told = {}
    for backend in ("process", "thread", "serial"):
        daemon = context.Process(target=make_in_a_daemon, args=(queue, backend), daemon=True)
        daemon.start()
        told[backend] = queue.get()
        daemon.join()
        daemon.close()
    queue.close()
    assert told["thread"] == told["serial"] == "made"
    for words in ("daemonic", "Pool", "backend='thread'", "'serial'", "daemon=False"):
        assert words in told["process"]
