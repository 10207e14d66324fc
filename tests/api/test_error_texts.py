"""Mistakes that users make: each error names what, where, and the remedy."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agym
from tests.support.backends import FORK, SERIAL_OR_FORK
from tests.support.envs.coroutine_envs import Parrot
from tests.support.envs.faulty_envs import ManyArguments
from tests.support.envs.plain_envs import Echo, Tally

SETUPS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    "process": {"backend": FORK, "workers": 2},
}
everywhere = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
PROCESS = SETUPS["process"]

# ---------------------------------------------------------------- observations

PARTS = spaces.Dict(
    {
        "a": spaces.Box(-1, 1, (2,), np.float32),
        "b": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (), np.float32))),
        "words": spaces.Text(5),
    }
)
A, B = np.zeros(2, np.float32), (1, np.array(0, np.float32))
PLAIN = spaces.Box(-1, 1, (2,), np.float32)
MISFITS: dict[str, tuple[spaces.Space[Any], Any, str]] = {
    "no key": (PARTS, {"a": A, "words": ""}, r"observation\['b'\] is missing"),
    "no text": (PARTS, {"a": A, "b": B}, r"observation\['words'\] is missing"),
    "no array": (PARTS, {"a": None, "b": B, "words": ""}, r"observation\['a'\] is None"),
    "no number": (
        PARTS,
        {"a": A, "b": (None, B[1]), "words": ""},
        r"observation\['b'\]\[0\] is None where .*int64",
    ),
    "no scalar": (
        PARTS,
        {"a": A, "b": (1, None), "words": ""},
        r"observation\['b'\]\[1\] is None where .*float32",
    ),
    "no tuple": (PARTS, {"a": A, "b": None, "words": ""}, r"observation\['b'\] is None"),
    "too short": (PARTS, {"a": A, "b": (1,), "words": ""}, r"observation\['b'\] has 1 parts"),
    "nothing": (PARTS, None, "observation is None where .*'a', 'b', 'words'"),
    "no dict": (PARTS, A, "observation is of type ndarray"),
    "shape": (
        PARTS,
        {"a": np.zeros(3, np.float32), "b": B, "words": ""},
        r"observation\['a'\] has shape \(3,\) where .*float32 of shape \(2,\)",
    ),
    "dtype": (
        PARTS,
        {"a": A.astype(complex), "b": B, "words": ""},
        r"observation\['a'\] has dtype complex128",
    ),
    "plain nothing": (PLAIN, None, r"observation is None where .*float32 of shape \(2,\)"),
    "plain ragged": (PLAIN, [[1, 2], [3]], "observation is of type list"),
    "plain number": (spaces.Discrete(3), None, "observation is None where .*int64"),
}


@everywhere
@pytest.mark.parametrize("case", MISFITS)
def test_observations_that_do_not_fit(case: str, setup: dict[str, Any]) -> None:
    space, wrong, words = MISFITS[case]
    right = space.sample()
    factories = [partial(Echo, space, [right]), partial(Echo, space, [right, wrong])]
    with agym.make(factories, **setup) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match=f"environment 1 returned an .*{words}") as got:
            envs.step([0, 0])
        assert "observation_space" in str(got.value)
        assert isinstance(got.value.exception, ValueError)
        envs.reset()
    with (
        agym.make(partial(Echo, space, [wrong]), 2, **setup) as envs,
        pytest.raises(agym.EnvError, match=f"environment 1 returned an .*{words}"),
    ):
        envs.reset(env_ids=[1])


async def test_observations_of_coroutine_environments_that_do_not_fit() -> None:
    async with agym.make_async(partial(Forgets, PARTS), 2, backend="asyncio") as envs:
        with pytest.raises(agym.EnvError, match=r"environment 1 .*\['a'\] is missing"):
            await envs.reset(env_ids=[1])


@everywhere
@pytest.mark.parametrize("make", [agym.make, agym.make_vec, agym.AgymVectorEnv, "sb3"])
@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium's classes log errors of environments
def test_rewards_that_are_no_numbers(make: Any, setup: dict[str, Any]) -> None:
    if make == "sb3":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
        make = agym.sb3.AgymVecEnv
    factories = [partial(Rewards, 1.0)] * 3 + [partial(Rewards, np.ones(2, np.float32))]
    envs = make(factories, **setup)
    try:
        envs.reset()
        envs.step(np.zeros(4, int))
        words = (
            r"environment 3 returned a reward of shape \(2,\), which must be a number.* step 2\)"
        )
        with pytest.raises(agym.EnvError, match=words) as caught:
            envs.step(np.ones(4, int))
        assert (caught.value.env_id, caught.value.step) == (3, 2)
    finally:
        envs.close()


class Rewards(Tally):
    """Gives a certain reward for the action 1."""

    def __init__(self, reward: Any) -> None:
        super().__init__()
        self._reward = reward

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, self._reward if action else reward, *rest


async def test_rewards_of_coroutine_environments_that_are_no_numbers() -> None:
    async with agym.make_async(RewardsAll, 2, backend="asyncio") as envs:
        await envs.reset()
        words = r"environment 0 returned a reward of type dict.* step 1\)"
        with pytest.raises(agym.EnvError, match=words):
            await envs[0].step("")


class RewardsAll(Parrot):
    """Gives each of its agents a reward."""

    async def step(self, action: str) -> Any:
        return action, {"left": 1.0, "right": 0.0}, False, False, {}


class Forgets(Parrot):
    """Does not say what its space promises."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.observation_space = space

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"b": B, "words": ""}, {}


