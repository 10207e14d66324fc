"""``agym demo``: a tour of what agym does; or a comparison of backends on an environment.

Examples:
agym demo

agym demo CartPole-v1 -n 1024 --steps 500

agym demo ALE/Pong-v5 -n 8 --workers 4

agym demo HumanoidStandup-v5 -n 32 --backend ray
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from agym import make, make_async, make_vec
from agym import run as run_async
from agym.api.options.environments import find_spec
from agym.backends import BackendName
from agym.cli.console import console, text_column
from agym.cli.options import WITH_WORKERS, NumEnvs, Workers
from agym.core._system.cpus import available_cores
from agym.core._system.extras import installed
from agym.errors import UsageError

# Seconds of each measurement of the tour.
MEASURED = 1.5

# Environments of the tour's parts with workers: a step takes about 25 µs.
WORKING = "Acrobot-v1"

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
    elif other.workers == 1:
        first = f"serial is {serial.rate / other.rate:.2f} times as fast as one worker."
    else:
        first = (
            f"serial is {serial.rate / other.rate:.2f} times as fast as {other.backend}, because a"
            f" step takes only {1e6 / serial.rate:.0f} µs: to hand it to a worker costs more."
        )
    return (
        f'{first} agym.make("{env}", {num_envs}) chooses {auto.chosen}, which is'
        f" {auto.rate / serial.rate:.2f} times as fast as serial."
    )


# ---------------------------------------------------------------- the tour


def tour(output: Console) -> None:
    """Run the parts, and print what each of them shows."""
    parts: list[tuple[str, Callable[[], str]]] = [
        ("An exact twin", twin),
        ("A killed worker", killed_worker),
        ("Overlap", lambda: run_async(overlap())),
    ]
    if WITH_WORKERS != "process":  # there is no worker to kill
        del parts[1]
    for number, (title, part) in enumerate(parts, 1):
        with console(stderr=True).status(f"{title} ..."):
            text = part()
        output.print(f"{number}. {title}", style="bold")
        output.print(f"{text}\n", soft_wrap=True, highlight=False)
    output.print(
        "`agym demo ID` compares the backends on an environment, and `agym plan ID` says which"
        " one agym chooses, and why.",
        soft_wrap=True, highlight=False,
    )  # fmt: skip


def twin() -> str:
    """Compare a twin with Gymnasium's loop over the same environments."""
    # Without numba, classic control has no twin.
    env, num_envs = ("CartPole-v1", 256) if installed("numba") else ("FrozenLake-v1", 1024)
    loop = gymnasium.make_vec(env, num_envs, vectorization_mode="sync")
    batch = make_vec(env, num_envs)
    both = (loop, batch)
    loop.action_space.seed(0)
    actions = [loop.action_space.sample() for _ in range(32)]
    try:
        for each in both:
            each.reset(seed=0)
        equal = all(
            np.array_equal(a, b)
            for action in actions
            for a, b in zip(*(each.step(action)[:4] for each in both), strict=True)
        )
        rates = [rate_of(each, actions) for each in both]
    finally:
        for each in both:
            each.close()
    return (
        f"{num_envs} {env}: Gymnasium's SyncVectorEnv makes {rates[0]:,.0f} steps per second,"
        f" agym.make_vec {rates[1]:,.0f}: {rates[1] / rates[0]:.0f} times as many.\n"
        f"The results of {len(actions) * num_envs:,} steps with the same seeds are"
        f" {'equal, bit for bit' if equal else 'different, which is a bug of agym'}."
    )


def rate_of(envs: Any, actions: list[Any]) -> float:
    """Return the environment steps per second."""
    started, done = time.perf_counter(), 0
    while (seconds := time.perf_counter() - started) < MEASURED:
        for action in actions:
            envs.step(action)
        done += len(actions) * envs.num_envs
    return done / seconds


def killed_worker() -> str:
    """Kill one of two workers while the environments of the other one step."""
    options: Any = {"backend": "process", "workers": 2, "autoreset": "next_step"}
    with make(WORKING, 8, on_fault="restart", output="array", **options) as envs:
        envs.reset(seed=0)
        actions = envs.action_space.sample()
        for _ in range(100):
            envs.step(actions)
        victim = envs.stats().workers[0]
        assert victim.pid is not None
        envs.send(actions)
        envs.recv(min_envs=8)
        os.kill(victim.pid, signal.SIGKILL)
        killed, others = time.perf_counter(), 0
        envs.send(actions)
        back: set[int] = set()
        while not back.issuperset(victim.env_ids):
            batch = envs.recv()
            ids = [int(i) for i in batch.env_ids]
            back.update(ids)
            seconds = time.perf_counter() - killed
            going = [i for i in ids if i not in victim.env_ids]
            others += len(going)
            if going:
                envs.send(actions[going], going)
    first, last = victim.env_ids[0], victim.env_ids[-1]
    return (
        f"A SIGKILL ended worker 0 (pid {victim.pid}). Environments {first} to {last} were back in"
        f" a new worker after {seconds:.2f} s.\n"
        f"During that time, the other {8 - len(victim.env_ids)} environments made {others:,} steps."
        ' The option is on_fault="restart"; with "replay", their episodes continue, too.'
    )


async def overlap() -> str:
    """Compare waiting before and during the steps."""
    num_envs, workers = 512, max(1, available_cores() - 1)
    async with make_async(WORKING, num_envs, backend=WITH_WORKERS, workers=workers) as envs:
        await envs.reset(seed=0)
        actions = envs.action_space.sample()

        async def rate(pause: float, *, during: bool) -> float:
            started, done = time.perf_counter(), 0
            while (seconds := time.perf_counter() - started) < MEASURED:
                pending = envs.step(actions)  # the workers step now
                if not during:
                    await pending
                await asyncio.sleep(pause)
                if during:
                    await pending
                done += 1
            return done / seconds

        step = 1 / await rate(0, during=True)
        after, during = await rate(step, during=False), await rate(step, during=True)
    return (
        f"A step of {num_envs} {WORKING} takes {1e3 * step:.1f} ms in workers. In each"
        " iteration, the program also waits that long for something else, such as a GPU.\n"
        f"If it waits after the step: {after:.0f} iterations per second. If it waits during the"
        f" step: {during:.0f}, {during / after:.1f} times as many."
        " The code: `pending = envs.step(actions)`, the other work, `await pending`."
    )
