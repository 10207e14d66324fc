"""``io``: how much longer a round takes than the wait that all its steps share.

Every environment waits equally long in every step and computes nothing, so the ideal round,
``await envs.step(actions)``, takes just as long for any number of environments. In turns with it,
as many plain coroutines wait on as many event loops: no runner of coroutines can be faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from agym import make_async
from benchmarks.measuring.event_loop import new_runner
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.progress import Announce, progress_bar
from benchmarks.measuring.waiting_envs import SleepingEnv, WaitingEnv
from benchmarks.reports.comparison import Compared, Comparison, show_comparison
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Verdict
from benchmarks.waiting.plain import PlainWaits

EXAMPLES = """Examples:

python -m benchmarks io

python -m benchmarks io --backend thread

python -m benchmarks io --backend process --num-envs 2000 --delay 0.5 --json result.json
"""

# The wait for which the targets below hold, in seconds.
DELAY = 0.1


class BackendLike(Enum):
    """Backends on which environments can wait."""

    asyncio = "asyncio"
    process = "process"
    thread = "thread"


@dataclass(frozen=True)
class Place:
    """A backend and its target.

    Attributes:
        backend: The backend.
        env: Makes an environment that waits ``seconds`` in every step.
        num_envs: Number of environments, by default and for the target.
        factor: Maximum time of a round relative to that of plain coroutines, or to the wait if the
            environments are not coroutine environments.
        workers: Number of workers for a number of environments, ``None`` without workers.
        where: What the environments share, in words.
    """

    backend: BackendLike
    env: Callable[[float], Any]
    num_envs: int
    factor: float
    workers: Callable[[int], int | None]
    where: str

    def loops(self, num_envs: int) -> int:
        """Return how many event loops plain coroutines share; 0 if there is no comparison."""
        return 0 if self.backend is BackendLike.thread else self.workers(num_envs) or 1

    def share(self, num_envs: int) -> int:
        return math.ceil(num_envs / (self.workers(num_envs) or 1))

    def name(self, num_envs: int) -> str:
        return f"{num_envs:,} environments {self.where}"


PLACES = (
    Place(BackendLike.asyncio, WaitingEnv, 1_000, 1.08, lambda n: None, "on one event loop"),
    Place(BackendLike.process, WaitingEnv, 10_000, 1.25, lambda n: 2, "over 2 worker processes"),
    Place(BackendLike.thread, SleepingEnv, 256, 1.2, lambda n: n, "in a thread each"),
)

# Backends that are measured by default.
DEFAULT = (BackendLike.asyncio, BackendLike.process)


def io(
    backend: Annotated[
        BackendLike | None,
        typer.Option(help="Backend to measure.", show_default="asyncio and process"),
    ] = None,
    num_envs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of environments.",
            show_default=", ".join(
                f"{place.num_envs:,} for {place.backend.value}" for place in PLACES
            ),
        ),
    ] = None,
    delay: Annotated[
        float, typer.Option(min=0.001, help="Seconds that each environment waits per step.")
    ] = DELAY,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to measure, after a warm-up.")] = 10,
    json: JsonFile = None,
) -> None:
    """Measure rounds of environments that wait, against plain coroutines that wait as long.

    Environments are coroutine environments; with --backend thread they block.
    """
    check_writable(json)
    wanted = DEFAULT if backend is None else (backend,)
    rows, targets = [], []
    with progress_bar(len(wanted)) as bar:
        for place in (place for place in PLACES if place.backend in wanted):
            count = num_envs or place.num_envs
            with bar.part(place.backend.value) as announce, new_runner() as runner:
                times, plain = runner.run(measure_rounds(place, count, delay, rounds, announce))
            wait = (1000 * delay,) * rounds
            row = Compared(place.name(count), times, plain or wait)
            rows.append(row)
            if plain:
                name = f"plain asyncio: {place.share(count):,} waits on each event loop"
                rows.append(Compared(name, plain, wait))
            if (count, delay) == (place.num_envs, DELAY):
                ideal = "plain asyncio" if plain else "the wait"
                target = f"{row.name}: a round against {ideal}"
                targets.append(Verdict.on_ratio(target, place.factor, row.ratio, at_most=True))
    settings = {
        "backends": [place.value for place in wanted], "num_envs": num_envs,
        "delay": delay, "rounds": rounds,
    }  # fmt: skip
    title = f"Rounds of environments that wait {1000 * delay:g} ms, median of {rounds}"
    comparison = Comparison(
        title, "ms", describe_machine(), settings, tuple(rows), targets=tuple(targets)
    )
    deliver(show_comparison(comparison), comparison.to_json(), json)


async def measure_rounds(
    place: Place, num_envs: int, delay: float, rounds: int, announce: Announce
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Make the environments and time their rounds.

    Returns:
        Milliseconds of each round but the first; the same of plain coroutines, if the
        environments are coroutine environments.
    """
    announce(f"making {num_envs:,} environments")
    times: list[float] = []
    plain: list[float] = []
    waits = PlainWaits(place.loops(num_envs), place.share(num_envs), delay)
    envs = make_async(
        partial(place.env, delay), num_envs,
        backend=place.backend.value, workers=place.workers(num_envs),
    )  # fmt: skip
    with waits:
        async with envs:
            await envs.reset(seed=0)
            actions = np.zeros(num_envs, np.int64)
            for i in range(1 + rounds):
                announce(f"round {i} of {rounds}")
                times.append(await _timed(envs.step(actions)))
                if place.loops(num_envs):
                    plain.append(waits.milliseconds())
            announce("closing")
    return tuple(times[1:]), tuple(plain[1:])


async def _timed(pending: Awaitable[Any]) -> float:
    started = time.perf_counter()
    await pending
    return 1000 * (time.perf_counter() - started)
