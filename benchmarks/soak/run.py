"""Soak: steps environments while faults are injected, and checks every row.

There are two independent sources of faults: ``agym.chaos`` injects from outside, and ``ChaoticEnv``
probes crash, hang and raise by themselves and write that to a file first::

    chaos.injections ----.                      .--> faults after which an environment stepped again
    diary of probes --+--> injected          |
    envs.step, send --+--> rows --> accountant --> lost, duplicated
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import psutil

from agym import AsyncEnvs, FaultPolicy, make_async
from agym.errors import AgymError, StepTimeout, WorkerDied
from agym.faults.chaos import Chaos, chaos
from benchmarks.measuring.progress import Announce
from benchmarks.soak.accountant import Accountant
from benchmarks.soak.probes import ChaoticEnv, CounterEnv
from benchmarks.soak.records import Plan, SoakResult

T = TypeVar("T")

# Deadline of an operation in seconds; each hang costs this much.
TIMEOUT = 1.0

# Seconds that a delayed step takes longer.
DELAY = 0.1

# Mix of chaos's injections; a kill costs a worker's start, a hang the deadline as well.
MIX = {"error": 0.7, "kill": 0.15, "hang": 0.05, "delay": 0.1}

# Injections per second of undisturbed steps, unless the user sets a chance.
STRIKES_PER_SECOND = 6.0

# Probabilities of the probes' own faults, per step of each.
CHAOTIC: dict[str, Any] = {
    "crash": 1 / 8_000,
    "hang": 1 / 30_000,
    "error": 1 / 2_500,
    "leak": 1 / 1_000,
}

# Kinds that count as faults: a delay does not, and a leak shows only in memory.
FATAL = {"kill", "hang", "error", "crash"}

# Rounds of one way of stepping, and rounds between two renders.
ROUNDS, RENDERS = 50, 10

# Seconds without a result after which agym counts as hung, in spite of its deadline.
PATIENCE = 60.0

# Maximum number of rounds without chaos for environments to step again.
LAST_ROUNDS = 200


async def soak_envs(plan: Plan, announce: Announce) -> SoakResult:
    """Run a soak.

    Raises:
        AgymError: Something did not return, or was raised in spite of ``on_fault``.
    """
    async with make_async(CounterEnv, 1, backend="process", workers=1) as envs:
        await envs.reset()  # opens descriptors that stay open for good
    result = SoakResult(descriptors=[_descriptors()])
    before = _processes()
    asyncio.get_running_loop().set_exception_handler(partial(_note_error, result))
    with TemporaryDirectory(prefix="agym-soak-") as folder:
        diary = Path(folder, "diary")
        async with make_async(
            [_factory(i, str(diary)) for i in range(plan.num_envs)],
            backend="process", workers=plan.workers, timeout=TIMEOUT,
            on_fault=FaultPolicy(plan.on_fault, max_restarts=10**9),
        ) as envs:  # fmt: skip
            result.descriptors.append(_descriptors())
            await Soak(plan, envs, diary, result, announce).run()
            result.descriptors.append(_descriptors())
    result.descriptors.append(_descriptors())
    result.left = len(_processes() - before)
    return result


def _factory(i: int, diary: str) -> Callable[[], CounterEnv]:
    """Return a factory of one of eight kinds of environments."""
    kinds: tuple[Callable[[], CounterEnv], ...] = (
        CounterEnv,
        partial(CounterEnv, seconds=0.001),
        partial(CounterEnv, informs=True),
        partial(CounterEnv, leaks=20_000),
        partial(ChaoticEnv, name=str(i), diary=diary, **CHAOTIC),
        partial(CounterEnv, length=5),
        partial(CounterEnv, length=200, informs=True),
        partial(CounterEnv, length=1000),
    )
    return kinds[i % len(kinds)]


def _note_error(
    result: SoakResult, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    error = context.get("exception")
    lines = [] if error is None else traceback.format_exception(error)
    result.errors.append("".join([f"{context['message']}\n", *lines]))


def _descriptors() -> int:
    return int(psutil.Process().num_fds())


def _processes() -> set[Any]:
    return set(psutil.Process().children(recursive=True))


class Soak:
    """Steps environments under chaos until the time is up."""

    def __init__(
        self, plan: Plan, envs: AsyncEnvs, diary: Path, result: SoakResult, announce: Announce
    ) -> None:
        """Take opened ``envs``, the probes' ``diary``, and a ``result`` to fill in."""
        self._plan = plan
        self._envs = envs
        self._diary = diary
        self._read = 0
        self._result = result
        self._announce = announce
        self._accountant = Accountant(plan.num_envs)
        self._chaos: Chaos | None = None
        self._noted = 0
        self._rng = np.random.default_rng(plan.seed)
        self._all = np.arange(plan.num_envs)
        self._deeds: Counter[str] = Counter()
        # Samples of time, memory of this process, memory of the workers.
        self._samples: list[tuple[float, float, float]] = []

    async def run(self) -> None:
        plan, result = self._plan, self._result
        self._begun = time.monotonic()
        await self._reset(None, plan.seed)
        chance = plan.chance
        if chance is None:
            chance = await self._measure_chance(min(1.0, plan.seconds / 10))
        result.chance = chance
        rates: dict[str, Any] = {kind: chance * part for kind, part in MIX.items()}
        with chaos(self._envs, **rates, seed=plan.seed, delay_seconds=DELAY) as self._chaos:
            while self._elapsed < plan.seconds:
                await self._step_all()
                await self._reset_some()
                await self._step_halves()
        await self._let_survive()
        self._fill_in(result)

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    async def _measure_chance(self, seconds: float) -> float:
        """Find the chance that gives ``STRIKES_PER_SECOND``."""
        steps, started = self._accountant.steps, time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            await self._step_once()
        rate = max(self._accountant.steps - steps, 1) / max(elapsed, seconds)
        return min(STRIKES_PER_SECOND / rate, 0.1)

    # ---------------------------------------------------------------- ways to step

    async def _step_all(self) -> None:
        """Step all environments and wait for all, sometimes with a render behind the step."""
        for i in range(ROUNDS):
            if self._elapsed > self._plan.seconds:
                break
            await self._step_once(render=i % RENDERS == 0)

    async def _step_once(self, *, render: bool = False) -> None:
        actions = self._actions(len(self._all))
        self._accountant.send(self._all, actions)
        pending = self._envs.step(actions)
        self._note_injections()
        frame = self._envs.render([int(self._rng.choice(self._all))]) if render else None
        self._account(self._all, *await self._within(pending))
        if frame is not None:
            try:
                await self._within(frame)
            except (WorkerDied, StepTimeout):
                self._result.refused += 1

    async def _step_halves(self) -> None:
        """Send all environments, then resend the half that finishes first; finally wait for all."""
        self._send(self._all)
        half = max(1, len(self._all) // 2)
        for _ in range(ROUNDS):
            if self._elapsed > self._plan.seconds:
                break
            env_ids = await self._receive(half)
            self._send(env_ids)
        while self._accountant.missing:
            await self._receive(len(self._all))

    def _send(self, env_ids: Any) -> None:
        actions = self._actions(len(env_ids))
        self._accountant.send(env_ids, actions)
        self._envs.send(actions, env_ids)
        self._note_injections()

    async def _receive(self, count: int) -> Any:
        batch = await self._within(self._envs.recv(count))
        self._account(*batch)
        return batch.env_ids

    async def _reset_some(self) -> None:
        ids = np.sort(self._rng.choice(self._all, min(3, len(self._all)), replace=False))
        await self._reset(ids.tolist(), None)

    async def _reset(self, ids: list[int] | None, seed: int | None) -> None:
        result = await self._within(self._envs.reset(seed, env_ids=ids))
        self._accountant.reset(self._all.tolist() if ids is None else ids, *result)

    def _actions(self, count: int) -> Any:
        return self._rng.integers(0, 2, count)

    async def _within(self, pending: Awaitable[T]) -> T:
        started = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                return await pending
        except TimeoutError as error:
            if isinstance(error, AgymError) and time.monotonic() - started < PATIENCE:
                raise
            raise AgymError(
                f"nothing arrived for {PATIENCE:g} s, after {self._accountant.steps} steps and"
                f" {self._injected()} faults (seed {self._plan.seed})"
            ) from error

    # ---------------------------------------------------------------- accounts

    def _account(self, env_ids: Any, *columns: Any) -> None:
        faults = self._accountant.faults.total()
        self._accountant.receive(env_ids, *columns)
        if self._accountant.faults.total() > faults:
            self._read_diary()  # before the culprit's next row
        if not self._samples or self._elapsed - self._samples[-1][0] >= 1.0:
            self._sample()

    def _note_injections(self) -> None:
        """Record new injections of chaos."""
        if self._chaos is not None and len(self._chaos.injections) > self._noted:
            new = self._chaos.injections[self._noted :]
            self._noted += len(new)
            self._accountant.inject(
                injection.env_id for injection in new if injection.kind in FATAL
            )

    def _read_diary(self) -> None:
        """Record new faults of the probes."""
        if not self._diary.exists():  # not written yet
            return
        with self._diary.open("rb") as file:
            file.seek(self._read)
            lines = file.read().decode().splitlines()
            self._read = file.tell()
        for line in lines:
            name, deed = line.split()
            self._deeds[deed] += 1
            if deed in FATAL:
                self._accountant.inject([int(name)])

    def _injected(self) -> int:
        injections: Mapping[str, int] = {} if self._chaos is None else self._chaos.injected
        counts = [*injections.items(), *self._deeds.items()]
        return sum(count for kind, count in counts if kind in FATAL)

    def _sample(self) -> None:
        workers = self._envs.stats().workers
        rss = float(psutil.Process().memory_info().rss)
        self._samples.append((self._elapsed, rss, float(sum(w.rss or 0 for w in workers))))
        account = self._accountant
        self._announce(
            f"{self._elapsed:.0f}/{self._plan.seconds:g} s, {account.steps:,} steps,"
            f" {self._injected()} faults, {account.lost} lost, {account.duplicated} duplicated"
        )

    async def _let_survive(self) -> None:
        """Step without chaos until every environment with a fault has stepped again."""
        for _ in range(LAST_ROUNDS):
            await self._step_once()
            self._read_diary()
            if not self._accountant.unresolved:
                break

    def _fill_in(self, result: SoakResult) -> None:
        account = self._accountant
        result.seconds = self._elapsed
        result.steps = account.steps
        result.injections = {} if self._chaos is None else self._chaos.injected
        result.deeds = dict(sorted(self._deeds.items()))
        result.faults = dict(sorted(account.faults.items()))
        result.injected = self._injected()
        result.survived = account.survived
        result.lost = account.lost
        result.duplicated = account.duplicated
        result.bystanders = account.bystanders
        result.restarts = sum(worker.restarts for worker in self._envs.stats().workers)
        times, here, workers = np.array(self._samples[len(self._samples) // 5 :]).T
        if len(times) > 1:
            result.memory = float(np.polyfit(times, here, 1)[0])
            result.worker_memory = float(np.polyfit(times, workers, 1)[0])
