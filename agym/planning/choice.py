"""The rule by which a backend is chosen among candidates, and what is said of it.

In doubt the simplest is chosen. Another one must be clearly faster, even at the pessimistic end of
its prediction, and repay the time that its workers take to start::

    base   the simplest that is able, which is serial unless something excludes it
    other  instead, if  base >= LEAST_BATCH
                   and  base >= CLEARLY * other at its pessimistic end
                   and  (base - other) * REPAID_IN >= other's start - base's start

Where both were measured, or the caller asks for workers, ``MARGIN`` is enough for any batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agym.planning.model import Candidate, Machine, Requirements

# A backend that is not the simplest must be this many times as fast, at the pessimistic end of its
# prediction. Less is within what a machine varies by from minute to minute.
CLEARLY = 1.3

# The same between two that were both measured, between numbers of workers, and where the caller
# asks for workers.
MARGIN = 1.05

# Batches of less than this many seconds stay with the simplest backend: how long a round trip takes
# varies by as much.
LEAST_BATCH = 250e-6

# Within this many batches, the time that workers take to start must be repaid.
REPAID_IN = 4000


@dataclass(frozen=True)
class Decision:
    """A chosen candidate.

    Attributes:
        chosen: The candidate; ``None`` if none is able.
        reason: The rule that decided, in a sentence.
    """

    chosen: Candidate | None
    reason: str = ""


def decide(found: Sequence[Candidate], *, workers_wanted: bool = False) -> Decision:
    """Choose one of the candidates, which are listed with the simplest first.

    Args:
        found: The candidates.
        workers_wanted: The caller asks for workers, so that there is no doubt about having any.
    """
    able = [one for one in found if not one.remark and (one.predicted or one.measured)]
    if not able:
        return Decision(None)
    same = [one for one in able if one.backend == able[0].backend]
    base, rest = _fewest(same), able[len(same) :]
    if not rest:
        return Decision(base, "No other backend can be chosen.")
    better = [one for one in rest if not _reason_rejected(one, base, workers_wanted)]
    other = _fewest(better or rest)
    if better:
        return Decision(other, f"{_compared(other, base)}.")
    return Decision(base, f"{_reason_rejected(other, base, workers_wanted)}.")


def _reason_rejected(other: Candidate, base: Candidate, workers_wanted: bool) -> str:
    """Return why a candidate is not chosen instead of the base; empty if it may be."""
    measured = base.measured is not None and other.measured is not None
    clearly = MARGIN if measured or workers_wanted else CLEARLY
    if base.usual < LEAST_BATCH and not measured and not workers_wanted:
        return f"Batches below {readable(LEAST_BATCH)} stay with the simplest backend"
    if base.usual < clearly * other.pessimistic:
        return f"{_compared(other, base)}; below {clearly:g} times the simpler one stays"
    start = other.start - base.start
    if (base.usual - other.usual) * REPAID_IN < start:
        return (
            f"{_compared(other, base)}, but {REPAID_IN:,} batches do not repay the"
            f" {readable(start)} that its workers take to start"
        )
    return ""


def _compared(other: Candidate, base: Candidate) -> str:
    at = "" if other.measured is not None else " at its pessimistic end"
    return f"{other.name} is {base.usual / other.pessimistic:.2f} times as fast{at}"


def _fewest(same: Sequence[Candidate]) -> Candidate:
    """Return the simplest one that is as fast as the best within the margin."""
    best = min(one.usual for one in same)
    return next(one for one in same if one.usual <= best * MARGIN)


def explain(decision: Decision, found: Sequence[Candidate], needs: Requirements) -> str:
    """Return what decides between the candidates, in two sentences."""
    chosen = decision.chosen
    assert chosen is not None
    others = [
        one for one in found
        if one.backend != chosen.backend and (one.predicted or one.measured) and not one.remark
    ]  # fmt: skip
    said = f"{chosen.name} {_takes(chosen)} per batch"
    if needs.overlap:
        said += f" with the {readable(needs.overlap)} that the caller computes meanwhile"
    if others:
        other = min(others, key=lambda one: one.usual)
        same = (other.measured is None) is (chosen.measured is None)
        said += f", {other.name} {readable(other.usual) if same else _takes(other)}"
        if other.measured is None and other.worst != other.predicted:
            said += f" (pessimistically {readable(other.worst)})"
        if chosen.measured is None:
            tried = (one for one in others if one.measured is not None and one is not other)
            said += "".join(f", {one.name} {_takes(one)}" for one in tried)
    refused = {one.backend: one.remark for one in found if one.remark and one.predicted is not None}
    refused.pop(chosen.backend, None)
    said = "; ".join([said, *(f"{backend} {why}" for backend, why in refused.items())])
    return f"{said}. {decision.reason}"


def _takes(one: Candidate) -> str:
    if one.measured is not None:
        return f"took {readable(one.measured)}"
    return f"is predicted to take {readable(one.predicted)}"


def describe_costs(machine: Machine) -> str:
    """Return in a sentence where the costs come from."""
    cores = f"{machine.cores} cores" if machine.cores != 1 else "1 core"
    if machine.load is None:
        return f"These are a typical machine's costs, for {cores}."
    return (
        f"The costs were measured on this machine: {cores}, of which other programs kept"
        f" {machine.load:.1f} busy."
    )


def readable(seconds: float | None) -> str:
    """Format a duration with its unit: ``"12.3 µs"``."""
    if seconds is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1e3 else f"{seconds:,.0f} s"
    return f"{seconds / 1e-6:.3g} µs"
