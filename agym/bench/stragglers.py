"""``agym bench stragglers``: what a few slow steps cost whoever waits for all, and for half.

A step takes the base time, and with a small chance many times as long. Three systems:

    no straggler   the same environments without that chance, all stepped at once
    barrier        ``await envs.step(actions)``: each round waits for the slowest
    first half     ``recv(n // 2)``, and ``send`` to exactly those

What is fair to compare with? A first-half runner that is never held up has its environments
take the base time, but for the tail; so "no straggler" takes just that, the median and not the
mean. This is the stricter choice. The tail takes a part of the environments' time that no
runner can give back, ``1 - 1 / (1 + chance * (times - 1))``: it counts against the runner, and
the note below the table tells the best that is possible. The defaults make it small (4%), and
yet strike a quarter of the rounds of 64 environments, each of which then takes ten times as
long. The base time is the same for all and always, for any scatter in it would slow the
barrier without stragglers, too, and flatter the ratio.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from agym.bench.comparison import Compared, Comparison, show_comparison
from agym.bench.machine import describe_machine
from agym.bench.output import JsonFile, check_writable, deliver
from agym.bench.progress import Tell, progress_bar
from agym.bench.results import Verdict
from agym.bench.turns import RUN_IN, in_turns
from agym.bench.waiting_envs import StragglingEnv
from agym.executors.supervisor import new_loop
from agym.faces.aio import AsyncEnvs
from agym.make import make_async

EXAMPLES = """Examples:

agym bench stragglers

agym bench stragglers --num-envs 256 --chance 0.001 --times 50 --json result.json
"""

NO_STRAGGLER, BARRIER, FIRST_HALF = "no straggler", "barrier", "first half"
FACTOR = 0.9


@dataclass(frozen=True)
class Tail:
    """The environments: how many, and how long their steps take."""

    num_envs: int = 64
    delay: float = 0.02
    chance: float = 0.005
    times: float = 10.0

    @property
    def best(self) -> float:
        """The throughput if no environment ever waits for another, as a part of that without tail."""
        return 1 / (1 + self.chance * (self.times - 1))


def stragglers(
    num_envs: Annotated[int, typer.Option(min=2, help="How many.")] = Tail.num_envs,
    delay: Annotated[
        float, typer.Option(min=0.001, help="Seconds that a step takes.")
    ] = Tail.delay,
    chance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The part of steps that take longer.")
    ] = Tail.chance,
    times: Annotated[float, typer.Option(min=1.0, help="How many times longer.")] = Tail.times,
    seconds: Annotated[float, typer.Option(min=0.001, help="Length of one slice of one system.")] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Slices of each system.")] = 5,
    json: JsonFile = None,
) -> None:
    """Measure steps per second with a few slow steps, waiting for all or for the first half.

    They are coroutine environments on one event loop.
    """
    check_writable(json)
    tail = Tail(num_envs, delay, chance, times)
    with progress_bar(1) as bar, bar.part("stragglers") as tell:
        with asyncio.Runner(loop_factory=new_loop) as loop:
            rows = loop.run(measure_stragglers(tail, seconds, repeats, tell))
    aims = []
    if tail == Tail():
        aims.append(Verdict.on_ratio(f"{FIRST_HALF} against {NO_STRAGGLER}", FACTOR, rows[-1].ratio))
    comparison = Comparison(
        f"{num_envs} environments, {chance:.2%} of steps take {1000 * delay * times:g} instead of"
        f" {1000 * delay:g} ms: median of {repeats} × {seconds:g} s in turns",
        "steps/s",
        describe_machine(),
        {**asdict(tail), "seconds": seconds, "repeats": repeats},
        rows,
        (f"The slow steps alone leave a ratio of {tail.best:.2f} at best",),
        tuple(aims),
    )
    deliver(show_comparison(comparison), comparison.to_json(), json)
