"""The rule by which a backend is chosen among candidates, and what is said of it.

In doubt the simplest is chosen: another one must be clearly faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from agym.core.planning.model import Candidate, Profile, Requirements

# A backend that is not the simplest must be predicted to be this many times as fast. Less is within
# what a machine varies by from minute to minute. With 1.3, Acrobot x8 was a quarter slower than in
# worker processes (``python -m benchmarks grid``).
MIN_SPEEDUP = 1.15

# The same between two that were both measured, and where the caller asks for workers.
MARGIN = 1.05


def decide(found: Sequence[Candidate], *, workers_wanted: bool = False) -> tuple[Candidate, str]:
    """Choose one of the candidates, which are listed with the simplest first.

    Args:
        found: The candidates, one of which at least has no remark.
        workers_wanted: The caller asks for workers, so that there is no doubt about having any.

    Returns:
        The chosen one, and what decided, in a sentence.
    """
    base, *others = (one for one in found if not one.remark)
    if not others:
        return base, "No other backend can be chosen."
    other = min(others, key=lambda one: one.seconds)
    measured = base.measured is not None and other.measured is not None
    clearly = MARGIN if measured or workers_wanted else MIN_SPEEDUP
    compared = f"{other.name} is {base.seconds / other.seconds:.2f} times as fast"
    if base.seconds >= clearly * other.seconds:
        return other, f"{compared}."
    return base, f"{compared}; below {clearly:g} times the simpler one stays."


def explain(chosen: Candidate, found: Sequence[Candidate]) -> str:
    """Return what batches take on the chosen one and on others, without a full stop."""
    said = f"{chosen.name} {_takes(chosen)} per batch"
    others = [one for one in found if not one.remark and one is not chosen]
    if others:
        other = min(others, key=lambda one: one.seconds)
        # What a real run took is said in any case, since it may be why another one is chosen.
        others = [one for one in others if one is other or one.measured is not None]
        said = ", ".join([said, *(f"{one.name} {_takes(one)}" for one in others)])
    return "; ".join([said, *(f"{one.backend} {one.remark}" for one in found if one.remark)])


def describe_basis(profile: Profile, needs: Requirements) -> str:
    """Return in a sentence what predictions are derived from."""
    cores = f"{needs.cores} core{'s' if needs.cores > 1 else ''}"
    use = f"worker processes would have {cores}"
    if needs.others:
        use = f"other work keeps {needs.others} of {cores} busy"
    return f"A step of one environment was measured to take {readable(profile.step)}, and {use}."


def _takes(one: Candidate) -> str:
    if one.measured is not None:
        return f"took {readable(one.measured)}"
    return f"is predicted to take {readable(one.predicted)}"


def readable(seconds: float | None) -> str:
    """Format a duration with its unit: ``"12.3 µs"``."""
    if seconds is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1e3 else f"{seconds:,.0f} s"
    return f"{seconds / 1e-6:.3g} µs"
