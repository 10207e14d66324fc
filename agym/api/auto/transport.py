"""Measures what this machine's backends cost in addition to the environments.

This uses environments that do nothing, takes about two seconds, and is remembered for the machine.
Most choices are so clear that it is not needed (see :func:`extremes`).
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agym._system.cpus import available_cores
from agym.api.sync import Envs
from agym.backends.asyncio import AsyncioBackend
from agym.backends.base import Backend, BackendOptions
from agym.backends.options import BackendSpec, Ray
from agym.backends.process.backend import ProcessBackend
from agym.backends.serial import SerialBackend
from agym.backends.spinning import SPIN_SECONDS
from agym.backends.thread import ThreadBackend
from agym.engine.engine import Engine
from agym.planning.caching import is_number, key_of, recall, remember
from agym.planning.model import Cost, Transport

# How many seconds each measurement takes.
SECONDS = 0.05

# Take this quantile of at most this many batches, since other programs only add time.
MOST_BATCHES, QUANTILE = 400, 0.1

# The cost per environment is the difference between a batch of this many and of one.
MANY = 64

# A measured cost may differ from the typical one by at most this factor.
PLAUSIBLE = 4.0

# The cost per byte is the difference between an observation of this many bytes and a small one.
LARGE = 200_000

INFO = {"lives": 3, "frame_number": 12, "distance": 0.5}
LARGE_INFO = {"array": np.zeros(LARGE, np.uint8)}


class Idle(gymnasium.Env[Any, Any]):
    """Does nothing, optionally for a given time."""

    action_space = spaces.Discrete(2)

    def __init__(self, size: int = 16, seconds: float = 0.0) -> None:
        """Take the size of observations in bytes, and the seconds that a step computes."""
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self._observation = np.zeros(size, np.uint8)
        self._info: dict[str, Any] = {}
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation, self._info

    def step(self, action: Any) -> Any:
        if self.seconds:
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        return self._observation, 0.0, False, False, self._info


class IdleOnLoop:
    """Does nothing, as a coroutine environment."""

    action_space = Idle.action_space

    def __init__(self, size: int = 16) -> None:
        self._idle = Idle(size)
        self.observation_space = self._idle.observation_space

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._idle.reset()

    async def step(self, action: Any) -> Any:
        return self._idle.step(action)

    async def close(self) -> None:
        """Do nothing."""


class Bench:
    """Idle environments on a backend, to be timed."""

    def __init__(
        self,
        backend: type[Backend],
        num_envs: int = 1,
        workers: int | None = None,
        env: type[Idle | IdleOnLoop] = Idle,
        size: int = 16,
        cluster: Ray | None = None,
    ) -> None:
        mode = AutoresetMode.NEXT_STEP
        idle = [_Idle(env, size)] * num_envs
        spec = replace(cluster or BackendSpec(), workers=workers)
        made = backend(BackendOptions(idle, mode, spec))
        self._envs: Envs[Any, Any] = Envs(Engine(made), "array")
        self._envs.reset()
        self._actions = np.zeros(num_envs, np.int64)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._envs.close()

    def seconds(self) -> float:
        """Measure the seconds per batch."""
        times: list[float] = []
        end = time.perf_counter() + SECONDS
        while len(times) < MOST_BATCHES and (time.perf_counter() < end or len(times) < 8):
            begun = time.perf_counter()
            self._envs.step(self._actions)
            times.append(time.perf_counter() - begun)
        return sorted(times)[int(len(times) * QUANTILE)]

    def compute(self, seconds: float) -> None:
        """Make each step compute for some seconds from now on."""
        self._envs.set_attr("seconds", seconds)


class _Idle:
    """A factory of idle environments, which can be pickled."""

    def __init__(self, env: type[Idle | IdleOnLoop], size: int) -> None:
        self._env = env
        self._size = size

    def __call__(self) -> Idle | IdleOnLoop:
        return self._env(self._size)


@cache
def this_machine() -> Transport:
    """Return this machine's costs, which are measured the first time and kept on disk.

    If they cannot be measured (for example, because no process can be started), return typical
    ones.
    """
    cores = available_cores()
    if (found := _recalled(cores)) is not None:
        return found
    try:
        transport = measure_transport(cores)
    except Exception:
        return Transport(cores, SPIN_SECONDS, TYPICAL)
    remember("transport", key_of("transport", cores), asdict(transport))
    return transport


def known() -> Transport:
    """Return this machine's remembered costs, or typical ones, without measuring."""
    cores = available_cores()
    return _recalled(cores) or typical(cores)


def _recalled(cores: int) -> Transport | None:
    found = recall("transport", key_of("transport", cores))
    with contextlib.suppress(TypeError, KeyError, AttributeError):
        if found is not None:
            costs = {name: Cost(**cost) for name, cost in found["costs"].items()}
            if all(is_number(n) for cost in costs.values() for n in asdict(cost).values()):
                return Transport(cores, SPIN_SECONDS, {name: costs[name] for name in TYPICAL})
    return None


