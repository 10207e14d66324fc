"""Measures what this machine's backends cost, as it is paid.

Environments that compute are stepped in this thread and on all workers at once, in turns, for steps
from a few microseconds to some milliseconds. What comes out are curves, with their errors
(:class:`agym.planning.model.Curve`). All other costs are constants.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from agym._system.load import OtherLoad
from agym.api.auto.bench import Bench, IdleOnLoop
from agym.backends.asyncio import AsyncioBackend
from agym.backends.process.backend import ProcessBackend
from agym.backends.serial import SerialBackend
from agym.backends.thread import ThreadBackend
from agym.planning.model import Cost, Curve, Machine, worker_counts
from agym.planning.typical import plausible

# The cost per environment is the difference between a batch of this many and of one.
MANY = 64

# The cost per byte is the difference between an observation of this many bytes and a small one.
LARGE = 200_000

INFO = {"lives": 3, "frame_number": 12, "distance": 0.5}
LARGE_INFO = {"array": np.zeros(LARGE, np.uint8)}

# Environments per worker while curves are measured, and the work of a worker per batch, in seconds.
PER_WORKER, WORK = 4, (20e-6, 60e-6, 200e-6, 600e-6, 2e-3, 6e-3)

# The longest batch in this thread: with many workers the longest work is left out.
LONGEST = 25e-3

# How often each point of a curve is measured, for how many seconds, and for how many batches.
ROUNDS, POINT_SECONDS, POINT_BATCHES = 15, 4e-3, 2

# Threads and seconds of each, to measure threads that wait at the same time.
WAITING_THREADS, WAITING_SECONDS = 8, 1e-3

# Called with the share of the measurement that is done, 0 to 1.
Progress = Callable[[float], None]


def measure_machine(cores: int, on_progress: Progress | None = None) -> Machine:
    """Measure all backends; processes with one worker, two, four, up to one per core."""
    report = on_progress or (lambda share: None)
    others = OtherLoad()
    report(0.0)
    costs = _measure_costs()
    counts = worker_counts(cores)
    curves, starts = {}, {}
    for i, workers in enumerate(counts):
        report((1 + i) / (1 + len(counts)))
        curves[workers], starts[workers] = measure_curve(workers)
    return Machine(cores, costs, curves, starts, others.cores(), time.time())


def measure_curve(workers: int) -> tuple[Curve, float]:
    """Measure how long batches take on worker processes that all compute at the same time.

    Each point is measured in turns with the same work in this thread, so that whatever changes the
    machine's speed changes both.

    Returns:
        The curve, and the seconds that the workers took to start.
    """
    num_envs = PER_WORKER * workers
    with (
        Bench(SerialBackend, num_envs) as here,
        Bench(ProcessBackend, num_envs, workers) as there,
    ):
        here.set("turns", 100)
        turn = here.seconds() / num_envs / 100
        sizes = [
            max(1, round(work / PER_WORKER / turn)) for work in WORK if work * workers <= LONGEST
        ]
        pairs: dict[int, list[tuple[float, float]]] = {turns: [] for turns in sizes}
        for _ in range(ROUNDS):
            for turns in pairs:
                both = []
                for bench in (here, there):
                    bench.set("turns", turns)
                    bench.seconds(POINT_SECONDS / 4, 1)  # caches fill, and sleepers wake up
                    both.append(bench.seconds(POINT_SECONDS, POINT_BATCHES))
                pairs[turns].append((both[0] / workers, both[1]))
    return _curve([*pairs.values()]), there.start


def _curve(points: list[list[tuple[float, float]]]) -> Curve:
    """Sum up points, each of which was measured several times as (work alone, batch)."""
    work, usual, worst = [], [], []
    for pairs in points:
        # On a shared machine a worker now and then has no core for a while, and the batch takes
        # twice as long. How often that happens matters, so this is the mean and not the median.
        ratios = sorted(batch / alone for alone, batch in pairs)[:-1]
        work.append(median(alone for alone, _ in pairs))
        usual.append(fmean(ratios))
        worst.append(usual[-1] + stdev(ratios) / len(ratios) ** 0.5)
    work.sort()
    times = ([x * ratio for x, ratio in zip(work, falling(r), strict=True)] for r in (usual, worst))
    # More work takes no less time, whatever was measured.
    return Curve(tuple(work), *(tuple(np.maximum.accumulate(t).tolist()) for t in times))


def falling(values: Sequence[float]) -> list[float]:
    """Return the falling sequence that is nearest to some values, by least squares.

    The more work, the less does overhead matter; where the measurements say otherwise, neighbours
    are averaged until they fall (the pool-adjacent-violators algorithm).
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (before, many), (last, more) = pools[-2:]
            pools[-2:] = [((before * many + last * more) / (many + more), many + more)]
    return [value for value, count in pools for _ in range(count)]


def _measure_costs() -> dict[str, Cost]:
    """Measure the constant costs."""
    with Bench(SerialBackend) as one, Bench(SerialBackend, MANY) as many:
        single = one.seconds()
        host = max(0.0, many.seconds() - single) / (MANY - 1)
        one.set("seconds", WAITING_SECONDS)
        waited = one.seconds() - single
    with Bench(SerialBackend, size=LARGE) as large:
        byte = max(0.0, large.seconds() - single) / LARGE
    packing = _packing(INFO)
    packed = max(0.0, _packing(LARGE_INFO) - packing) / LARGE
    here = {"host": host, "byte": byte, "info": packing / 4, "info_byte": packed / 4}
    own = Cost(batch=max(0.0, single - host), **here)

    count = WAITING_THREADS
    with Bench(ThreadBackend) as one, Bench(ThreadBackend, count, count) as eight:
        for bench in (one, eight):
            bench.set("seconds", WAITING_SECONDS)
        thread = max(0.0, one.seconds() - waited)
        turn = max(0.0, eight.seconds() - waited - thread) / (count - 1)
    threads = Cost(batch=max(0.0, thread - turn - host), worker=turn, **here)

    with (
        Bench(AsyncioBackend, env=IdleOnLoop) as one,
        Bench(AsyncioBackend, MANY, env=IdleOnLoop) as many,
    ):
        loop = one.seconds()
        task = max(host, many.seconds() - loop) / (MANY - 1)
    loops = Cost(batch=max(0.0, loop - task), **{**here, "host": task})
    processes = Cost(host=host, byte=byte, info=packing, info_byte=packed)
    measured = {"serial": own, "thread": threads, "asyncio": loops, "process": processes}
    return {name: plausible(name, cost) for name, cost in measured.items()}


def _packing(info: dict[str, Any]) -> float:
    """Measure the seconds to pickle and unpickle an info."""
    times = []
    for _ in range(50):
        begun = time.perf_counter()
        pickle.loads(pickle.dumps(info, pickle.HIGHEST_PROTOCOL))
        times.append(time.perf_counter() - begun)
    return median(times)