# ---------------------------------------------------------------- what cannot be pickled


class HoldsLock(Tally):
    """Tells of a thing that is nobody else's."""

    def __init__(self, thing: Any = None) -> None:
        super().__init__()
        self.thing = thing or threading.Lock()

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        if action:
            info["inner"] = {"things": [1, self.thing]}
        return *result, info

    def give(self) -> Any:
        return self.thing


def of_many_arguments() -> HoldsLock:
    return HoldsLock(ManyArguments(7, "boom", "here"))


@pytest.mark.parametrize("factory", [HoldsLock, of_many_arguments])
def test_infos_that_cannot_be_sent(factory: Callable[[], Any]) -> None:
    with agym.make([Tally, Tally, factory], **PROCESS) as envs:
        envs.reset()
        words = r"environment 2 .*info\['inner'\]\['things'\]\[1\] .*backend='thread'"
        with pytest.raises(agym.EnvError, match=words) as caught:
            envs.step([0, 0, 1])
        assert "omit it" in str(caught.value)
        envs.reset(env_ids=[2])
        envs.step([0, 0, 0])
        for give in (partial(envs[2].call, "give"), lambda: envs.thing):
            with pytest.raises(Exception, match=r"2.*(the returned value|no attribute)"):
                give()


@pytest.mark.parametrize("setup", [SETUPS["serial"], SETUPS["thread"]], ids=["serial", "thread"])
def test_infos_that_need_not_be_sent(setup: dict[str, Any]) -> None:
    with agym.make([Tally, HoldsLock], **setup) as envs:
        envs.reset()
        assert envs.step([0, 1]).infos[1]["inner"]["things"][1] is envs[1].call("give")


def test_factories_that_cannot_be_sent() -> None:
    lock = threading.Lock()
    with pytest.raises(
        agym.UsageError, match=r"the factory of environment 1 can't be pickled: .*_thread\.lock"
    ) as caught:
        agym.make([Tally, lambda: HoldsLock(lock), Tally], backend="process", workers=2)
    assert "Create it in the factory" in str(caught.value)
    assert "backend='thread'" in str(caught.value)


def test_arguments_that_cannot_be_sent() -> None:
    lock = threading.Lock()
    with agym.make(Tally, 2, **PROCESS) as envs:
        mistakes: dict[str, Callable[[], Any]] = {
            r"the options of reset\b": lambda: envs.reset(options={"lock": lock}),
            r"the arguments of call\('remember'\)": lambda: envs.remember(lock),
            "the value of 'gravity' for environment 1": lambda: envs.set_attr("gravity", [1, lock]),
        }
        for words, mistake in mistakes.items():
            with pytest.raises(agym.UsageError, match=f"{words} can't be pickled: .*'thread'"):
                mistake()
        assert envs.gravity == [9.8, 9.8]
    space = spaces.Tuple((spaces.Discrete(3), spaces.Sequence(spaces.Discrete(3))))
    with agym.make(partial(Echo, spaces.Discrete(2), [0], space), 3, **PROCESS) as envs:
        envs.reset()
        with pytest.raises(agym.UsageError, match="the action of environment 2 can't be pickled"):
            envs.step([(1, (1,)), (1, (1,)), (1, (x for x in "not to be pickled"))])


# ---------------------------------------------------------------- factories


def forgets_to_return() -> None:
    Tally()


async def makes_later() -> Tally:
    return Tally()


