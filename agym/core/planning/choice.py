"""The rule that chooses a backend among candidates, and the resulting plan, as record and as text.

In doubt, the simplest backend is chosen: another one must be clearly faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agym.core.planning.model import Candidate, Profile, Requirements

# A backend that is not the simplest must be predicted to be this many times as fast. A smaller
# factor is within the variation of a machine from minute to minute. With 1.3, Acrobot x8 was a
# quarter slower than in worker processes (``python -m benchmarks grid``).
MIN_SPEEDUP = 1.15

# The factor between two measured backends, and if the caller asks for workers.
MARGIN = 1.05


def decide(found: Sequence[Candidate], *, workers_wanted: bool = False) -> tuple[Candidate, str]:
    """Choose one of the candidates, which are listed with the simplest first.

    Args:
        found: The candidates, at least one of which has no remark.
        workers_wanted: The caller asks for workers, so their cost is no reason against them.

    Returns:
        The chosen candidate, and the reason, in a sentence.
    """
    base, *others = (candidate for candidate in found if not candidate.remark)
    if not others:
        return base, "No other backend is possible."
    other = min(others, key=lambda candidate: candidate.seconds)
    measured = base.measured is not None and other.measured is not None
    factor = MARGIN if measured or workers_wanted else MIN_SPEEDUP
    compared = f"{other.name} is {base.seconds / other.seconds:.2f} times as fast"
    if base.seconds >= factor * other.seconds:
        return other, f"{compared}."
    return base, f"{compared}; below {factor:g} times, the simpler backend is chosen."


def explain(chosen: Candidate, found: Sequence[Candidate]) -> str:
    """Describe the batch times of the chosen candidate and of others, without a full stop."""
    text = f"{chosen.name} {_takes(chosen)} per batch"
    others = [other for other in found if not other.remark and other is not chosen]
    if others:
        best = min(others, key=lambda other: other.seconds)
        # Measured times are always included, because they may be the reason for the choice.
        others = [other for other in others if other is best or other.measured is not None]
        text = ", ".join([text, *(f"{other.name} {_takes(other)}" for other in others)])
    return "; ".join([text, *(f"{each.backend} {each.remark}" for each in found if each.remark)])


def describe_basis(profile: Profile, needs: Requirements) -> str:
    """Describe in a sentence the basis of the predictions."""
    cores = f"{needs.cores} core{'s' if needs.cores > 1 else ''}"
    use = f"worker processes would have {cores}"
    if needs.others:
        use = f"other work keeps {needs.others} of {cores} busy"
    return f"A step of one environment was measured to take {readable(profile.step)}, and {use}."


def _takes(candidate: Candidate) -> str:
    if candidate.measured is not None:
        return f"took {readable(candidate.measured)}"
    return f"is predicted to take {readable(candidate.predicted)}"


def readable(seconds: float | None) -> str:
    """Format a duration with its unit: ``"12.3 µs"``."""
    if seconds is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1e3 else f"{seconds:,.0f} s"
    return f"{seconds / 1e-6:.3g} µs"


@dataclass(frozen=True)
class Plan:
    """The chosen backend and the reason; it prints as a table.

    Example:
        >>> import agym
        >>> plan = agym.plan("CartPole-v1", 1)
        >>> plan.chosen.backend, plan.num_envs
        ('serial', 1)

    Attributes:
        name: The environments' name.
        num_envs: Number of environments.
        candidates: Every backend that was considered, with its seconds per batch.
        chosen: The chosen candidate.
        why: The reason, in three sentences: batch times, the decision, and the basis of the
            predictions; a single sentence if nothing was predicted.
        profile: The measurements of one environment; ``None`` if it was not measured.
    """

    name: str
    num_envs: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    why: str
    profile: Profile | None = None

    @property
    def backend(self) -> str:
        """The value for ``backend=`` of :func:`agym.make`."""
        return self.chosen.backend

    @property
    def workers(self) -> int | None:
        """The value for ``workers=`` of :func:`agym.make`."""
        return self.chosen.workers

    def __repr__(self) -> str:
        lines = [["", "backend", "workers", "predicted", "measured", "remark"]]
        for each in self.candidates:
            mark, workers = "→" if each == self.chosen else "", each.workers or "–"
            times = readable(each.predicted), readable(each.measured)
            lines.append([mark, each.backend, f"{workers}", *times, each.remark])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                text.rjust(width) if 2 <= i < len(widths) - 1 else text.ljust(width)
                for i, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        about = [] if self.profile is None else [describe(self.profile)]
        title = f"{self.name} ×{self.num_envs}, seconds per batch"
        return "\n".join([title, *about, "", *table, "", self.why])


def describe(profile: Profile) -> str:
    """Describe an environment in one line."""
    parts = [
        f"step {readable(profile.step)}",
        f"{profile.waiting:.0%} of it waiting",
        f"reset {readable(profile.reset)}",
        f"construction {readable(profile.construction)}",
    ]
    if profile.infos:
        parts.append(f"infos of {profile.infos:.3g} values")
    return ", ".join(parts)