def measure_transport(cores: int) -> Transport:
    """Measure all backends, with as many worker processes as there are cores."""
    with Bench(SerialBackend) as one, Bench(SerialBackend, MANY) as many:
        single = one.seconds()
        host = max(0.0, many.seconds() - single) / (MANY - 1)
    with Bench(SerialBackend, size=LARGE) as large:
        byte = max(0.0, large.seconds() - single) / LARGE
    batch = max(0.0, single - host)
    packing = _packing(INFO)
    packed = max(0.0, _packing(LARGE_INFO) - packing) / LARGE
    own = Cost(batch, 0.0, 0.0, host, byte, packing / 4, packed / 4)

    with Bench(ThreadBackend) as one, Bench(ThreadBackend, 8, 8) as eight:
        thread = one.seconds()
        turn = max(0.0, eight.seconds() - thread - 7 * host) / 7
    threads = Cost(max(0.0, thread - turn - host), turn, 0.0, host, byte, packing / 4, packed / 4)

    with (
        Bench(AsyncioBackend, env=IdleOnLoop) as one,
        Bench(AsyncioBackend, MANY, env=IdleOnLoop) as many,
    ):
        single = one.seconds()
        task = max(host, many.seconds() - single) / (MANY - 1)
    loops = Cost(max(0.0, single - task), 0.0, 0.0, task, byte, packing / 4, packed / 4)

    workers = max(2, cores)
    with Bench(ProcessBackend) as one, Bench(ProcessBackend, MANY * workers, workers) as many:
        single, every = one.seconds(), many.seconds()
        one.compute(2 * SPIN_SECONDS)
        slept = one.seconds() - 2 * SPIN_SECONDS
    worker = max(0.0, every - single - (MANY - 1) * host) / (workers - 1)
    # The cost of the first worker is part of that of the batch.
    processes = Cost(
        max(0.0, single - worker - host), worker, max(0.0, slept - single), host, byte,
        packing, packed,
    )  # fmt: skip
    measured = {"serial": own, "thread": threads, "asyncio": loops, "process": processes}
    costs = {name: _plausible(name, cost) for name, cost in measured.items()}
    # No backend costs less than serial, whose work is part of all others'.
    least = replace(costs["serial"], info=0.0, info_byte=0.0)
    return Transport(cores, SPIN_SECONDS, {n: _pointwise(max, c, least) for n, c in costs.items()})


def _plausible(backend: str, cost: Cost) -> Cost:
    """Limit costs that are remembered for long, because the machine may have been busy just now."""
    usual = TYPICAL[backend]
    cost = _pointwise(max, cost, _times(1 / PLAUSIBLE, usual))
    return _pointwise(min, cost, _times(PLAUSIBLE, usual))


def _times(factor: float, cost: Cost) -> Cost:
    return Cost(*(value * factor for value in asdict(cost).values()))


def _pointwise(function: Callable[[float, float], float], one: Cost, other: Cost) -> Cost:
    return Cost(*map(function, asdict(one).values(), asdict(other).values()))


def _packing(info: dict[str, Any]) -> float:
    """Measure the seconds to pickle and unpickle an info."""
    times = []
    for _ in range(50):
        begun = time.perf_counter()
        pickle.loads(pickle.dumps(info, pickle.HIGHEST_PROTOCOL))
        times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 4]


# The costs of a current machine, for use without a measurement.
TYPICAL = {
    "serial": Cost(10e-6, 0.0, 0.0, 0.6e-6, 0.1e-9, 1e-6, 0.1e-9),
    "thread": Cost(10e-6, 12e-6, 0.0, 0.6e-6, 0.1e-9, 1e-6, 0.1e-9),
    "asyncio": Cost(25e-6, 0.0, 0.0, 8e-6, 0.1e-9, 1e-6, 0.1e-9),
    "process": Cost(10e-6, 8e-6, 50e-6, 0.6e-6, 0.1e-9, 4e-6, 0.4e-9),
}


def typical(cores: int | None = None) -> Transport:
    """Return the costs of a current machine, without measuring this one."""
    return Transport(cores or available_cores(), SPIN_SECONDS, TYPICAL)


def extremes(cores: int | None = None) -> tuple[Transport, Transport]:
    """Return costs below and above any machine's: a choice that is best with both is certain.

    No cost is below the typical cost of serial, whose work is part of all others'.
    """
    low, high = dict(TYPICAL), dict(TYPICAL)
    for name in ("thread", "asyncio", "process"):
        high[name] = _times(PLAUSIBLE, TYPICAL[name])
        low[name] = _pointwise(max, _times(1 / PLAUSIBLE, TYPICAL[name]), TYPICAL["serial"])
    cores = cores or available_cores()
    return Transport(cores, SPIN_SECONDS, low), Transport(cores, SPIN_SECONDS, high)