class Parallel:
    """Has the API of PettingZoo's ``ParallelEnv``: spaces by agent, dicts of results."""

    possible_agents: ClassVar = ["left", "right"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys(self.possible_agents, 0), {agent: {} for agent in self.possible_agents}

    def step(self, actions: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Turns:
    """Has the API of PettingZoo's ``AECEnv`` in its older form: dicts of spaces."""

    possible_agents: ClassVar = ["left", "right"]
    observation_spaces: ClassVar = dict.fromkeys(possible_agents, spaces.Discrete(3))

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        pass

    def step(self, action: Any) -> None:
        pass

    def close(self) -> None:
        pass


FACTORIES: dict[str, tuple[Any, str]] = {
    "none": (forgets_to_return, r"returned None.*return"),
    "async": (makes_later, r"is `async def`.*plain function"),
    "partial of async": (partial(makes_later), r"is `async def`"),
    "class": (lambda: Tally, r"returned the class Tally.*Tally\(\)"),
    "id": (lambda: "CartPole-v1", r"returned str.*gymnasium\.Env"),
    "space": (lambda: spaces.Discrete(2), r"returned Discrete.*gymnasium\.Env"),
    "pettingzoo": (Parallel, r"returned Parallel, .*PettingZoo's API.*Dict"),
    "pettingzoo in turns": (Turns, r"returned Turns, .*PettingZoo's API.*Dict"),
}


@pytest.mark.parametrize("backend", ["thread", "auto", *SERIAL_OR_FORK])
@pytest.mark.parametrize("case", FACTORIES)
def test_factories_that_make_no_environment(case: str, backend: Any) -> None:
    factory, words = FACTORIES[case]
    with pytest.raises(agym.UsageError, match=f"environment [01]: its factory {words}"):
        agym.make([factory, factory], backend=backend)
    with pytest.raises(agym.UsageError, match=f"environment 1: its factory {words}"):
        agym.AgymVectorEnv([Tally, factory], backend=backend)
    with pytest.raises(agym.UsageError, match=f"environment 0: its factory {words}"):
        agym.make_vec(factory, 1, backend=backend)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_pettingzoo_under_stable_baselines3(n_envs: int) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    factory: Any = Parallel
    with pytest.raises(agym.UsageError, match=r"environment 0: .* Parallel, .*PettingZoo's API"):
        agym.sb3.make_vec_env(factory, n_envs)


@pytest.mark.parametrize("case", FACTORIES)
async def test_factories_that_make_no_coroutine_environment(case: str) -> None:
    factory, words = FACTORIES[case]
    for backend in ("auto", "asyncio"):
        with pytest.raises(agym.UsageError, match=f"environment 0: its factory {words}"):
            async with agym.make_async(factory, 2, backend=backend):
                pass


@pytest.mark.once
@pytest.mark.parametrize("case", FACTORIES)
def test_plans_for_no_environment(case: str) -> None:
    factory, words = FACTORIES[case]
    with pytest.raises(agym.UsageError, match=f"its factory {words}"):
        agym.plan(factory, 2)


@pytest.mark.parametrize("case", ["none", "async"])
def test_factories_that_make_no_program(case: str) -> None:
    factory = {"none": makes_no_program, "async": makes_a_program_later}[case]
    with pytest.raises(agym.UsageError, match=f"its factory {FACTORIES[case][1]}"):
        agym.make(factory, 2, backend="vector")


def makes_no_program(num_envs: int) -> None:
    pass


async def makes_a_program_later(num_envs: int) -> None:
    pass


# ---------------------------------------------------------------- results not awaited, or twice


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
        observation, info = await asyncio.gather(envs[0].render(), envs[1].render())
        assert observation == info == "1:1"


def test_with_for_async_with() -> None:
    envs: Any = agym.make_async(Tally, 2, backend="serial")
    words = r"agym\.make_async.*`async with`.*agym\.make\("
    with pytest.raises(agym.UsageTypeError, match=words), envs:
        pass
    with pytest.raises(AttributeError, match=r"'action_space' yet: .*not open yet"):
        _ = envs.action_space
    assert not hasattr(envs, "nothing")


@everywhere
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
        with pytest.raises(TypeError, match=already):
            await envs.reset()
        with pytest.raises(TypeError, match=already):
            await envs.step([0, 0])
        envs.send([0, 0])
        with pytest.raises(TypeError, match=already):
            await envs.recv(min_envs=2)
        observations, *_ = envs.step([0, 0])
        assert len(observations) == 2


async def test_rollouts_of_what_cannot_be_awaited() -> None:
    with agym.make(Tally, 2, backend="serial", output="array", autoreset="next_step") as envs:
        vector = agym.make_vec(Tally, 2, backend="serial")
        for wrong in (envs, vector):
            name = type(wrong).__name__
            with pytest.raises(agym.UsageTypeError, match=rf"agym\.make_async.* {name}"):
                async for _ in agym.rollout(wrong, lambda o: [0] * len(o), 4):  # type: ignore[call-overload]
                    pass
        vector.close()
    unopened = agym.make_async(Tally, 2, backend="serial")
    with pytest.raises(agym.ClosedError, match="not open yet"):
        async for _ in agym.rollout(unopened, lambda o: [0] * len(o), 4):
            pass


# ---------------------------------------------------------------- loops


@everywhere
def test_under_trio(setup: dict[str, Any]) -> None:
    trio = pytest.importorskip("trio", reason="no extra: somebody else's event loop")

    async def main() -> None:
        async with agym.make_async(Tally, 2, **setup) as envs:
            await envs.reset()

    with pytest.raises(agym.UsageError, match=r"asyncio.*trio.*agym\.run"):
        trio.run(main)


def test_on_no_loop_at_all() -> None:
    opening = agym.make_async(Tally, 2, backend="serial").__aenter__()
    with pytest.raises(agym.UsageError, match=r"asyncio.*agym\.run"):
        opening.send(None)


async def test_run_inside_a_running_loop() -> None:
    async def main() -> int:
        return 1

    with pytest.raises(agym.UsageError, match=r"running already.*Jupyter.*`await main\(\)`"):
        agym.run(main())
    assert await main() == 1


def test_run_of_what_is_no_coroutine() -> None:
    async def main() -> int:
        return 1

    with pytest.raises(agym.UsageTypeError, match=r"agym\.run\(main\(\)\)"):
        agym.run(main)  # type: ignore[arg-type]
    with pytest.raises(agym.UsageTypeError, match=r"coroutine.* not int"):
        agym.run(5)  # type: ignore[arg-type]


# ---------------------------------------------------------------- indices, copies

INDICES = [slice(0, 2), "0", None, 1.0, (0, 1), [0]]


@pytest.mark.parametrize("index", INDICES, ids=repr)
async def test_indices_of_environments(index: Any) -> None:
    words = "split.*env_ids=" if isinstance(index, slice) else "integer"
    with agym.make(Tally, 3, backend="serial") as envs:
        with pytest.raises(agym.UsageTypeError, match=words):
            envs[index]
        assert envs[np.int64(-1)].index == 2
        with pytest.raises(IndexError, match="no environment 3: envs has 3"):
            envs[3]
    async with agym.make_async(Tally, 3, backend="serial") as made:
        with pytest.raises(agym.UsageTypeError, match=words):
            made[index]


def via_pickle(value: Any) -> None:
    pickle.dumps(value)


@everywhere
@pytest.mark.parametrize("duplicate", [via_pickle, copy.copy, copy.deepcopy])
def test_environments_are_not_copied(
    duplicate: Callable[[Any], Any], setup: dict[str, Any]
) -> None:
    words = "can't be pickled or copied.*agym.make"
    with agym.make(Tally, 2, **setup) as envs:
        for some in (envs, envs.split(2)[1]):
            with pytest.raises(agym.UsageTypeError, match=f"Envs {words}"):
                duplicate(some)
        if duplicate is not copy.copy:  # a handle is no more than a name
            with pytest.raises(agym.UsageTypeError, match=words):
                duplicate(envs[0])
        with pytest.raises(agym.UsageTypeError, match=words):
            agym.make([partial(HoldsLock, envs)], backend=FORK)
        envs.reset()
    with pytest.raises(agym.UsageTypeError, match=f"AsyncEnvs {words}"):
        duplicate(agym.make_async(Tally, 2, **setup))
    vector = agym.make_vec(Tally, 2, **setup)
    try:
        if duplicate is not copy.copy:
            with pytest.raises(agym.UsageTypeError, match=words):
                duplicate(vector)
    finally:
        vector.close()


# ---------------------------------------------------------------- places and ids


def make_in_a_daemon(queue: SimpleQueue[str], backend: str) -> None:
    try:
        with agym.make(Tally, 2, backend=backend) as envs:
            envs.reset()
        queue.put("made")
    except agym.UsageError as error:
        queue.put(str(error))


def test_processes_in_a_daemonic_process() -> None:
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
    for words in (
        "daemonic",
        "multiprocessing.Pool",
        "backend='thread'",
        "'serial'",
        "daemon=False",
    ):
        assert words in told["process"]


@pytest.mark.parametrize("make", [agym.make, agym.make_async, agym.make_vec, agym.plan])
@pytest.mark.parametrize(
    ("env_id", "remedies"),
    [
        ("NoSuchGrid-Empty-5x5-v0", ["import", "package", "'module:NoSuchGrid-Empty-5x5-v0'"]),
        ("nosuch/Env-v0", ["import", "'module:nosuch/Env-v0'"]),
        ("CartPoel-v1", ["CartPole"]),
    ],
)
def test_ids_of_other_packages(make: Callable[..., Any], env_id: str, remedies: list[str]) -> None:
    with pytest.raises(agym.UsageError, match=f"env='{env_id}' cannot be found") as caught:
        make(env_id, 2)
    assert isinstance(caught.value.__cause__, gymnasium.error.Error)
    for words in remedies:
        assert words in str(caught.value)
