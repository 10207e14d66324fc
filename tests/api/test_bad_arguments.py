"""Arguments that cannot work: one named error, before anything is sent, and a remedy in it.

Laws in ``agym.testing.laws.arguments`` are about ids, seeds and the order of calls.
"""

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
from tests.support.envs.plain_envs import Echo, Nested, Tally


def messages(cases: list[Any]) -> list[str]:
    """Return the ids of the cases of a table."""
    return [message for *_, message in cases]


NO_BACKEND = r"backend=.* is unknown: .*use one of auto, serial"
NO_MODE = "use one of raise, restart, replay"
OF_MAKE: list[tuple[dict[str, Any], str]] = [
    ({"backend": "thraed"}, "backend='thraed' .*serial"),
    ({"backend": "Process"}, "did you mean 'process'"),
    *(({"backend": each}, NO_BACKEND) for each in (SyncVectorEnv, threading.Thread, 3, "sync")),
    ({"backend": agym.FaultPolicy}, NO_BACKEND),
    ({"backend": BackendSpec()}, NO_BACKEND),
    ({"backend": LoopSpec()}, NO_BACKEND),
    ({"backend": Process}, r"is a class: call it, agym.backends.Process\(\)"),
    ({"backend": Process(workers=2), "workers": 1}, "pass the number of workers once"),
    ({"output": "tensor"}, "output='tensor' .*array"),
    ({"autoreset": "never"}, "autoreset='never' .*next_step"),
    ({"autoreset": ["next_step"]}, "autoreset="),
    ({"workers": 0}, "workers=0"),
    ({"workers": 1.5}, "workers=1.5"),
    ({"workers": True}, "workers=True"),
    ({"timeout": 0}, "timeout=0"),
    ({"timeout": -1.0}, "timeout=-1.0"),
    ({"timeout": float("nan")}, "timeout=nan"),
    ({"timeout": "3"}, "timeout='3'"),
    ({"copy": "no"}, "copy='no' .*True or False"),
    ({"rate_limit": 0}, "rate_limit=0 .*calls per second, or None"),
    ({"rate_limit": float("inf")}, "rate_limit=inf"),
    ({"rate_limit": 1, "backend": "ray"}, "rate_limit=.*backend='ray': use"),
    ({"autorest": "disabled"}, "autorest.*autoreset"),
    ({"worker": 2}, "worker.*workers"),
    ({"on_fault": "ignore"}, NO_MODE),
    ({"on_fault": None}, NO_MODE),
    ({"env": 5}, "env=5"),
    ({"env": None}, "env=None"),
    ({"env": Tally()}, "factory"),
    ({"env": [], "num_envs": None}, "list"),
    ({"env": ["CartPole-v1"] * 2, "num_envs": None}, "factories"),
    ({"env": [Tally, Tally], "num_envs": 3}, "num_envs=3"),
    *(({"num_envs": each}, f"num_envs={each}") for each in (0, -1, 1.5, True)),
]


@pytest.mark.parametrize("make", [agym.make, agym.make_async])
@pytest.mark.parametrize(("arguments", "message"), OF_MAKE, ids=messages(OF_MAKE))
def test_arguments_of_make(arguments: dict[str, Any], message: str, make: Any) -> None:
    with pytest.raises(agym.UsageError, match=message):
        make(**{"env": Tally, "num_envs": 2, **arguments})


# Options of an object are refused where it is made.
OF_OBJECTS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (Process, {"pin": 1}, "True or False"),
    (Process, {"recycle": 5}, r"agym\.Recycle"),
    (Process, {"workers": 0}, "positive"),
    (Process, {"max_concurrency": 1.5}, "positive integer"),
    *((Process, {"start_method": each}, "spawn") for each in ("thread", "", 3)),
    (Asyncio, {"max_concurrency": 0}, "positive"),
    (agym.FaultPolicy, {"mode": "ignore"}, NO_MODE),
    (agym.FaultPolicy, {"max_restarts": -1}, "at least 0"),
    (agym.FaultPolicy, {"max_restarts": 1.5}, "integer"),
    (agym.FaultPolicy, {"restart_window": 0}, "positive"),
    (agym.FaultPolicy, {"replay_limit": 0}, "positive"),
    (agym.FaultPolicy, {"capsule_dir": __file__}, "not a folder"),
    (agym.FaultPolicy, {"capsule_dir": 3}, "path of a folder"),
    (agym.FaultPolicy, {"capsule_dir": ""}, "path of a folder"),
    (Ray, {"placement": "sprad"}, "did you mean 'spread'"),
    (Ray, {"resources": {"num_cpu": 1}}, "'num_cpus'"),
    (agym.FaultPolicy, {"retry": 1}, "replaces none"),
    (agym.FaultPolicy, {"retry": -1}, "at least 0"),
    (agym.FaultPolicy, {"retry": 1.5}, "integer"),
    *((agym.Recycle, {"rss_mb": each}, "positive") for each in (-1, float("inf"))),
    (agym.Recycle, {"episodes": 0}, "positive"),
]


@pytest.mark.parametrize(("kind", "options", "message"), OF_OBJECTS, ids=messages(OF_OBJECTS))
def test_options_of_objects(kind: Any, options: dict[str, Any], message: str) -> None:
    (name,) = options
    with pytest.raises(agym.UsageError, match=f"(?=.*({name}|on_fault)).*{message}"):
        kind(**options)


