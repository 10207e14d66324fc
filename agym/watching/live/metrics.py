"""The metrics: the numbers that a page shows next to the pictures.

Most of them come from :meth:`agym.Envs.stats`. Episodes are counted here, from the moment at which
the page is made, so that a browser that connects hours later shows the whole curve.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from agym import Tap
from agym.core.protocol.metrics.gauges import clock
from agym.errors import UsageError
from agym.rollouts.batched import BatchedPolicy, open_policies
from agym.watching.episode_totals import Ended, EpisodesHook, mean
from agym.watching.live.series import Series

# Number of latest episodes that are drawn as dots, and of which the means are shown.
DOTS, MEAN_OF = 200, 100

# Number of latest episodes, and of latest logged rows, that can be downloaded.
DOWNLOADED = 100_000

# Maximum number of names that a program may log: each is a chart.
MAX_NAMES = 32

# Seconds in the same step after which a worker is reported as stuck.
LONG_SECONDS = 1.0


class Metrics(EpisodesHook):
    """Metrics of the environments."""

    def __init__(self, tap: Tap) -> None:
        super().__init__(tap, steps=int(tap.steps().sum()))
        self._started = time.monotonic()
        # Each with the seconds since the page was made.
        self._finished: deque[tuple[Ended, float]] = deque(maxlen=DOWNLOADED)
        self._latest: deque[Ended] = deque(maxlen=DOTS)
        self._curve = Series(2)  # return and length
        self._logged: dict[str, Series] = {}
        self._rows: deque[tuple[int, str, float]] = deque(maxlen=DOWNLOADED)
        # Time, steps and busy seconds per worker at the last `read`, and what was read then.
        self._before: tuple[float, int, list[float]] | None = None
        # Time and calls of each batched policy at the last `read`.
        self._policy_calls: WeakKeyDictionary[BatchedPolicy, tuple[float, int]] = (
            WeakKeyDictionary()
        )

    @property
    def step(self) -> int:
        """Steps of all environments, since the page was made without those that reset them."""
        return self.episodes.steps

    def on_steps(self) -> None:
        """Keep the episodes that ended."""
        if not self.episodes.ended:
            return
        seconds = round(time.monotonic() - self._started, 3)
        for each in self.episodes.take():
            self._finished.append((each, seconds))
            self._latest.append(each)
            if math.isfinite(each.total):
                self._curve.add(each.step, (each.total, each.length))

    def log(self, values: Mapping[str, Any]) -> None:
        """Keep a program's own values, each under a name.

        Raises:
            UsageError: A value is not a number, or there are too many names.
        """
        numbers = {name: number(name, value) for name, value in values.items()}
        if len(self._logged.keys() | numbers.keys()) > MAX_NAMES:
            raise UsageError(f"the page has at most {MAX_NAMES} charts of logged values")
        for name, value in numbers.items():
            self._rows.append((self.step, name, value))
            if math.isfinite(value):
                known = self._logged.get(name) or Series(1)
                known.add(self.step, (value,))
                self._logged = {**self._logged, name: known}

    def episodes_csv(self) -> str:
        """Return the latest episodes as a table."""
        return table((*Ended._fields, "seconds"), ((*each, at) for each, at in [*self._finished]))

    def logged_csv(self) -> str:
        """Return the latest logged values as a table."""
        return table(("step", "name", "value"), [*self._rows])

    def read(self) -> dict[str, Any]:
        """Return all metrics in types that JSON supports. Callable from any thread.

        ``envs`` has ``[steps, episodes, running return, last return, p50, p99, faults]`` for each
        environment, with times in seconds and ``None`` for unknown values. ``dots`` are the latest
        episodes: ``[step, return, length, env, first step]``. ``curve`` has
        ``[step, mean return, mean length]`` of all episodes so far.
        """
        stats = self._tap.stats()
        now = time.monotonic()
        steps = sum(env.steps for env in stats.envs)
        busy = [worker.busy * stats.seconds for worker in stats.workers]
        before, self._before = self._before, (now, steps, busy)
        rate = step_seconds = None
        shares = list[float | None]([None] * len(busy))
        if before is not None and len(before[2]) == len(busy):  # else environments have moved
            seconds = max(1e-9, now - before[0])
            rate = (steps - before[1]) / seconds
            worked = max(0.0, sum(busy) - sum(before[2]))
            step_seconds = worked / (steps - before[1]) if steps > before[1] else None
            shares = [share((b - a) / seconds) for a, b in zip(before[2], busy, strict=True)]
        latest = [*self._latest]  # an atomic copy: the caller's thread may append at any time
        recent = [each for each in latest[-MEAN_OF:] if math.isfinite(each.total)]
        running = map(finite, self.episodes.totals.tolist())
        last = map(finite, self.episodes.last.tolist())
        return {
            "seconds": stats.seconds,
            "steps": self.step,
            "rate": rate,
            "step_seconds": step_seconds,
            "limit": stats.limit,
            "episodes": sum(env.episodes for env in stats.envs),
            "mean": finite(mean([each.total for each in recent])) if recent else None,
            "mean_length": mean([each.length for each in recent]) if recent else None,
            "dots": [[each.step, finite(each.total), *each[2:]] for each in latest],
            "curve": self._curve.points,
            "logged": {name: series.points for name, series in self._logged.items()},
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


def number(name: str, value: Any) -> float:
    """Return a logged value as a float.

    Raises:
        UsageError: It is not one number.
    """
    try:
        return float(np.asarray(value).item() + 0.0)  # adding refuses texts
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"page.log({name}={value!r}) must be a number") from None


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
