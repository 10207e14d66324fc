"""Faults at random moments: no transition is lost, done twice, or given to another environment.

Every observation of a trapped environment names its episode (by a random draw), its step and the
action that led to it, so that each result can be held against what was sent.
With AGYM_FAULT_SEEDS there are more scripts.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import Any

import pytest

import agym
from tests.support.drivers import Setup
from tests.support.envs.trapped_envs import Traps
from tests.support.patience import deadline
from tests.support.scenarios import (
    ASYNCIO,
    COROUTINES,
    PROCESS,
    THREAD,
    over,
    trapped,
    wait_for_threads,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:worker . a thread:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:worker .*left behind:RuntimeWarning"),
]

MISHAPS = {
    "process": ["kill", "exit", "plain", "hang", "unpicklable"],
    "process-coroutines": ["kill", "exit", "plain", "hang", "never"],
    "thread": ["hang", "plain", "abrupt"],
    "asyncio": ["hang", "never", "plain"],
}
COUNT = 6


class Watcher:
    """What each environment must come with next; ``None`` where a fault may have cut it off."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.draw: list[float | None] = [None] * COUNT
        self.step = [0] * COUNT
        self.over = [False] * COUNT
        self.last: list[Any] = [None] * COUNT
        self.faults = 0

    def saw_reset(self, i: int, observation: Any, info: dict[str, Any]) -> None:
        draw, step, action = observation.tolist()
        assert (step, action) == (0, -1)
        assert draw == 100 * info["draw"]
        self.faults += "fault" in info
        self.begin(i, draw, observation)

    def begin(self, i: int, draw: float, observation: Any) -> None:
        assert draw != self.draw[i], "the same episode again"
        self.draw[i], self.step[i], self.over[i] = draw, 0, False
        self.last[i] = observation.tolist()

    def saw_step(self, i: int, action: int, row: tuple[Any, ...]) -> None:
        observation, reward, terminated, truncated, info = row
        now = observation.tolist()
        if "fault" in info:
            self.faults += 1
            fault = info["fault"]
            assert fault.env_id == i
            assert (reward, terminated, truncated) == (0.0, False, True)
            final = info["final_obs"].tolist() if self.mode == "same_step" else now
            assert final == self.last[i], "not the last known observation"
            self.ends(i, observation, info)
        elif self.over[i] and self.mode == "next_step":
            assert (reward, terminated, truncated) == (0.0, False, False)
            self.saw_reset(i, observation, info)
        elif self.over[i]:  # disabled: it holds still
            assert (now, reward) == (self.last[i], 0.0)
            assert terminated or truncated
        else:
            final = info["final_obs"].tolist() if "final_obs" in info else now
            self.step[i] += 1
            assert final == [self.draw[i], self.step[i], action]
            assert reward == final[0] + self.step[i] / 16
            if terminated:
                self.last[i] = now
                self.ends(i, observation, info)
            else:
                self.last[i] = now

    def ends(self, i: int, observation: Any, info: dict[str, Any]) -> None:
        if self.mode == "same_step":
            assert observation[1:].tolist() == [0, -1]
            self.begin(i, observation[0], observation)
        else:
            self.over[i] = True


@over(PROCESS, COROUTINES, THREAD, ASYNCIO)
@pytest.mark.parametrize(
    ("mode", "on_fault"),
    [("next_step", "replay"), ("same_step", "restart"), ("disabled", "replay")],
)
@pytest.mark.parametrize("seed", range(int(os.environ.get("AGYM_FAULT_SEEDS", "1"))))
async def test_whole_batches_and_parts(
    setup: Setup, mode: str, on_fault: str, seed: int, traps: Traps
) -> None:
    chance = random.Random(f"{setup.name} {mode} {on_fault} {seed}")
    watcher = Watcher(mode)
    async with _opened(setup, traps, on_fault, autoreset=mode) as envs:
        await _reset(envs, watcher, [*range(COUNT)], chance)
        for _ in range(28):
            await _meddle(envs, setup, traps, chance)
            ids = [*range(COUNT)]
            if chance.random() < 0.5:
                ids = sorted(chance.sample(ids, chance.randint(1, COUNT)))
            what = chance.random()
            if what < 0.1:
                await _reset(envs, watcher, ids, chance)
            elif what < 0.2:
                await _ask(envs, ids)
            else:
                await _step(envs, watcher, ids, chance)
        traps.release()
    wait_for_threads()


def _opened(setup: Setup, traps: Traps, on_fault: Any, **options: Any) -> agym.AsyncEnvs:
    policy = agym.FaultPolicy(on_fault, max_restarts=1000)
    options = {"timeout": deadline(0.4), "on_fault": policy, **options}
    return agym.make_async(trapped(setup, traps, COUNT), **{**setup.options, **options})


async def _meddle(envs: Any, setup: Setup, traps: Traps, chance: random.Random) -> None:
    """Lay a trap, or kill a worker."""
    kind = chance.random()
    what = chance.choice(MISHAPS[setup.name])
    if kind < 0.15 and not (what in ("hang", "never") and chance.random() < 0.6):
        where = chance.choice(["step", "step", "step", "reset"])
        traps.set(chance.randrange(COUNT), where, what)
    elif kind < 0.18 and setup in (PROCESS, COROUTINES):
        pid = chance.choice([worker.pid for worker in envs.stats().workers])
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    elif kind < 0.22:
        traps.release()  # what was left behind comes back
        await asyncio.sleep(0.02)
        traps.hold()


async def _reset(envs: Any, watcher: Watcher, ids: list[int], chance: random.Random) -> None:
    seed = chance.choice([None, chance.randrange(10**6)])
    seeds = None if seed is None else [seed + i for i in ids]
    observations, infos = await envs.reset(seed=seeds, env_ids=ids)
    for i in ids:
        watcher.saw_reset(i, observations[i], infos[i])
    for i in {*range(COUNT)} - {*ids}:
        assert observations[i].tolist() == watcher.last[i], "of an environment that was not reset"


async def _ask(envs: Any, ids: list[int]) -> None:
    try:
        frames = await envs.render(ids)
    except (agym.WorkerDied, agym.StepTimeout):
        return
    assert len(frames) == len(ids)


async def _step(envs: Any, watcher: Watcher, ids: list[int], chance: random.Random) -> None:
    actions = [chance.randrange(10) for _ in ids]
    if chance.random() < 0.4:
        envs.send(actions, ids)
        sent, got = dict(zip(ids, actions, strict=True)), set()
        async for batch in envs.as_completed(min_envs=chance.randint(1, 3)):
            for k, i in enumerate(batch.env_ids.tolist()):
                assert i not in got, "received twice"
                got.add(i)
                watcher.saw_step(i, sent[i], _row(batch[1:], k))
        assert got == {*ids}, "lost"
        return
    result = await envs.step(actions, env_ids=ids)
    assert len(result.infos) == len(ids)
    for k, (i, action) in enumerate(zip(ids, actions, strict=True)):
        watcher.saw_step(i, action, _row(result, k))


def _row(columns: Any, k: int) -> tuple[Any, ...]:
    observations, rewards, terminated, truncated, infos = columns
    return observations[k], float(rewards[k]), bool(terminated[k]), bool(truncated[k]), infos[k]
