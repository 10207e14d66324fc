"""``throughput``: steps per second of agym and of other runners, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.measure import measure
from benchmarks.measuring.options import Repeats, Seconds
from benchmarks.measuring.progress import progress_bar
from benchmarks.measuring.workloads import WORKLOADS, Workload, parse_work
from benchmarks.overhead.measure_startup import STARTUP_WORKLOAD, measure_startup
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.plot import save_plot
from benchmarks.reports.results import Report, Settings, StartupResult, WorkloadResult
from benchmarks.reports.tables import show
from benchmarks.reports.targets import judge
from benchmarks.systems.rollouts import ROLLOUTS, RolloutWorkload
from benchmarks.systems.sb3_startup import measure_sb3_startup
from benchmarks.systems.variants import VARIANTS, CopiesWorkload, InfosWorkload

# Arguments that stand for start-up measurements.
STARTUP, SB3_STARTUP = "start-up", "sb3-start-up"

# Prefixes of workloads in which only some systems take part.
CONTESTS: dict[str, Callable[[str, int], Workload]] = {
    "rollout": RolloutWorkload,
    "ppo": partial(RolloutWorkload, network=True),
    "infos": InfosWorkload,
    "copies": CopiesWorkload,
}

EXAMPLES = f"""Examples:

python -m benchmarks throughput

python -m benchmarks throughput CartPole-v1:8 ALE/Pong-v5:8 --repeats 9

python -m benchmarks throughput {STARTUP}

python -m benchmarks throughput rollout:CartPole-v1:8 ppo:CartPole-v1:8

python -m benchmarks throughput infos:HumanoidStandup-v5:16 copies:ALE/Pong-v5:64

python -m benchmarks throughput {SB3_STARTUP} --repeats 1

python -m benchmarks throughput --json result.json --plot result.png
"""


def throughput(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help=f"ENV:N for N environments; rollout:ENV:N and ppo:ENV:N for PPO's rollouts;"
            f" infos:ENV:N and copies:ENV:N for the cost of these; {STARTUP}; {SB3_STARTUP}."
            f" By default everything but {SB3_STARTUP}, which takes a minute and 10 GB.",
        ),
    ] = None,
    seconds: Seconds = Settings.seconds,
    repeats: Repeats = Settings.repeats,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = Settings.workers,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure steps per second of agym and of other runners, in turns within one run.

    The bare environment is a loop over one environment; its speed times the number of workers is
    the bound. All systems get the same actions.
    """
    check_plot(plot)
    check_writable(json, plot)
    named = workloads or []
    chosen = [parse(text) for text in named if text not in (STARTUP, SB3_STARTUP)]
    settings = Settings(seconds, repeats, workers)
    report = run(
        chosen if workloads else (*WORKLOADS, *VARIANTS, *ROLLOUTS),
        settings,
        wants_startup=not workloads or STARTUP in named,
        wants_sb3=SB3_STARTUP in named,
    )
    deliver(show(report), report.to_json(), json)
    if plot is not None:
        save_plot(report, plot)


def parse(text: str) -> Workload:
    """Parse ``"CartPole-v1:8"``, ``"rollout:CartPole-v1:8"`` or another kind of :data:`CONTESTS`.

    Raises:
        UsageError: The text is not of such a form, or the environment does not exist.
    """
    kind, _, rest = text.partition(":")
    if kind not in CONTESTS:
        return parse_work(text)
    work = parse_work(rest)
    return CONTESTS[kind](work.env_id, work.num_envs)


def run(
    workloads: Sequence[Workload],
    settings: Settings,
    *,
    wants_startup: bool,
    wants_sb3: bool = False,
) -> Report:
    """Measure all workloads, with progress on stderr that is redrawn only between slices."""
    results: list[WorkloadResult] = []
    startup: StartupResult | None = None
    with progress_bar(len(workloads) + wants_startup + wants_sb3) as bar:
        if wants_startup:
            with bar.part(STARTUP) as announce:
                announce(f"{STARTUP_WORKLOAD.name}, {settings.workers} workers")
                startup = measure_startup(STARTUP_WORKLOAD, settings.workers, settings.repeats)
        if wants_sb3:
            with bar.part(SB3_STARTUP) as announce:
                results.append(measure_sb3_startup(settings.workers, settings.repeats, announce))
        for work in workloads:
            with bar.part(work.name) as announce:
                results.append(measure(work, settings, announce))
    return Report(describe_machine(), settings, tuple(results), startup, judge(results, startup))
