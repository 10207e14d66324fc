"""``agym demo``: a tour of what agym does; or a comparison of backends on an environment.

Examples:
agym demo

agym demo CartPole-v1 -n 1024 --steps 500

agym demo ALE/Pong-v5 -n 8 --workers 4

agym demo HumanoidStandup-v5 -n 32 --backend ray
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from agym import make
from agym.api.options.environments import find_spec
from agym.backends import BackendName
from agym.cli.console import console, text_column
from agym.cli.options import WITH_WORKERS, NumEnvs, Workers
from agym.cli.tour import tour
from agym.core._system.cpus import available_cores
from agym.errors import UsageError

# How often the bars are redrawn: between steps, outside of the timed part.
DRAW_SECONDS = 0.1

# Random actions are sampled beforehand and reused.
ACTION_BATCHES = 64

# Backends with workers that run any environment.
Compared = Literal["process", "thread", "ray"]


@dataclass(frozen=True)
class DemoResult:
    """Result of one backend.

    Attributes:
        backend: Name of the backend.
        chosen: The backend that runs the environments, if ``backend`` is ``"auto"``.
        workers: Number of workers; ``None`` if this process steps the environments.
        startup: Seconds until the environments were ready to step.
        rate: Environment steps per second.
    """

    backend: str
    chosen: str
    workers: int | None
    startup: float
    rate: float


def command(
    context: typer.Context,
    env: Annotated[
        str | None, typer.Argument(help="Id of the environment.", show_default="a tour")
    ] = None,
    num_envs: NumEnvs = 64,
    steps: Annotated[int, typer.Option(min=1, help="Steps per environment.")] = 3000,
    workers: Workers = None,
    backend: Annotated[
        Compared, typer.Option(help="Backend to compare with serial and auto.")
    ] = WITH_WORKERS,
) -> None:
    """Show what agym does, in half a minute; or compare backends on an environment.

    With an environment, its copies take random steps serially, in workers, and with the backend
    that agym chooses.
    """
    output = console()
    if env is None:
        given = [context.get_parameter_source(name) for name in context.params]
        if any(source is not None and source.name == "COMMANDLINE" for source in given):
            raise UsageError("these options need an environment, as in `agym demo CartPole-v1`")
        tour(output)
        return
    find_spec(env)
    if backend != "ray" or workers is not None:  # a cluster has its own cores
        workers = min(available_cores() if workers is None else workers, num_envs)
    columns = text_column("{task.description:8}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, text_column("steps"), TimeElapsedColumn(),
        console=console(stderr=True), auto_refresh=False,
    ) as progress:  # fmt: skip
        results = [
            run("serial", env, num_envs, steps, None, progress),
            run(backend, env, num_envs, steps, workers, progress),
            run("auto", env, num_envs, steps, None, progress),
        ]
    output.print(table(env, num_envs, steps, results))
    output.print(verdict(env, num_envs, results), soft_wrap=True, highlight=False)


def run(
    backend: BackendName,
    env: str,
    num_envs: int,
    steps: int,
    workers: int | None,
    progress: Progress,
) -> DemoResult:
    """Make the environments, step them with a progress bar, and close them."""
    bar = progress.add_task(backend, total=steps * num_envs)
    started = time.perf_counter()
    with make(
        env, num_envs, backend=backend, workers=workers, autoreset="next_step", output="array"
    ) as envs:
        envs.reset(seed=0)
        startup = time.perf_counter() - started
        envs.action_space.seed(0)
        actions = [envs.action_space.sample() for _ in range(ACTION_BATCHES)]
        seconds, done = 0.0, 0
        while done < steps:
            started = now = time.perf_counter()
            while done < steps and now - started < DRAW_SECONDS:
                envs.step(actions[done % ACTION_BATCHES])
                done += 1
                now = time.perf_counter()
            seconds += now - started
            progress.update(bar, completed=done * num_envs, refresh=True)
        chosen = envs.backend
    return DemoResult(backend, chosen, workers, startup, steps * num_envs / seconds)


def table(env: str, num_envs: int, steps: int, results: list[DemoResult]) -> Table:
    """Return a table with a row per result; speeds are relative to the first result."""
    shown = Table(title=f"{env} ×{num_envs}, {steps} random steps each")
    shown.add_column("backend")
    for name in ("workers", "steps per second", "speed", "start-up"):
        shown.add_column(name, justify="right")
    for result in results:
        shown.add_row(
            result.backend if result.backend == result.chosen else f"auto: {result.chosen}",
            "–" if result.workers is None else str(result.workers),
            f"{result.rate:,.0f}",
            f"{result.rate / results[0].rate:.2f} ×",
            f"{result.startup:.2f} s",
        )
    return shown


def verdict(env: str, num_envs: int, results: list[DemoResult]) -> str:
    """Return which backend is faster and why, and what agym chooses."""
    serial, other, auto = results
    if other.rate >= serial.rate:
        first = f"{other.backend} is {other.rate / serial.rate:.2f} times as fast as serial."
    else:
        first = (
            f"serial is {serial.rate / other.rate:.2f} times as fast as {other.backend}, because a"
            f" step takes only {1e6 / serial.rate:.0f} µs: to hand it to a worker costs more."
        )
    return (
        f'{first} agym.make("{env}", {num_envs}) chooses {auto.chosen}, which is'
        f" {auto.rate / serial.rate:.2f} times as fast as serial."
    )
