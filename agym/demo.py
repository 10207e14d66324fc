"""``agym demo``: the main job on real environments, serially and in worker processes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from agym.core.machine import available_cores
from agym.make import make

# One step of it is dear enough (some 25 µs) that processes help on any machine with two cores.
DEFAULT_ENV = "Acrobot-v1"

# The bars are drawn between two steps, so often that they move and so seldom that it costs nothing.
DRAW_SECONDS = 0.1

EXAMPLES = """Examples:

\b
agym demo
agym demo CartPole-v1 -n 1024 --steps 500
agym demo ALE/Pong-v5 -n 8 --workers 4         # needs the extra atari
"""


@dataclass(frozen=True)
class Result:
    """What one backend did.

    Attributes:
        backend: ``"serial"`` or ``"process"``.
        workers: How many processes step environments; for serial the caller's own.
        startup: Seconds until the environments were ready to step.
        rate: Steps of environments per second.
    """

    backend: str
    workers: int
    startup: float
    rate: float


def demo(
    env: Annotated[str, typer.Argument(help="Id of the environment.")] = DEFAULT_ENV,
    num_envs: Annotated[int, typer.Option("-n", "--num-envs", help="How many of it.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Steps of every environment.")] = 3000,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes.", show_default="one per core")
    ] = None,
) -> None:
    """Step environments with random actions, serially and in worker processes, and compare.

    Raises:
        AgymError: The environment cannot be found, made or stepped.
    """
    workers = min(available_cores() if workers is None else workers, num_envs)
    columns = TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TextColumn("steps"), TimeElapsedColumn(),
        console=Console(stderr=True), auto_refresh=False,
    ) as progress:  # fmt: skip
        results = [
            run("serial", env, num_envs, steps, None, progress),
            run("process", env, num_envs, steps, workers, progress),
        ]
    console = Console()
    console.print(table(env, num_envs, steps, results))
    console.print(verdict(env, num_envs, results), soft_wrap=True, highlight=False, markup=False)


def run(
    backend: str, env: str, num_envs: int, steps: int, workers: int | None, progress: Progress
) -> Result:
    """Make the environments, step them, close them.

    Args:
        backend: Where they live.
        env: Their id.
        num_envs: How many.
        steps: How often to step each.
        workers: Worker processes, ``None`` for a backend without.
        progress: Where to draw a bar.
    """
    bar = progress.add_task(backend, total=steps * num_envs)
    begun = time.perf_counter()
    with make(
        env, num_envs, backend=backend, workers=workers, autoreset="next_step", output="array"
    ) as envs:
        envs.reset(seed=0)
        startup = time.perf_counter() - begun
        envs.action_space.seed(0)
        actions: list[Any] = [envs.action_space.sample() for _ in range(min(steps, 64))]
        drawing, drawn, begun = 0.0, 0.0, time.perf_counter()
        for i in range(steps):
            envs.step(actions[i % len(actions)])
            now = time.perf_counter()
            if now - drawn > DRAW_SECONDS or i == steps - 1:
                end = now
                progress.update(bar, completed=(i + 1) * num_envs, refresh=True)
                drawn = time.perf_counter()
                drawing += drawn - now
        seconds = end - begun - drawing + (drawn - end)
    return Result(backend, workers or 1, startup, steps * num_envs / seconds)


def table(env: str, num_envs: int, steps: int, results: list[Result]) -> Table:
    """The results, a row each; speeds are relative to the first."""
    shown = Table(title=f"{env} ×{num_envs}, {steps} random steps each")
    shown.add_column("backend")
    for name in ("workers", "steps per second", "speed", "start-up"):
        shown.add_column(name, justify="right")
    for result in results:
        shown.add_row(
            result.backend,
            "–" if result.backend == "serial" else str(result.workers),
            f"{result.rate:,.0f}",
            f"{result.rate / results[0].rate:.2f} ×",
            f"{result.startup:.2f} s",
        )
    return shown


def verdict(env: str, num_envs: int, results: list[Result]) -> str:
    """One sentence: which backend won, and how to use it."""
    slower, faster = sorted(results, key=lambda result: result.rate)
    return (
        f"{faster.backend} won, {faster.rate / slower.rate:.2f} times as fast as {slower.backend}:"
        f' use it with agym.make("{env}", {num_envs}, backend="{faster.backend}").'
    )
