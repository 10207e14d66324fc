"""The metrics: the numbers that a page shows next to the pictures.

Most of them come from :meth:`agym.Envs.stats`. Episode returns are counted here, but only while the
page has viewers.
"""

from __future__ import annotations

import math
import time
from collections import deque
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

from agym import Batch, Hook, StepResult, Tap
from agym.core.protocol.arguments import Ids
from agym.core.protocol.metrics.gauges import clock
from agym.rollouts.batched import BatchedPolicy, open_policies
from agym.watching.episode_totals import Episodes

# Number of latest episodes that are drawn and averaged.
EPISODES = 200

# Seconds in the same step after which a worker is reported as stuck.
LONG_SECONDS = 1.0


class Metrics(Hook):
    """Metrics of the environments."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        # The latest episodes: steps of all environments at the end, and return. ``None`` is a gap
        # in which no episodes were counted.
        self._returns: deque[tuple[int, float] | None] = deque(maxlen=EPISODES)
        self._ended = 0
        self._steps = 0
        self._episodes = Episodes(tap.num_envs, tap.autoreset)
        # Time, steps and busy seconds per worker at the last `read`.
        self._before: tuple[float, int, list[float]] | None = None
        # Time and calls of each batched policy at the last `read`.
        self._policy_calls: WeakKeyDictionary[BatchedPolicy, tuple[float, int]] = (
            WeakKeyDictionary()
        )

    def begin(self) -> None:
        """Start to count, after a time without viewers."""
        if self._returns and self._returns[-1] is not None:
            self._returns.append(None)
        # A step in progress is counted twice, now and when it ends: at most one per environment.
        self._steps = max(self._steps, int(self._tap.steps().sum()))
        last, self._before = self._episodes.last, None
        self._episodes = Episodes(self._tap.num_envs, self._tap.autoreset)
        self._episodes.last = last
        self._tap.add_hook(self)
        self._episodes.count_from_start(self._tap.unstepped())

    def end(self) -> None:
        """Stop counting, so that steps are as fast as without a page."""
        self._tap.remove_hook(self)

    def after_reset_sent(self, number: int, ids: Ids, *, restored: bool) -> None:
        self._episodes.reset(number, ids, restored=restored)

    def after_steps_lost(self, ids: Ids) -> None:
        self._episodes.lose(ids)

    def after_step(self, number: int | None, ids: Ids, result: StepResult | Batch) -> None:
        self._steps += len(ids)
        try:
            self._episodes.add(number, ids, result)
        except (RuntimeWarning, FloatingPointError):
            return  # infinite rewards, and the caller has turned warnings into errors
        if self._episodes.returns:
            returns, _ = self._episodes.take()
            self._ended += len(returns)
            self._returns.extend((self._steps, value) for value in returns)

    def read(self) -> dict[str, Any]:
        """Return all metrics in types that JSON supports. Callable from any thread.

        ``envs`` has ``[steps, episodes, running return, last return, p50, p99, faults]`` for each
        environment, with times in seconds and ``None`` for unknown values. ``returns`` has
        ``[steps, return]`` for each of the latest episodes, and ``None`` for a gap.
        """
        stats = self._tap.stats()
        now = time.monotonic()
        steps = sum(env.steps for env in stats.envs)
        busy = [worker.busy * stats.seconds for worker in stats.workers]
        before, self._before = self._before, (now, steps, busy)
        rate, shares = None, list[float | None]([None] * len(busy))
        if before is not None and len(before[2]) == len(busy):  # else environments have moved
            seconds = max(1e-9, now - before[0])
            rate = (steps - before[1]) / seconds
            shares = [share((b - a) / seconds) for a, b in zip(before[2], busy, strict=True)]
        latest = [*self._returns]  # an atomic copy: the caller's thread may append at any time
        returns = [each[1] for each in latest if each is not None]
        times = [env.p50 for env in stats.envs if env.p50 is not None]
        running = map(finite, self._episodes.totals.tolist())
        last = map(finite, self._episodes.last.tolist())
        return {
            "seconds": stats.seconds,
            "steps": steps,
            "rate": rate,
            "step_seconds": median(times) if times else None,
            "limit": stats.limit,
            "ended": self._ended,
            "mean": finite(sum(returns) / len(returns)) if returns else None,
            "returns": [each and [each[0], finite(each[1])] for each in latest],
            "stragglers": list(stats.stragglers),
            "envs": [
                [env.steps, env.episodes, total, final, env.p50, env.p99, env.faults]
                for env, total, final in zip(stats.envs, running, last, strict=True)
            ],
            "workers": [
                {
                    "ids": [worker.env_ids.start, worker.env_ids.stop],
                    "pid": worker.pid,
                    "busy": busy_share,
                    "restarts": worker.restarts,
                    "rss": worker.rss,
                    "stuck": self._stuck(worker.env_ids.start),
                }
                for worker, busy_share in zip(stats.workers, shares, strict=True)
            ],
            "policies": self._policies(),
        }

    def _policies(self) -> list[dict[str, Any]]:
        """Return metrics of this process's batched policies since the last call."""
        rows, calls_of = [], self._policy_calls
        for policy in open_policies():
            stats, now = policy.stats(), time.monotonic()
            then, calls = calls_of.get(policy, (now, stats.calls))
            calls_of[policy] = now, stats.calls
            rate = (stats.calls - calls) / (now - then) if now > then else None
            row = {"name": policy.name, "version": stats.version, "rate": rate}
            row |= {"batch": stats.batch_size, "wait": stats.wait_p50, "call": stats.call}
            rows.append(row)
        return sorted(rows, key=lambda row: str(row["name"]))

    def _stuck(self, first: int) -> float | None:
        """Return the seconds that a worker has been in the same step, if they are many."""
        gauges = self._tap.gauges
        began, ended = gauges.began[first], gauges.ended[first]
        seconds = (clock() - began) / 1e9
        return seconds if began > ended and seconds > LONG_SECONDS else None


def finite(value: float) -> float | None:
    """Return a value, or ``None`` if it is infinite or ``nan``, which JSON does not support."""
    return value if math.isfinite(value) else None


def share(value: float) -> float:
    """Clip to 0 and 1, because a worker reports the time of a long step all at once."""
    return min(1.0, max(0.0, value))
