"""A program that raises, hangs or returns nonsense: what the caller is told, and what goes on."""

from __future__ import annotations

import asyncio
import threading
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

import agym
from tests.support.drivers import each_api, played
from tests.support.envs.vector_envs import Tally, Trap
from tests.support.patience import deadline

VECTOR: dict[str, Any] = {"backend": "vector", "autoreset": "next_step", "workers": 2}


class Traps:
    """A trap for each worker's program, in the order in which the first ones are made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_first: dict[int, Trap] = {}

    def make(self, num_envs: int, seed: int = 0, **keywords: Any) -> Tally:
        with self.lock:  # agym adds the id of the first environment to a seed
            trap = self.by_first.setdefault(seed, Trap())
        return Tally(num_envs, trap, **keywords)


@pytest.fixture
def traps() -> Traps:
    return Traps()


def options(**more: Any) -> dict[str, Any]:
    return {**VECTOR, "seed": 0, **more}


@each_api
@pytest.mark.parametrize("where", ["step", "reset"])
def test_all_environments_of_a_program_fail_at_once(api: str, where: str, traps: Traps) -> None:
    with played(api, traps.make, 8, **options()) as envs:
        envs.reset()
        traps.by_first[4].where = where
        with pytest.raises(agym.EnvError, match="environments 4 to 7 raised in") as caught:
            envs.step([0] * 8) if where == "step" else envs.reset()
        assert caught.value.env_ids == (4, 5, 6, 7)
        assert caught.value.operation == where
        assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(agym.ResetNeededError, match="environment 4 raised in its last"):
            envs.step([0] * 8)
        assert envs.step([1] * 4, env_ids=[0, 1, 2, 3]).rewards.tolist() == [1] * 4
        envs.reset(env_ids=[4, 5, 6, 7])
        assert envs.step([2] * 8).rewards.tolist() == [2] * 8
        assert [env.faults for env in envs.stats().envs] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("where", ["make", "step", "render", "close"])
@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_it_raises(error: BaseException, where: str) -> None:
    trap = Trap(where, error=error)

    def play() -> None:
        with played("sync", partial(Tally, trap=trap), 4, **{**VECTOR, "workers": 1}) as envs:
            envs.reset()
            envs.step([0] * 4)
            envs.render()

    told = f"environments 0 to 3 raised in {where}: {type(error).__name__}"
    with pytest.raises(agym.EnvError, match=told):
        play()
    assert trap.closed == (where != "make")


@each_api
def test_restart_makes_the_whole_program_again(api: str, traps: Traps) -> None:
    """What it returns is in ``test_slots.py``."""
    with played(api, traps.make, 8, **options(on_fault="restart", autoreset="disabled")) as envs:
        envs.reset(seed=5)
        traps.by_first[4].where = "step"
        for _ in range(3):  # the new program is not stepped before its first reset
            assert envs.step([2] * 8).truncated.tolist() == [False] * 4 + [True] * 4
        assert traps.by_first[4].made == [4, 4]
        assert traps.by_first[4].closed == 1
        envs.reset()
        assert envs.step([1] * 8).observations[:, 1].tolist() == [1] * 8


def test_a_reset_that_fails_is_done_again_by_another(traps: Traps) -> None:
    with played("sync", traps.make, 4, **options(on_fault="restart", workers=1)) as envs:
        traps.by_first[0].where = "reset"
        observations, _ = envs.reset(seed=3)
        assert observations[:, 1].tolist() == [0] * 4
        assert traps.by_first[0].made == [4, 4]
        assert envs.step([1] * 4).rewards.tolist() == [1] * 4


@each_api
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_step_that_hangs_is_left_behind(api: str, on_fault: str, traps: Traps) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "worker 1, a thread", RuntimeWarning)
        with played(
            api, traps.make, 4, **options(timeout=deadline(0.3), on_fault=on_fault)
        ) as envs:
            envs.reset(seed=0)
            gate = traps.by_first[2].gate = threading.Event()
            traps.by_first[2].gates_one_program = True
            if on_fault == "raise":
                with pytest.raises(agym.StepTimeout) as caught:
                    envs.step([1] * 4)
                assert caught.value.env_ids == (2, 3)
                envs.reset(env_ids=[2, 3])
                result = envs.step([2] * 4)
                assert result.observations[:, 1].tolist() == [2, 2, 1, 1]
            else:
                result = envs.step([1] * 4)
                assert result.truncated.tolist() == [False, False, True, True]
                assert [info["fault"].kind for info in result.infos[2:]] == ["timeout"] * 2
                assert envs.step([2] * 4).rewards.tolist() == [2, 2, 0, 0]
            gate.set()
    for thread in threading.enumerate():  # the one that was left behind comes back
        if thread.name == "agym-2":
            thread.join()


MISFITS = {
    "rows": "observations of 2 environments where 3",
    "shape": r"observations of shape \(3, 2\) where its space requires \(3, 3\)",
    "dtype": "observations of dtype float64 where its space requires int64",
    "none": "observations that do not fit",
    "rewards": r"returned rewards of shape \(2,\) where \(3,\) is expected",
    "flags": r"returned terminated of shape \(3, 1\) where \(3,\) is expected",
    "four": "must return",
    "info": "an info of type int, not a dict",
}


@pytest.mark.parametrize("wrong", MISFITS)
def test_results_that_do_not_fit(wrong: str) -> None:
    message = f"environments 0 to 2 raised in step: .*{MISFITS[wrong]}"
    with played("sync", Tally, 3, backend="vector", autoreset="next_step", wrong=wrong) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match=message):
            envs.step([0] * 3)


def test_chaos_hits_all_environments_of_a_program(traps: Traps) -> None:
    policy = agym.FaultPolicy("restart", max_restarts=99)
    with played("sync", traps.make, 6, **options(on_fault=policy)) as envs:
        envs.reset(seed=0)
        with agym.chaos(envs.envs, error=0.05, seed=1) as chaos:
            faults = [["fault" in info for info in envs.step([1] * 6).infos] for _ in range(60)]
        assert all(told == [told[0]] * 3 + [told[3]] * 3 for told in faults)
        assert np.sum(faults) >= chaos.injected["error"] > 0


async def test_the_loop_turns_while_it_steps() -> None:
    gate = threading.Event()
    trap = Trap(gate=gate)
    async with agym.make_async(partial(Tally, trap=trap), 4, backend="vector") as envs:
        await envs.reset()
        pending = envs.step([0] * 4)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not pending.done()
        gate.set()
        assert (await pending).observations[:, 1].tolist() == [1] * 4
        assert threading.get_ident() not in trap.threads
