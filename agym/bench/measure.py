"""The throughput of all systems on one work: make all, measure them in turns, close all."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from agym.bench.processes import descendants_time, others_time
from agym.bench.progress import Tell
from agym.bench.results import BARE, BOUND, Row, Settings, WorkResult
from agym.bench.rollouts import RolloutWork
from agym.bench.system import System
from agym.bench.systems import SYSTEMS
from agym.bench.turns import RUN_IN, in_turns
from agym.bench.works import Actions, Work, sample_actions
from agym.errors import AgymError


def measure(work: Work, settings: Settings, tell: Tell) -> WorkResult:
    """Measure all systems on one work, in turns.

    Args:
        work: The environments.
        settings: How long, how often, how many workers.
        tell: Called with a few words before each thing that takes time.

    Raises:
        AgymError: The environment cannot be made, or agym failed.
    """
    if (missing := work.missing()) is not None:
        return WorkResult(work.name, notes=(missing,))
    actions = sample_actions(work)
    notes: list[str] = []
    with ExitStack() as stack:
        systems: list[System] = []
        for kind in work.systems if isinstance(work, RolloutWork) else SYSTEMS:
            tell(f"making {kind.name}")
            system = _make(kind, work, actions, settings.workers, stack, notes)
            if system is not None:
                systems.append(system)
        rates, idle, other = _alternate(systems, settings, tell)
        tell("closing")
    rows = [Row(name, tuple(slices)) for name, slices in rates.items()]
    if BARE in rates:
        rows.insert(1, Row(BOUND, tuple(rate * settings.workers for rate in rates[BARE])))
    return WorkResult(work.name, tuple(rows), tuple(notes), idle, other)


def _alternate(
    systems: Sequence[System], settings: Settings, tell: Tell
) -> tuple[dict[str, list[float]], float, float]:
    """Give every system its turns.

    Returns:
        The rates of each system; the cores that workers kept busy while the bare environment
        was stepped, so while none had anything to do; the cores that others kept busy.
    """
    rates: dict[str, list[float]] = {system.name: [] for system in systems}
    idle, others, begun = 0.0, others_time(), time.monotonic()
    for turn, system in in_turns(systems, settings.repeats):
        tell(f"{turn + 1}/{settings.repeats} {system.name}")
        system.run_in(settings.seconds * RUN_IN)
        before = descendants_time()
        rates[system.name].append(system.run(settings.seconds))
        if system.name == BARE:
            idle += descendants_time() - before
    others, elapsed = others_time() - others, time.monotonic() - begun
    return rates, idle / (settings.repeats * settings.seconds), max(0.0, others) / elapsed


@contextmanager
def _closed_after(system: System) -> Iterator[None]:
    """Close a system; after Ctrl-C its processes may be gone already, which is no news then."""
    try:
        yield
    except BaseException:
        with suppress(Exception), warnings.catch_warnings(action="ignore"):
            system.close()
        raise
    system.close()


def _make(
    kind: type[System],
    work: Work,
    actions: Actions,
    workers: int,
    stack: ExitStack,
    notes: list[str],
) -> System | None:
    """Make a system; one that is not ours may be unable to run an environment."""
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
