"""The bounds: baseline loops over environments, without a runner.

``bare environment`` is one core with a single environment, whose memory stays in the cache. ``bare
loop`` is one core with all environments. ``bare at once`` is the best a runner could reach: every
worker loops over its share of the environments, all at the same time. That is less than the number
of workers times the first where cores share an execution unit, a cache or a clock rate, as the two
halves of a hyper-threaded core do.
"""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import gymnasium

from benchmarks.measuring.workloads import Actions, Workload, sample_actions
from benchmarks.reports.results import AT_ONCE, BARE, LOOP
from benchmarks.systems.base import System


class Bare(System):
    """A loop over one environment: the bound of one core."""

    name = BARE
    _over = False

    def make(self, work: Workload, workers: int) -> gymnasium.Env[Any, Any]:
        return work.factory()

    def choose(self, actions: Actions) -> list[Any]:
        return actions.rows

    def step(self, actions: Any) -> None:
        env, over = self._envs, self._over
        for action in actions:
            if over:
                env.reset()
                over = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
        self._over = over


class BareLoop(System):
    """A loop over all environments: the bound of one core with all of them."""

    name = LOOP

    def make(self, work: Workload, workers: int) -> Loop:
        return Loop(work)

    def choose(self, actions: Actions) -> list[Any]:
        return actions.rows


class BareAtOnce(System):
    """A loop in each worker, all at the same time: the bound of the machine."""

    name = AT_ONCE
    loop: ClassVar[type[System]] = BareLoop

    def make(self, work: Workload, workers: int) -> list[Connection]:
        """Start the workers, each with its share of the environments."""
        context = multiprocessing.get_context("spawn")
        workers = min(workers, work.num_envs)
        bounds = [work.num_envs * k // workers for k in range(workers + 1)]
        self._processes, ends = [], []
        for start, stop in pairwise(bounds):
            ours, theirs = context.Pipe()
            arguments = theirs, self.loop, work, stop - start
            process = context.Process(target=_loop, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            ends.append(ours)
        return ends

    def reset(self) -> None:
        """Wait until the environments are made and reset."""
        for end in self._envs:
            end.recv()

    def run(self, seconds: float) -> float:
        """Run all loops for ``seconds``; return the sum of their steps per second."""
        for end in self._envs:
            end.send(seconds)
        rates: list[float] = [end.recv() for end in self._envs]
        return sum(rates)

    def close(self) -> None:
        for end in self._envs:
            end.close()
        for process in self._processes:
            process.join()
            process.close()


class Loop:
    """All environments of a workload, stepped one after the other."""

    def __init__(self, work: Workload) -> None:
        self._envs = [work.factory() for _ in range(work.num_envs)]
        self._over = [False] * work.num_envs

    def reset(self, seed: int | None = None) -> None:
        for env in self._envs:
            env.reset(seed=seed)

    def step(self, actions: list[Any]) -> None:
        """Step every environment once, or reset it if its episode is over."""
        over = self._over
        for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            if over[i]:
                env.reset()
                over[i] = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                over[i] = terminated or truncated

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _loop(end: Connection, kind: type[System], work: Workload, count: int) -> None:
    """Run in a worker: loop for each received number of seconds, and send the steps per second."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    work = replace(work, num_envs=count)
    loop = kind(work, sample_actions(work), 1)
    loop.reset()
    end.send(count)
    with suppress(EOFError, ConnectionError):  # the caller has closed its end
        while True:
            end.send(loop.run(end.recv()))
