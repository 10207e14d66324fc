"""The result of planning, as a record and as text."""

from __future__ import annotations

from dataclasses import dataclass

from agym.planning.choice import readable
from agym.planning.model import Candidate, Machine, Profile


@dataclass(frozen=True)
class Plan:
    """Which backend should run the environments, and why; it prints as a table.

    Example:
        >>> import agym
        >>> plan = agym.plan("CartPole-v1", 1)
        >>> plan.chosen.backend, plan.num_envs
        ('serial', 1)

    Attributes:
        name: The environments' name.
        num_envs: Number of environments.
        candidates: Every backend that was considered, with its seconds per batch.
        chosen: One of them.
        why: The reason, in three sentences: what is predicted, what decided, and where the costs
            come from; in one sentence if nothing was predicted.
        profile: What one environment is like; ``None`` if it was not measured.
        machine: What this machine costs; ``None`` if that did not matter.
    """

    name: str
    num_envs: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    why: str
    profile: Profile | None = None
    machine: Machine | None = None

    @property
    def backend(self) -> str:
        """The value for ``backend=`` of :func:`agym.make`."""
        return self.chosen.backend

    @property
    def workers(self) -> int | None:
        """The value for ``workers=`` of :func:`agym.make`."""
        return self.chosen.workers

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the candidates as a table: names of the columns, and texts."""
        tried = any(one.measured is not None for one in self.candidates)
        times = ["predicted", "pessimistic", *(["measured"] if tried else [])]
        names = ["", "backend", "workers", *times, "remark"]
        texts = []
        for one in self.candidates:
            measured = [readable(one.measured)] if tried else []
            mark = "→" if one == self.chosen else ""
            workers = "–" if one.workers is None else f"{one.workers}"
            texts.append([
                mark, one.backend, workers, readable(one.predicted), readable(one.worst), *measured,
                one.remark,
            ])  # fmt: skip
        return names, texts

    def __repr__(self) -> str:
        names, texts = self.rows()
        lines = [names, *texts]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        table = [
            "  ".join(
                text.rjust(width) if 2 <= i < len(names) - 1 else text.ljust(width)
                for i, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        about = [] if self.profile is None else [describe(self.profile)]
        title = f"{self.name} ×{self.num_envs}, seconds per batch"
        return "\n".join([title, *about, "", *table, "", self.why])


def describe(profile: Profile) -> str:
    """Describe an environment in a line."""
    parts = [
        f"step {readable(profile.step)}",
        f"{profile.waiting:.0%} of it waiting",
        f"reset {readable(profile.reset)}",
        f"construction {readable(profile.construction)}",
        f"observation {profile.observation_bytes:,} bytes",
    ]
    if profile.info_bytes:
        parts.append(f"info {profile.info_bytes:,} bytes as a message")
    return ", ".join(parts)
