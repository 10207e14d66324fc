"""``multienv``: time of steps and resets of all environments, by their number.

An experiment from the literature, run in three ways::

    loop                     one process, one environment after the other
    process per environment  Gymnasium's AsyncVectorEnv
    processes × environments agym: some processes, each with its share of the environments
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from agym.core._system.cpus import available_cores
from benchmarks.measuring.options import CoreWorkers, Repeats, Seconds
from benchmarks.measuring.workloads import check_work
from benchmarks.reports.count_plot import Chart, milliseconds, save_count_plot
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import Settings
from benchmarks.reports.tables import columns_table
from benchmarks.systems.base import Contest, System
from benchmarks.systems.baseline import Bare, BareLoop
from benchmarks.systems.runners import AgymProcess, GymnasiumAsync
from benchmarks.throughput.grid import parse_counts, run_workloads

EXAMPLES = """Examples:

python -m benchmarks multienv --plot result.png

python -m benchmarks multienv Acrobot-v1 --num-envs 1,8 --workers 4 --json result.json
"""

ENV = "ALE/Breakout-v5"
COUNTS = "1,2,4,8,16,32,64"


class Resets(System):
    """A system whose steps are resets without a seed, as at the end of an episode."""

    def step(self, actions: Any) -> None:
        self._envs.reset()


class BareResets(Bare):
    """A baseline loop over one environment, which is reset once per environment."""

    def step(self, actions: Any) -> None:
        for _ in actions:
            self._envs.reset()


class LoopResets(Resets, BareLoop):
    """Resets in a baseline loop over all environments."""


class AsyncResets(Resets, GymnasiumAsync):
    """Resets in a process per environment."""


class ProcessResets(Resets, AgymProcess):
    """Resets in worker processes, each with its share of the environments."""


STEPPING: tuple[type[System], ...] = Bare, BareLoop, GymnasiumAsync, AgymProcess
RESETTING: tuple[type[System], ...] = BareResets, LoopResets, AsyncResets, ProcessResets


@dataclass(frozen=True)
class MultiWorkload(Contest):
    """Environments of one kind, for steps or for resets."""

    resets: bool = False

    @property
    def name(self) -> str:
        return f"{'resets' if self.resets else 'steps'} of {super().name}"

    @property
    def systems(self) -> Sequence[type[System]]:
        return RESETTING if self.resets else STEPPING


def multienv(
    env: Annotated[str, typer.Argument(metavar="ENV", help="The environment.")] = ENV,
    num_envs: Annotated[
        str, typer.Option(help="Numbers of environments, separated by commas.")
    ] = COUNTS,
    seconds: Seconds = 0.2,
    repeats: Repeats = 7,
    workers: CoreWorkers = None,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure steps and resets in a loop, in a process each, and in shared processes."""
    check_plot(plot)
    check_writable(json, plot)
    counts = parse_counts(num_envs)
    workloads = [
        check_work(MultiWorkload(env, n, resets)) for resets in (False, True) for n in counts
    ]
    settings = Settings(seconds, repeats, workers or available_cores())
    report = run_workloads(workloads, settings)
    title = f"{settings.workers} workers: milliseconds per step or reset of all environments"
    names = [kind.name for kind in STEPPING[1:]]
    table = columns_table(report, title, names, lambda *cell: f"{milliseconds(*cell):.3g}")
    deliver(table, report.to_json(), json)
    if plot is not None:
        chart = Chart("Milliseconds for all environments", ours=AgymProcess.name)
        save_count_plot(report.workloads, plot, chart)
