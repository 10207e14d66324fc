"""The result of planning, as a record and as text."""

from __future__ import annotations

from dataclasses import dataclass

from agym.planning.model import MARGIN, Candidate, Profile, Requirements, Transport


@dataclass(frozen=True)
class Plan:
    """Which backend should run the environments, and why; it prints as a table.

    Attributes:
        name: The environments' name.
        num_envs: Number of environments.
        candidates: Every backend that was considered, with its seconds per batch.
        chosen: One of them.
        why: The reason, in a sentence.
        profile: What one environment is like; ``None`` if it was not measured.
        transport: What this machine costs; ``None`` if that did not matter.
    """

    name: str
    num_envs: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    why: str
    profile: Profile | None = None
    transport: Transport | None = None

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
        names = ["", "backend", "workers", "predicted", *(["measured"] if tried else []), "remark"]
        texts = []
        for one in self.candidates:
            measured = [readable(one.measured)] if tried else []
            mark = "→" if one == self.chosen else ""
            workers = "–" if one.workers is None else f"{one.workers}"
            texts.append([
                mark, one.backend, workers, readable(one.predicted), *measured, one.remark,
            ])  # fmt: skip
        return names, texts

    def __str__(self) -> str:
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


def explain(chosen: Candidate, found: list[Candidate], needs: Requirements) -> str:
    """Return in a sentence why a candidate was chosen."""
    name, seconds = chosen.name, chosen.predicted
    assert seconds is not None
    others = [
        one for one in found
        if one.backend != chosen.backend and not one.remark and one.predicted is not None
    ]  # fmt: skip
    said = f"{name}: {readable(seconds)} per batch"
    if others:
        other = min(others, key=lambda one: one.predicted or 0.0)
        ratio = (other.predicted or 0.0) / seconds
        if ratio >= 1.005:
            said += f", {ratio:.2f} times as fast as {other.name}"
        else:
            said += f", as fast as {other.name} within {MARGIN:.0%}, and simpler"
    else:
        said += ", the only backend that can be chosen"
    refused = {one.backend: one.remark for one in found if one.remark and one.predicted is not None}
    refused.pop(chosen.backend, None)
    return "; ".join([said, *(f"{backend} {why}" for backend, why in refused.items())]) + "."


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
    if profile.parallel:
        parts.append("releases the GIL")
    return ", ".join(parts)


def readable(seconds: float | None) -> str:
    """Format a duration with its unit: ``"12.3 µs"``."""
    if seconds is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1e3 else f"{seconds:,.0f} s"
    return f"{seconds / 1e-6:.3g} µs"
