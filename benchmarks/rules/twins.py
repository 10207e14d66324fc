"""``twins``: twins of registered environments, compared with EnvPool, originals and agym's workers.

The columns ``make_vec``, ``make``, ``make_async`` and ``sb3`` are agym's functions with a twin, and
``class`` is the twin alone. All systems take turns on the same actions. EnvPool plays other games:
its random numbers and its rounding differ from Gymnasium's.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

import agym
from agym.core._system.extras import require
from agym.core.hosts.vector.twins import twin_of
from agym.errors import UsageError
from benchmarks.measuring.workloads import Workload, parse_work
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import Settings
from benchmarks.rules.comparison import Extra, Factor, Limit, Target, run_games, show_games
from benchmarks.rules.plot import save_twins_plot
from benchmarks.rules.systems import EnvPool, Sync
from benchmarks.systems.base import System
from benchmarks.systems.baseline import BareAtOnce
from benchmarks.systems.runners import AgymProcess, AgymProcessAsync, AgymSB3

EXAMPLES = """Examples:

python -m benchmarks twins

python -m benchmarks twins --plot twins.png

python -m benchmarks twins HalfCheetah-v5:64 CartPole-v1:1024 --json twins.json
"""


class Twin(System):
    """The twin, through ``agym.make_vec``."""

    name = "make_vec"

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        return twin_of(work.spec)[1] or None

    def make(self, work: Workload, workers: int) -> Any:
        envs = agym.make_vec(work.spec, work.num_envs)
        assert "twin" in repr(envs), envs
        return envs


class Own(Twin):
    """The class of the twin alone."""

    name = "class"

    def make(self, work: Workload, workers: int) -> Any:
        twin, _ = twin_of(work.spec)
        limit = work.spec.max_episode_steps
        return twin(work.num_envs, max_episode_steps=limit, **work.spec.kwargs)


class Make(Twin):
    """The twin, through ``agym.make``."""

    name = "make"

    def make(self, work: Workload, workers: int) -> Any:
        return agym.make(
            work.spec, work.num_envs, backend="twin", output="array", autoreset="next_step"
        )


class MakeAsync(AgymProcessAsync):
    """The twin, through ``agym.make_async``."""

    name = "make_async"
    backend = "twin"


class VecEnv(AgymSB3):
    """The twin, through ``agym.sb3``."""

    name = "sb3"
    backend = "twin"

    def count(self, workers: int) -> int | None:
        return None


class EnvPoolHere(EnvPool):
    """EnvPool, where it has the environment."""

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        if reason := super().why_not(work):
            return reason
        known = require("envpool", "envpool").list_all_envs()
        return None if work.env_id in known else f"EnvPool has no {work.env_id}"


SYSTEMS: tuple[type[System], ...] = (
    Sync, BareAtOnce, AgymProcess, EnvPoolHere, Own, Twin, Make, MakeAsync, VecEnv,
)  # fmt: skip

MUJOCO = ("HalfCheetah-v5", "Ant-v5", "Hopper-v5", "HumanoidStandup-v5")
CLASSIC = ("Acrobot-v1", "Pendulum-v1", "MountainCar-v0")
TOY = ("FrozenLake-v1", "Taxi-v4")

WORKS = (
    *(Workload(name, 64) for name in MUJOCO),
    *(Workload("CartPole-v1", count) for count in (8, 64, 1024)),
    *(Workload(name, 1024) for name in (*CLASSIC, *TOY)),
)

# What each way to make a twin may add to a batch, in microseconds, by the number of environments.
OVERHEAD_LIMITS = {Twin: {8: 10.0, 64: 15.0, 1024: 40.0}} | {
    door: {64: 60.0, 1024: 150.0} for door in (Make, MakeAsync, VecEnv)
}

TARGETS: tuple[Target, ...] = (
    *(
        Factor(f"{name} ×64", Twin, against, factor)
        for name in MUJOCO
        for against, factor in ((EnvPoolHere, 1.0), (AgymProcess, 1.5), (BareAtOnce, 1.2))
    ),
    Limit("CartPole-v1 ×1024", Twin, 1 / 5),
    Factor("CartPole-v1 ×1024", Twin, EnvPoolHere, 5.0),
    Factor("CartPole-v1 ×8", Twin, Sync, 3.0),
    Factor("CartPole-v1 ×64", Twin, Sync, 10.0),
    *(Factor(f"{name} ×1024", Twin, Sync, 5.0) for name in CLASSIC),
    *(Factor(f"{name} ×1024", Twin, Sync, 20.0) for name in TOY),
    *(
        Extra(work.name, door, Own, limits[work.num_envs])
        for work in WORKS
        for door, limits in OVERHEAD_LIMITS.items()
        if work.num_envs in limits
    ),
)


def twins(
    works: Annotated[
        list[str] | None, typer.Argument(metavar="ID:N", help="Environments with a twin.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each system.")
    ] = 0.5,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each system.")] = 7,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, threads of EnvPool.")] = 2,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure twins, compared with EnvPool, SyncVectorEnv, bare loops and worker processes."""
    check_plot(plot)
    check_writable(json, plot)
    chosen = [parse_work(text) for text in works] if works else [*WORKS]
    for work in chosen:
        if why := Twin.why_not(work):
            raise UsageError(why)
    report = run_games(chosen, Settings(seconds, repeats, workers), SYSTEMS, TARGETS)
    deliver(show_games(report), report.to_json(), json)
    if plot is not None:
        names = [system.name for system in (Sync, BareAtOnce, AgymProcess, EnvPoolHere, Twin)]
        save_twins_plot(report, plot, names)
