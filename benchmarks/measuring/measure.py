"""Throughput of systems on one workload: make all, measure them in turns, close all."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from agym.errors import AgymError
from benchmarks.measuring.interleave import RUN_IN, in_turns
from benchmarks.measuring.processes import descendants_time, others_time
from benchmarks.measuring.progress import Announce
from benchmarks.measuring.workloads import Actions, Workload, sample_actions
from benchmarks.reports.results import BARE, BOUND, Row, Settings, WorkloadResult
from benchmarks.systems.base import Contest, System
from benchmarks.systems.runners import SYSTEMS

# Returns whether more slices are needed for a verdict.
Undecided = Callable[[WorkloadResult], bool]


def measure(
    work: Workload,
    settings: Settings,
    announce: Announce,
    systems: Sequence[type[System]] | None = None,
    undecided: Undecided | None = None,
) -> WorkloadResult:
    """Measure systems on one workload, in turns.

    Args:
        work: The workload.
        settings: Duration, repetitions, workers.
        announce: Called with a few words before each slow operation.
        systems: By default those of a contest, else all of ``throughput``.
        undecided: Whether a result needs more slices for a verdict.

    Raises:
        AgymError: The environment cannot be made, or agym failed.
    """
    if (missing := work.missing()) is not None:
        return WorkloadResult(work.name, notes=(missing,))
    if systems is None:
        systems = work.systems if isinstance(work, Contest) else SYSTEMS
    end = time.monotonic() + settings.limit
    actions = sample_actions(work)
    notes: list[str] = []

    def goes_on(rows: list[Row]) -> bool:
        if undecided is None or time.monotonic() >= end:
            return False
        return undecided(WorkloadResult(work.name, tuple(rows)))

    with ExitStack() as stack:
        made: dict[str, System] = {}
        for kind in systems:
            announce(f"making {kind.name}")
            system = make_system(kind, work, actions, settings.workers, stack, notes)
            if system is not None:
                made[kind.name] = system
        turns = alternate(made, settings, announce, goes_on)
        announce("closing")
    rows = turns.rows
    if BARE in turns.rates:
        bound = Row(BOUND, tuple(rate * settings.workers for rate in turns.rates[BARE]))
        rows.insert(1, bound)
    return WorkloadResult(work.name, tuple(rows), tuple(notes), turns.idle_cores, turns.other_cores)


@dataclass(frozen=True)
class Turns:
    """Results of all turns.

    Attributes:
        rates: Steps per second of each system, one value per slice.
        choices: The choices of systems.
        idle_cores: Cores that workers kept busy while only the bare environment was stepped.
        other_cores: Cores that other processes kept busy.
    """

    rates: dict[str, list[float]]
    choices: dict[str, str]
    idle_cores: float = 0.0
    other_cores: float = 0.0

    @property
    def rows(self) -> list[Row]:
        return [Row(name, tuple(slices), self.choices[name]) for name, slices in self.rates.items()]


def alternate(
    systems: Mapping[str, System],
    settings: Settings,
    announce: Announce,
    goes_on: Callable[[list[Row]], bool] = lambda rows: False,
) -> Turns:
    """Run every system in turns, repeated while ``goes_on`` returns true."""
    rates: dict[str, list[float]] = {name: [] for name in systems}
    choices = {name: system.choice for name, system in systems.items()}
    idle, others, started = 0.0, others_time(), time.monotonic()
    repeats = settings.repeats
    for turn, name in in_turns([*systems]):
        if turn >= repeats:
            if not goes_on(Turns(rates, choices).rows):
                break
            repeats += 1
        system = systems[name]
        announce(f"{turn + 1}/{repeats} {name}")
        system.run_in(settings.seconds * RUN_IN)
        before = descendants_time()
        rates[name].append(system.run(settings.seconds))
        if name == BARE:
            idle += descendants_time() - before
    others, elapsed = others_time() - others, time.monotonic() - started
    idle /= repeats * settings.seconds
    return Turns(rates, choices, idle, max(0.0, others) / elapsed)


@contextmanager
def _closed_after(system: System) -> Iterator[None]:
    """Close a system; ignore errors after Ctrl-C, which may have ended its processes already."""
    try:
        yield
    except BaseException:
        with suppress(Exception), warnings.catch_warnings(action="ignore"):
            system.close()
        raise
    system.close()


def make_system(
    kind: type[System],
    work: Workload,
    actions: Actions,
    workers: int,
    stack: ExitStack,
    notes: list[str],
) -> System | None:
    """Make a system, or note the reason why not: it may not support the environment."""
    reason = kind.why_not(work)
    if reason is None:
        try:
            system = kind(work, actions, workers)
            stack.enter_context(_closed_after(system))
            system.reset()
        except AgymError:
            raise
        except Exception as error:
            reason = f"failed with {error!r}"
        else:
            return system
    notes.append(f"{kind.name}: {reason}")
    return None
