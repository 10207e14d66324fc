"""The result of planning, as a record and as text."""

from __future__ import annotations

from dataclasses import dataclass

from agym.core.planning.choice import readable
from agym.core.planning.model import Candidate, Profile


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
