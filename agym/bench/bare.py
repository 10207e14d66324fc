"""The bounds: environments in a plain loop, with no runner around them.

``bare environment`` is one core with a single environment, whose memory stays in the cache.
``bare at once`` is what a runner could reach at best: every worker loops over its share of the
environments, all at the same time. It is less than the first times the workers where cores
share an execution unit, a cache or a clock rate, as the two halves of a hyper-threaded core do.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from contextlib import suppress
from itertools import cycle, pairwise
from multiprocessing.connection import Connection
from typing import Any

import gymnasium

from agym.bench.results import AT_ONCE, BARE
from agym.bench.system import System
from agym.bench.works import Actions, Work, sample_actions


class Bare(System):
    """A plain loop over one environment: what one core can do."""

    name = BARE
    _over = False

    def make(self, work: Work, workers: int) -> gymnasium.Env[Any, Any]:
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


class BareAtOnce(System):
    """A plain loop in each worker, all at the same time: what the machine can do."""

    name = AT_ONCE

    def make(self, work: Work, workers: int) -> list[Connection]:
        """Start the workers; each has its share of the environments."""
        context = multiprocessing.get_context("spawn")
        workers = min(workers, work.num_envs)
        bounds = [work.num_envs * k // workers for k in range(workers + 1)]
        self._processes, ends = [], []
        for start, stop in pairwise(bounds):
            ours, theirs = context.Pipe()
            process = context.Process(target=_loop, args=(theirs, work, stop - start), daemon=True)
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
        """Have every worker loop for so long; gives their steps per second together."""
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


def _loop(end: Connection, work: Work, count: int) -> None:
    """Be a worker: whenever it is told a time, loop for so long and tell the steps per second."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    actions = cycle(sample_actions(Work(work.env_id, count)).rows)
    envs = [work.factory() for _ in range(count)]
    over = [False] * count
    for env in envs:
        env.reset(seed=0)
    end.send(count)
    with suppress(EOFError):
        while True:
            seconds = end.recv()
            rounds, elapsed, begun = 0, 0.0, time.perf_counter()
            while elapsed < seconds:
                for i, (env, action) in enumerate(zip(envs, next(actions), strict=True)):
                    if over[i]:
                        env.reset()
                        over[i] = False
                    else:
                        _, _, terminated, truncated, _ = env.step(action)
                        over[i] = terminated or truncated
                rounds += 1
                elapsed = time.perf_counter() - begun
            end.send(rounds * count / elapsed)
