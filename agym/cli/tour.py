"""The tour of ``agym demo``: an exact twin, a worker that is killed, and overlap."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console

from agym import make, make_async, make_vec, run
from agym.cli.console import console
from agym.cli.options import WITH_WORKERS
from agym.core._system.cpus import available_cores
from agym.core._system.extras import installed

# Seconds of each measurement.
MEASURED = 1.5

# Environments of the parts with workers: a step takes about 25 µs.
WORKING = "Acrobot-v1"


def tour(output: Console) -> None:
    """Run the parts, and print what each of them shows."""
    parts: list[tuple[str, Callable[[], str]]] = [
        ("An exact twin", twin),
        ("A killed worker", killed_worker),
        ("Overlap", lambda: run(overlap())),
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
    env, num_envs = ("CartPole-v1", 256) if installed("numba") else ("Taxi-v3", 256)
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
        f"A step of {num_envs} {WORKING} takes {1e3 * step:.1f} ms in worker processes. In each"
        " iteration, the program also waits that long for something else, such as a GPU.\n"
        f"If it waits after the step: {after:.0f} iterations per second. If it waits during the"
        f" step: {during:.0f}, {during / after:.1f} times as many."
        " The code: `pending = envs.step(actions)`, the other work, `await pending`."
    )
