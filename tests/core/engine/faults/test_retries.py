"""``FaultPolicy(retry=)``: failed episodes begin again, so that none is missing in the end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.drivers import Setup, each_mode, played
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import deadline
from tests.support.scenarios import (
    ASYNCIO,
    COROUTINES,
    COUNT,
    PROCESS,
    SERIAL,
    THREAD,
    trapped,
    wait_for_threads,
)

CASES = [
    *((setup, "plain") for setup in (SERIAL, THREAD, ASYNCIO, PROCESS, COROUTINES)),
    *((setup, "kill") for setup in (PROCESS, COROUTINES)),
    (PROCESS, "hang"),
]
LONG = [(setup, "hang") for setup in (THREAD, ASYNCIO, COROUTINES)]
each_case = pytest.mark.parametrize(
    ("setup", "what"),
    [
        *(pytest.param(*case, id=f"{case[0].name}-{case[1]}") for case in CASES),
        *(pytest.param(*case, id=f"{case[0].name}-hang", marks=pytest.mark.full) for case in LONG),
    ],
)
each_place = pytest.mark.parametrize("where", ["step", "reset"])


def policy(retry: int = 2, mode: Any = "restart") -> agym.FaultPolicy:
    return agym.FaultPolicy(mode, retry=retry, max_restarts=1000)


class Run:
    """The episodes of a run: those that ended, by environment, and the faults."""

    def __init__(self) -> None:
        self.ended: list[list[tuple[float, int]]] = [[] for _ in range(COUNT)]
        self.faults: list[agym.Fault] = []
        self.retries: list[int] = []

    def play(self, envs: Any, mode: str, rounds: int, before: Callable[[int], None]) -> Run:
        """Reset with a seed, then step; nothing else has a seed."""
        self._look(envs.reset(seed=3)[1])
        for k in range(rounds):
            before(k)
            observations, _, terminated, truncated, infos = envs.step([1] * COUNT)
            self._look(infos)
            for i in range(COUNT):
                if terminated[i]:
                    last = infos[i]["final_obs"] if mode == "same_step" else observations[i]
                    self.ended[i].append((float(last[0]), int(last[1])))
            over = [i for i in range(COUNT) if terminated[i] or truncated[i]]
            if mode == "disabled" and over:
                self._look(envs.reset(env_ids=over)[1])
        return self

    def _look(self, infos: Any) -> None:
        self.faults += [info["fault"] for info in infos if "fault" in info]
        self.retries += [info["retry"] for info in infos if "retry" in info]


def run(
    setup: Setup,
    what: str,
    mode: str,
    traps: Traps,
    before: Callable[[int], None],
    rounds: int = 30,
    **options: Any,
) -> Run:
    if what == "hang":
        options["timeout"] = deadline(0.4)
    warned = what == "hang" and setup is THREAD
    expected = pytest.warns(RuntimeWarning, match="abandoned") if warned else nullcontext()
    options = {"on_fault": policy(), **setup.options, **options}
    with expected, played("sync", trapped(setup, traps), autoreset=mode, **options) as envs:
        result = Run().play(envs, mode, rounds, before)
        traps.release()
    wait_for_threads()
    return result


@cache
def undisturbed(mode: str, rounds: int = 30) -> list[list[tuple[float, int]]]:
    with tempfile.TemporaryDirectory() as folder:
        factories = trapped(SERIAL, Traps(Path(folder)))
        with played("sync", factories, backend="serial", autoreset=mode) as envs:
            return Run().play(envs, mode, rounds, lambda _: None).ended


def is_prefix(one: list[Any], other: list[Any]) -> bool:
    return one == other[: len(one)] and len(one) > 0


@each_place
@each_mode
@each_case
def test_the_episodes_that_end_are_those_of_a_run_without_failures(
    setup: Setup, what: str, mode: str, where: str, traps: Traps
) -> None:
    """Of every environment, also of those that only shared the worker."""

    def before(k: int) -> None:
        if k in (1, 13):
            traps.set(1, where, what)

    result = run(setup, what, mode, traps, before)
    for ended, expected in zip(result.ended, undisturbed(mode), strict=True):
        assert is_prefix(ended, expected)
    assert {fault.env_id for fault in result.faults} >= {1}
    assert {fault.retry for fault in result.faults} == set(result.retries) == {1}


@each_mode
@pytest.mark.parametrize("setup", [SERIAL, PROCESS, ASYNCIO], ids=lambda setup: setup.name)
def test_an_episode_that_fails_each_time_is_given_up(setup: Setup, mode: str, traps: Traps) -> None:
    """After that the environment goes on with another one, whose failures count anew."""
    fails = set(range(20))

    def before(k: int) -> None:
        if k in fails and not traps.is_set(1, "step"):
            traps.set(1, "step", "plain")

    result = run(setup, "plain", mode, traps, before, rounds=40)
    retries = [fault.retry for fault in result.faults]
    assert retries[:6] == [1, 2, 0, 1, 2, 0]
    expected = undisturbed(mode, 40)
    for i in (0, 2, 3):
        assert result.ended[i] == expected[i]
    assert len(result.ended[1]) > 0  # it went on


@pytest.mark.parametrize("setup", [SERIAL, PROCESS, ASYNCIO], ids=lambda setup: setup.name)
def test_a_first_reset_that_raises_is_tried_again_as_it_was(setup: Setup, traps: Traps) -> None:
    traps.set(1, "reset", "plain")
    with played("sync", trapped(setup, traps), on_fault=policy(), **setup.options) as envs:
        observations, infos = envs.reset(seed=3)
    assert infos[1]["fault"].retry == infos[1]["retry"] == 1
    with played("sync", trapped(SERIAL, traps), backend="serial") as envs:
        assert np.array_equal(envs.reset(seed=3)[0], observations)


def test_a_reset_with_a_seed_is_the_callers_own_episode(traps: Traps) -> None:
    with played("sync", trapped(SERIAL, traps), on_fault=policy(), backend="serial") as envs:
        envs.reset(seed=3)
        traps.set(1, "step", "plain")
        infos = envs.step([1] * COUNT).infos
        assert infos[1]["fault"].retry == 1
        _, infos = envs.reset(seed=[8], env_ids=[1])
        assert infos[1]["seed"] == 8
        assert "retry" not in infos[1]
        traps.set(1, "step", "plain")
        infos = envs.step([1] * COUNT, env_ids=None).infos
        assert infos[1]["fault"].retry == 1  # counted anew


def test_options_begin_the_retry_too(traps: Traps) -> None:
    options = {"length": 9}
    with played("sync", trapped(SERIAL, traps), on_fault=policy(), backend="serial") as envs:
        envs.reset(seed=3, options=options)
        traps.set(1, "step", "plain")
        envs.step([1] * COUNT)
        _, infos = envs.reset(env_ids=[1])
        assert infos[1]["options"] == options
        assert infos[1]["retry"] == 1
        traps.set(1, "step", "plain")
        envs.step([1] * COUNT)
        _, infos = envs.reset(env_ids=[1], options={"length": 7})
        assert infos[1]["options"] == {"length": 7}
        assert infos[1]["seed"] == 4


def test_an_episode_that_was_restored_is_not_tried_again(traps: Traps) -> None:
    with played("sync", trapped(SERIAL, traps), on_fault=policy(), backend="serial") as envs:
        envs.reset(seed=3)
        envs.step([1] * COUNT)
        envs.restore(envs.snapshot())
        traps.set(1, "step", "plain")
        assert envs.step([1] * COUNT).infos[1]["fault"].retry == 0


def test_what_is_replayed_needs_no_retry(traps: Traps) -> None:
    """Under ``replay`` only what failed begins again; its neighbour goes on where it was."""
    with played(
        "sync", trapped(PROCESS, traps), on_fault=policy(mode="replay"), **PROCESS.options
    ) as envs:
        envs.reset(seed=3)
        envs.step([1] * COUNT)
        traps.set(1, "step", "kill")
        infos = envs.step([1] * COUNT).infos
        assert infos[1]["fault"].retry == 1
        assert "fault" not in infos[0]
        _, infos = envs.reset(env_ids=[0, 1])
        assert "retry" not in infos[0]
        assert infos[1]["retry"] == 1


def test_recycling_keeps_a_retry(traps: Traps) -> None:
    backend = agym.backends.Process(
        workers=1, start_method="fork", recycle=agym.Recycle(episodes=2)
    )
    setup = Setup("process", False, {"backend": backend})

    def before(k: int) -> None:
        if k in (7, 19, 27):
            traps.set(1, "step", "plain")

    result = run(setup, "plain", "next_step", traps, before, rounds=40)
    for ended, expected in zip(result.ended, undisturbed("next_step", 40), strict=True):
        assert is_prefix(ended, expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("raise", {"retry": 1}), "replaces none"),
        (("restart", {"retry": -1}), "retry"),
        (("restart", {"retry": 1.5}), "retry"),
    ],
)
def test_what_cannot_be_retried_is_refused(arguments: Any, words: str) -> None:
    mode, keywords = arguments
    with pytest.raises(agym.UsageError, match=words):
        agym.FaultPolicy(mode, **keywords)


def test_one_program_of_all_environments_is_refused() -> None:
    with pytest.raises(agym.UsageError, match="retry=2 replays the episode"):
        agym.make("CartPole-v1", 2, backend="vector", on_fault=policy())


def test_without_it_no_fault_says_so(traps: Traps) -> None:
    with played("sync", trapped(SERIAL, traps), on_fault="restart", backend="serial") as envs:
        envs.reset(seed=3)
        traps.set(1, "step", "plain")
        assert envs.step([1] * COUNT).infos[1]["fault"].retry == 0
        assert "retry" not in envs.reset(env_ids=[1])[1][1]