def test_a_start_method_is_given_once() -> None:
    with pytest.raises(agym.UsageError, match=r"context='fork' contradicts .* start method once"):
        agym.AgymVectorEnv([Tally], context="fork", backend=Process(start_method="spawn"))


def test_numpy_integers_are_integers() -> None:
    with agym.make(Tally, np.int64(2)) as envs:  # type: ignore[arg-type]
        assert len(envs) == 2


@pytest.mark.parametrize("count", [0, -1, 4, 1.0, "2", None])
def test_wrong_numbers_of_groups(count: Any) -> None:
    with agym.make(Tally, 3) as envs:
        with pytest.raises(agym.UsageError, match="split"):
            envs.split(count)
        with pytest.raises(agym.UsageError, match="again"):
            envs.split(2)[0].split(1)


DISCRETE = spaces.Discrete(5)
BOX = spaces.Box(-1, 1, (2,), np.float32)
BYTES = spaces.Box(0, 255, (2,), np.uint8)
DICT = Nested().action_space
PAIR = spaces.Tuple((spaces.Discrete(2), spaces.Text(4)))
ONE, OTHER = {"force": np.zeros(3), "gear": 1}, {"force": np.zeros(2), "gear": 1}


class OnDevice:
    """Cannot become an array, as a tensor on another device."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("on another device")

    def __len__(self) -> int:
        return 3


ACTIONS: list[tuple[spaces.Space[Any], Any, str]] = [
    (DISCRETE, [0, 1], "3 actions.* 2"),
    (DISCRETE, [0, 1, 2, 3], "3 actions.* 4"),
    (DISCRETE, [], "3 actions.* 0"),
    (DISCRETE, 1, "3 actions"),
    (DISCRETE, None, "3 actions"),
    (DISCRETE, "012", "3 actions"),
    (DISCRETE, {"a": 1, "b": 2, "c": 3}, "3 actions"),
    (DISCRETE, [[0], [1], [2]], "shape"),
    (DISCRETE, [0, [1], 2], "environment 1 has shape"),
    (DISCRETE, [0.0, 1.0, 2.0], "dtype float64 cannot be converted to int64"),
    (DISCRETE, np.zeros(3, np.float32), "dtype float32 cannot be converted to int64"),
    (DISCRETE, [1j, 0, 0], "dtype complex128"),
    (DISCRETE, ["0", "1", "2"], "dtype"),
    (DISCRETE, [0, None, 1], "dtype object"),
    (DISCRETE, OnDevice(), "on another device"),
    (DISCRETE, np.zeros((3, 1), np.int64), "shape"),
    (DISCRETE, np.array([2**63, 0, 0], np.uint64), "uint64"),
    (BOX, np.zeros((2, 2), np.float32), "3 actions.* 2"),
    (BOX, np.zeros((2, 3), np.float32), "3 actions.* 2"),
    (BOX, np.zeros(6, np.float32), "3 actions.* 6"),
    (BOX, np.zeros(3, np.float32), "shape"),
    (BOX, np.zeros((3, 4), np.float32), r"environment 0 has shape \(4,\)"),
    (BOX, [np.zeros(2), np.zeros(2), np.zeros(3)], r"environment 2 has shape \(3,\)"),
    (BOX, np.zeros((3, 2), complex), "dtype complex128"),
    (BOX, [np.zeros(2), None, np.zeros(2)], "environment 1"),
    (BYTES, np.full((3, 2), -1), "dtype int64 cannot be converted to uint8"),
    (BYTES, np.full((3, 2), 256), "dtype int64 cannot be converted to uint8"),
    (BYTES, np.zeros((3, 2)), "dtype float64 cannot be converted to uint8"),
    (DICT, [1, 2, 3], "environment 0"),
    (DICT, [{"gear": 1}] * 3, "force"),
    (DICT, {"gear": [1, 1, 1]}, "force"),
    (DICT, {"force": np.zeros((3, 3)), "gear": [1, 1]}, "3 actions"),
    (DICT, {"force": np.zeros((3, 2)), "gear": [1] * 3}, r"\['force'\] of environment 0 has shape"),
    (DICT, [ONE, ONE, OTHER], r"\['force'\] of environment 2 has shape"),
    (DICT, {"force": np.zeros((3, 3)), "gear": [0.5] * 3}, r"\['gear'\] of dtype float64"),
    (PAIR, [(1,), (1,), (1,)], "environment 0"),
    (PAIR, [(1, "a", 2)] * 3, "environment 0"),
    (PAIR, [(1, "a")] * 2, "3 actions"),
    (PAIR, (np.zeros(3, int), ("a", "b")), "3 actions"),
    (PAIR, [1, 2, 3], "environment 0"),
    (spaces.Sequence(spaces.Discrete(3)), [(1,), (2,)], "3 actions.* 2"),
    (spaces.Sequence(spaces.Discrete(3)), None, "3 actions"),
]


@pytest.mark.parametrize(("space", "actions", "message"), ACTIONS, ids=messages(ACTIONS))
def test_actions(space: spaces.Space[Any], actions: Any, message: str) -> None:
    """That nothing is sent to workers either is a law."""
    with agym.make(partial(Echo, spaces.Discrete(2), [0], space), 3) as envs:
        envs.reset()
        with pytest.raises(agym.UsageError, match=message):
            envs.step(actions)
        assert envs.call("what_was_received") == [[], [], []], "something was sent"
        envs.step(envs.action_space.sample())
        assert [len(received) for received in envs.call("what_was_received")] == [1] * 3
