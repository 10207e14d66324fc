"""Arguments that cannot work: one named error, before anything is sent, and a remedy in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import agym
from agym.backends import Asyncio, BackendSpec, Process, Ray
from agym.core.backends.options import LoopSpec
from tests.support.backends import FORK
from tests.support.drivers import APIS, SETUPS, opened
from tests.support.envs.plain_envs import Echo, Nested, Tally

PROCESS = {"backend": FORK, "workers": 2}


# ---------------------------------------------------------------- options


def tally() -> Tally:
    return Tally()


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "backend": ({"backend": "thraed"}, "serial"),
    "backend-type": ({"backend": 3}, "backend"),
    "output": ({"output": "tensor"}, "array"),
    "autoreset": ({"autoreset": "never"}, "next_step"),
    "autoreset-type": ({"autoreset": ["next_step"]}, "autoreset"),
    "workers-zero": ({"workers": 0}, "workers"),
    "workers-float": ({"workers": 1.5}, "workers"),
    "workers-bool": ({"workers": True}, "workers"),
    "timeout-zero": ({"timeout": 0}, "timeout"),
    "timeout-negative": ({"timeout": -1.0}, "timeout"),
    "timeout-nan": ({"timeout": float("nan")}, "timeout"),
    "timeout-type": ({"timeout": "3"}, "timeout"),
    "copy": ({"copy": "no"}, "True or False"),
    "misspelt": ({"autorest": "disabled"}, "autoreset"),
    "misspelt-too": ({"worker": 2}, "workers"),
}


@pytest.mark.parametrize("make", [agym.make, agym.make_async])
@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options(case: str, make: Callable[..., Any]) -> None:
    options, remedy = BAD_OPTIONS[case]
    with pytest.raises(agym.UsageError) as caught:
        make(tally, 2, **options)
    (name,) = options
    assert name in str(caught.value)
    assert remedy in str(caught.value)


# Options of an object are refused where it is made.
BAD_OWN_OPTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "pin": (Process, {"pin": 1}, "True or False"),
    "start-method": (Process, {"start_method": "thread"}, "spawn"),
    "recycle": (Process, {"recycle": 5}, "agym.Recycle"),
    "workers": (Process, {"workers": 0}, "positive"),
    "max-concurrency-zero": (Asyncio, {"max_concurrency": 0}, "positive"),
    "max-concurrency-float": (Process, {"max_concurrency": 1.5}, "positive integer"),
    "max-restarts": (agym.FaultPolicy, {"max_restarts": -1}, "at least 0"),
    "max-restarts-float": (agym.FaultPolicy, {"max_restarts": 1.5}, "integer"),
    "restart-window": (agym.FaultPolicy, {"restart_window": 0}, "positive"),
    "replay-limit": (agym.FaultPolicy, {"replay_limit": 0}, "positive"),
    "capsule-dir": (agym.FaultPolicy, {"capsule_dir": __file__}, "not a folder"),
    "capsule-dir-type": (agym.FaultPolicy, {"capsule_dir": 3}, "path of a folder"),
    "capsule-dir-empty": (agym.FaultPolicy, {"capsule_dir": ""}, "path of a folder"),
    "placement": (Ray, {"placement": "sprad"}, "did you mean 'spread'"),
    "resources": (Ray, {"resources": {"num_cpu": 1}}, "'num_cpus'"),
    "rss": (agym.Recycle, {"rss_mb": float("inf")}, "positive"),
}


@pytest.mark.parametrize("case", BAD_OWN_OPTIONS)
def test_bad_options_of_objects(case: str) -> None:
    kind, options, remedy = BAD_OWN_OPTIONS[case]
    with pytest.raises(agym.UsageError) as caught:
        kind(**options)
    (name,) = options
    assert name in str(caught.value)
    assert remedy in str(caught.value)


def test_a_bad_mode_of_a_policy() -> None:
    for wrong in ("ignore", None):
        for give in (agym.FaultPolicy, lambda mode: agym.make(tally, 2, on_fault=mode)):
            with pytest.raises(agym.UsageError, match="use one of raise, restart, replay"):
                give(wrong)


def test_the_class_of_a_backend_instead_of_an_object() -> None:
    with pytest.raises(agym.UsageError, match=r"is a class: call it, agym.backends.Process\(\)"):
        agym.make(tally, 2, backend=Process)


def test_the_number_of_workers_given_twice() -> None:
    with pytest.raises(agym.UsageError, match="pass the number of workers once"):
        agym.make(tally, 2, backend=Process(workers=2), workers=1)


@pytest.mark.parametrize("start_method", ["thread", "", 3])
def test_a_bad_start_method_of_workers(start_method: Any) -> None:
    with pytest.raises(agym.UsageError, match="start_method"):
        agym.make(tally, 2, backend=Process(start_method=start_method))


def test_a_start_method_given_twice() -> None:
    with pytest.raises(agym.UsageError, match=r"context='fork' contradicts .* start method once"):
        agym.AgymVectorEnv([tally], context="fork", backend=Process(start_method="spawn"))


@pytest.mark.parametrize("backend", [SyncVectorEnv, agym.FaultPolicy, threading.Thread, 3, "sync"])
def test_what_is_no_backend(backend: Any) -> None:
    with pytest.raises(agym.UsageError, match=r"backend=.* is unknown: .*use one of auto, serial"):
        agym.make(tally, 2, backend=backend)


@pytest.mark.parametrize("kind", [BackendSpec, LoopSpec])
def test_a_base_class_of_backends_options(kind: Any) -> None:
    with pytest.raises(agym.UsageError, match=r"is unknown: .*use one of auto"):
        agym.make(tally, 2, backend=kind())


def test_a_misspelt_backend() -> None:
    backend: Any = "Process"
    with pytest.raises(agym.UsageError, match="did you mean 'process'"):
        agym.make(tally, 2, backend=backend)


BAD_ENVS: dict[str, tuple[Any, Any, str]] = {
    "unknown-id": ("NoSuchEnv-v0", 2, "NoSuchEnv"),
    "unknown-version": ("CartPole-v99", 2, "CartPole"),
    "unknown-namespace": ("NoSuch/Env-v0", 2, "NoSuch"),
    "malformed-id": ("not an id", 2, "not an id"),
    "number": (5, 2, "env=5"),
    "none": (None, 2, "env=None"),
    "an-environment": (Tally(), 2, "factory"),
    "empty-list": ([], None, "list"),
    "list-of-ids": (["CartPole-v1"] * 2, None, "factories"),
    "list-of-another-length": ([tally, tally], 3, "num_envs=3"),
    "no-environments": (tally, 0, "num_envs=0"),
    "negative": (tally, -1, "num_envs=-1"),
    "fraction": (tally, 1.5, "num_envs=1.5"),
    "true": (tally, True, "num_envs=True"),
}


@pytest.mark.parametrize("make", [agym.make, agym.make_async])
@pytest.mark.parametrize("case", BAD_ENVS)
def test_bad_environments(case: str, make: Callable[..., Any]) -> None:
    env, num_envs, named = BAD_ENVS[case]
    with pytest.raises(agym.UsageError) as caught:
        make(env, num_envs)
    assert named in str(caught.value)


@pytest.mark.parametrize("setup", SETUPS)
def test_numpy_integers_are_integers(setup: dict[str, Any]) -> None:
    with agym.make(tally, np.int64(2), **setup) as envs:  # type: ignore[arg-type]
        assert len(envs) == 2


# ---------------------------------------------------------------- actions

ACTIONS: dict[str, tuple[spaces.Space[Any], list[tuple[str, Any, str]]]] = {
    "discrete": (
        spaces.Discrete(5),
        [
            ("too few", [0, 1], "3 actions.* 2"),
            ("too many", [0, 1, 2, 3], "3 actions.* 4"),
            ("none", [], "3 actions.* 0"),
            ("one", 1, "3 actions"),
            ("nothing", None, "3 actions"),
            ("text", "012", "3 actions"),
            ("dict", {"a": 1, "b": 2, "c": 3}, "3 actions"),
            ("too deep", [[0], [1], [2]], "shape"),
            ("ragged", [0, [1], 2], "environment 1 has shape"),
            ("floats", [0.0, 1.0, 2.0], "dtype float64 cannot be converted to int64"),
            ("float array", np.zeros(3, np.float32), "dtype float32 cannot be converted to int64"),
            ("complex", [1j, 0, 0], "dtype complex128"),
            ("texts", ["0", "1", "2"], "dtype"),
            ("a missing one", [0, None, 1], "dtype object"),
            ("matrix", np.zeros((3, 1), np.int64), "shape"),
            ("too large", np.array([2**63, 0, 0], np.uint64), "uint64"),
        ],
    ),
    "box": (
        spaces.Box(-1, 1, (2,), np.float32),
        [
            ("too few", np.zeros((2, 2), np.float32), "3 actions.* 2"),
            ("transposed", np.zeros((2, 3), np.float32), "3 actions.* 2"),
            ("flat", np.zeros(6, np.float32), "3 actions.* 6"),
            ("one per environment", np.zeros(3, np.float32), "shape"),
            ("another shape", np.zeros((3, 4), np.float32), r"environment 0 has shape \(4,\)"),
            ("ragged", [np.zeros(2), np.zeros(2), np.zeros(3)], r"environment 2 has shape \(3,\)"),
            ("complex", np.zeros((3, 2), complex), "dtype complex128"),
            ("a missing one", [np.zeros(2), None, np.zeros(2)], "environment 1"),
        ],
    ),
    "bytes": (
        spaces.Box(0, 255, (2,), np.uint8),
        [
            ("negative", np.full((3, 2), -1), "dtype int64 cannot be converted to uint8"),
            ("too large", np.full((3, 2), 256), "dtype int64 cannot be converted to uint8"),
            ("floats", np.zeros((3, 2)), "dtype float64 cannot be converted to uint8"),
        ],
    ),
    "dict": (
        Nested().action_space,
        [
            ("no dict", [1, 2, 3], "environment 0"),
            ("key missing", [{"gear": 1}] * 3, "force"),
            ("key missing in a batch", {"gear": [1, 1, 1]}, "force"),
            ("wrong number in one leaf", {"force": np.zeros((3, 3)), "gear": [1, 1]}, "3 actions"),
            (
                "wrong shape in one leaf",
                [{"force": np.zeros(3), "gear": 1}] * 2 + [{"force": np.zeros(2), "gear": 1}],
                r"\['force'\] of environment 2 has shape",
            ),
            (
                "wrong dtype in one leaf",
                {"force": np.zeros((3, 3)), "gear": [0.5] * 3},
                r"\['gear'\] of dtype float64",
            ),
        ],
    ),
    "tuple": (
        spaces.Tuple((spaces.Discrete(2), spaces.Text(4))),
        [
            ("too short", [(1,), (1,), (1,)], "environment 0"),
            ("too long", [(1, "a", 2)] * 3, "environment 0"),
            ("too few", [(1, "a")] * 2, "3 actions"),
            ("too few in a batch", (np.zeros(3, int), ("a", "b")), "3 actions"),
            ("no tuple", [1, 2, 3], "environment 0"),
        ],
    ),
    "object": (
        spaces.Sequence(spaces.Discrete(3)),
        [
            ("too few", [(1,), (2,)], "3 actions.* 2"),
            ("nothing", None, "3 actions"),
        ],
    ),
}
BAD_ACTIONS = [
    pytest.param(space, actions, message, id=f"{kind}-{name}")
    for kind, (space, cases) in ACTIONS.items()
    for name, actions, message in cases
]


@pytest.mark.parametrize(("space", "actions", "message"), BAD_ACTIONS)
@pytest.mark.parametrize("api", APIS)
def test_bad_actions(space: spaces.Space[Any], actions: Any, message: str, api: str) -> None:
    with opened(api, partial(Echo, spaces.Discrete(2), [0], space), 3) as envs:
        envs.reset()
        with pytest.raises(agym.UsageError, match=message):
            envs.step(actions)
        assert envs.call("what_was_received") == [[], [], []], "something was sent"
        envs.step(envs.action_space.sample())
        assert [len(received) for received in envs.call("what_was_received")] == [1] * 3


@pytest.mark.once
@pytest.mark.parametrize("kind", ACTIONS)
def test_bad_actions_for_workers(kind: str) -> None:
    space, cases = ACTIONS[kind]
    with agym.make(partial(Echo, spaces.Discrete(2), [0], space), 3, **PROCESS) as envs:
        envs.reset()
        for _, actions, message in cases:
            with pytest.raises(agym.UsageError, match=message):
                envs.step(actions)
        assert envs.what_was_received() == [[], [], []], "something was sent"
        envs.step(envs.action_space.sample())


@pytest.mark.parametrize("setup", SETUPS)
def test_an_action_that_cannot_be_sent(setup: dict[str, Any]) -> None:
    """Where it must be pickled, that fails before anybody steps."""
    space = spaces.Tuple((spaces.Discrete(3), spaces.Sequence(spaces.Discrete(3))))
    with agym.make(partial(Echo, spaces.Discrete(2), [0], space), 3, **setup) as envs:
        envs.reset()
        if setup["backend"] == FORK:
            with pytest.raises(Exception, match="pickle"):
                envs.step([(1, (1,)), (1, (1,)), (1, (x for x in "not to be pickled"))])
            assert envs.what_was_received() == [[], [], []]
        envs.reset()
        envs.step([(1, (1,))] * 3)
        assert envs.what_was_received() == [[(1, (1,))]] * 3


# ---------------------------------------------------------------- order of calls, ids, seeds


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("setup", SETUPS)
def test_step_before_reset(setup: dict[str, Any], api: str) -> None:
    with opened(api, Tally, 3, **setup) as envs:
        with pytest.raises(agym.ResetNeededError, match=r"environment 0 .*reset"):
            envs.step([0, 0, 0])
        envs.reset(env_ids=[0, 2])
        with pytest.raises(
            agym.ResetNeededError, match=r"environment 1 .*reset environments \[1\]"
        ):
            envs.step([0, 0, 0])
        assert envs.get_attr("now") == [0, 0, 0]
        assert [len(o) for o in envs.step([1, 2], env_ids=[0, 2])] == [2] * 5
        envs.reset(env_ids=[1])
        envs.step([0, 0, 0])


BAD_RESETS: dict[str, tuple[dict[str, Any], str]] = {
    "seeds-too-few": ({"seed": [1, 2]}, "seed"),
    "seeds-too-many": ({"seed": [1, 2, 3, 4]}, "seed"),
    "seed-negative": ({"seed": -1}, "seed"),
    "seeds-negative": ({"seed": [1, -2, 3]}, "seed of environment 1"),
    "seed-text": ({"seed": "abc"}, "seed"),
    "seed-float": ({"seed": 1.5}, "seed"),
    "seed-bool": ({"seed": True}, "seed"),
    "seeds-text": ({"seed": ["a", "b", "c"]}, "seed"),
    "seeds-float": ({"seed": [1.5, 2.5, 3.5]}, "seed"),
    "seeds-matrix": ({"seed": np.zeros((3, 2), int)}, "seed"),
    "ids-out-of-range": ({"env_ids": [3]}, "0 to 2"),
    "ids-negative": ({"env_ids": [-1]}, "0 to 2"),
    "ids-double": ({"env_ids": [1, 1]}, "at most once"),
    "ids-number": ({"env_ids": 1}, "env_ids"),
    "ids-float": ({"env_ids": [0.5]}, "env_ids"),
    "ids-infinite": ({"env_ids": [float("inf")]}, "env_ids"),
    "ids-text": ({"env_ids": "01"}, "env_ids"),
    "ids-mask": ({"env_ids": np.array([True, False, False])}, "env_ids"),
    "seeds-for-ids": ({"env_ids": [0, 1], "seed": [1, 2, 3]}, "seed"),
    "mask-list": ({"options": {"reset_mask": [True, False, False]}}, "reset_mask"),
    "mask-dtype": ({"options": {"reset_mask": np.ones(3, int)}}, "reset_mask"),
    "mask-shape": ({"options": {"reset_mask": np.ones(4, bool)}}, "reset_mask"),
    "mask-empty": ({"options": {"reset_mask": np.zeros(3, bool)}}, "reset_mask"),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", BAD_RESETS)
def test_bad_resets(case: str, api: str) -> None:
    arguments, named = BAD_RESETS[case]
    with opened(api, Tally, 3) as envs:
        envs.reset()
        with pytest.raises(agym.UsageError, match=named):
            envs.reset(**arguments)
        assert envs.get_attr("episode") == [1] * 3, "somebody was reset"
        envs.reset(seed=0)


def test_bad_ids_of_the_others() -> None:
    with agym.make(Tally, 3) as envs:
        envs.reset()
        with pytest.raises(agym.UsageError, match="env_ids"):
            envs.render(env_ids=[3])
        with pytest.raises(agym.UsageError, match="env_ids"):
            envs.step([0], env_ids=[7])
        with pytest.raises(agym.UsageError, match="actions"):
            envs.step([0, 1], env_ids=[1])
        assert envs.now == [0] * 3
