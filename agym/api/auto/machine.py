"""What this machine costs, which is measured once and kept.

It is kept with what the machine looked like: its cores, the quota, and how many cores other
programs kept busy. A machine that looks different, whose costs a real run has refuted, or that may
have had a bad minute, is measured again, which takes some seconds
(``api/auto/measure_machine.py``). Many choices do not depend on it
(:func:`agym.planning.typical.extremes`).
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from agym._system.cpus import available_cores, core_numbers, quota
from agym._system.load import OtherLoad
from agym.api.auto.measure_machine import Progress, measure_machine
from agym.planning.caching import is_number, key_of, recall, remember
from agym.planning.model import Cost, Curve, Machine
from agym.planning.typical import TYPICAL, typical

# Where workers slow each other down by more than this factor, they may share their cores, or it was
# a bad minute of a shared machine. So this is measured again, so many seconds later each time.
DOUBTFUL, REPEAT_SECONDS = 1.25, (60.0, 600.0, 3600.0)

# For how long to watch what other programs do, and for how long that counts.
LOOK_SECONDS, LOOK_AGAIN_SECONDS = 0.06, 60.0


@dataclass
class Latest:
    """The machine as this process last saw it, and until when that counts."""

    machine: Machine | None = None
    until: float = 0.0


latest = Latest()


def this_machine(on_progress: Progress | None = None) -> Machine:
    """Return this machine's costs, which are measured if it did not look like this before.

    If they cannot be measured (for example, because no process can be started), return typical
    ones.
    """
    if latest.machine is not None and time.monotonic() < latest.until:
        return latest.machine
    cores = available_cores()
    try:
        machine = _measured(cores, on_progress)
    except Exception:
        machine = typical(cores)
    latest.machine, latest.until = machine, time.monotonic() + LOOK_AGAIN_SECONDS
    return machine


def _measured(cores: int, on_progress: Progress | None) -> Machine:
    """Return this machine's costs under the load of this moment, kept or measured now.

    Raises:
        Exception: They cannot be measured.
    """
    others = OtherLoad()
    time.sleep(LOOK_SECONDS)  # to see what other programs do
    kept = recall_machines(cores)
    load = round(others.cores())
    machine = kept.get(load)
    if machine is None or _is_doubtful(machine):
        again = measure_machine(cores, on_progress)
        if machine is not None:
            best = min(again, machine, key=lambda each: each.slowdown)
            again = replace(best, measured=again.measured, times=machine.times + 1)
        machine = again
        # Under both, or where the two always differ it would be measured each time.
        kept[load] = kept[round(machine.load or 0.0)] = machine
        remember_machines(cores, kept)
    return machine


def _is_doubtful(machine: Machine) -> bool:
    """Return whether it is time to measure a machine again, which was slow when it was measured."""
    if machine.slowdown <= DOUBTFUL or machine.times > len(REPEAT_SECONDS):
        return False
    return time.time() - machine.measured > REPEAT_SECONDS[machine.times - 1]


def remembered_costs() -> Machine:
    """Return this machine's remembered costs, with the least load, or typical ones."""
    cores = available_cores()
    kept = recall_machines(cores)
    return kept[min(kept)] if kept else typical(cores)


def forget_machine(refuted: Machine) -> None:
    """Forget costs that a real run has refuted."""
    latest.machine = None
    cores = available_cores()
    remember_machines(
        cores, {load: one for load, one in recall_machines(cores).items() if one != refuted}
    )


def _key(cores: int) -> str:
    return key_of("machine", cores, core_numbers(), quota())


def recall_machines(cores: int) -> dict[int, Machine]:
    """Read what is kept of this machine, by the number of cores that other programs used."""
    found = recall("machine", _key(cores)) or {}
    kept = {}
    with contextlib.suppress(TypeError, KeyError, AttributeError, ValueError):
        for load, record in found.items():
            kept[int(load)] = _from_record(record)
    return kept


def remember_machines(cores: int, kept: dict[int, Machine]) -> None:
    """Keep this machine's costs, by the number of cores that other programs used."""
    remember("machine", _key(cores), {str(load): asdict(one) for load, one in kept.items()})


def _from_record(record: dict[str, Any]) -> Machine:
    """Read a machine from its record.

    Raises:
        ValueError: A number is none.
        TypeError: Something else is wrong, or a ``KeyError``.
    """
    costs = {name: Cost(**cost) for name, cost in record["costs"].items()}
    curves = {
        int(k): Curve(*(tuple(curve[name]) for name in ("work", "usual", "worst")))
        for k, curve in record["curves"].items()
    }
    starts = {int(k): seconds for k, seconds in record["starts"].items()}
    numbers = [record["load"], record["measured"], *starts.values()]
    numbers += [number for cost in costs.values() for number in asdict(cost).values()]
    for curve in curves.values():
        if not len(curve.work) == len(curve.usual) == len(curve.worst) > 0:
            raise ValueError(f"a curve of {len(curve.work)} points")
        numbers += [*curve.work, *curve.usual, *curve.worst]
    cores, times = record["cores"], record["times"]
    if type(cores) is not int or cores < 1 or type(times) is not int or times < 1:
        raise ValueError(f"{cores!r} cores, measured {times!r} times")
    if not all(map(is_number, numbers)) or not curves or costs.keys() != TYPICAL.keys():
        raise ValueError("the record is incomplete")
    return Machine(cores, costs, curves, starts, record["load"], record["measured"], times)
