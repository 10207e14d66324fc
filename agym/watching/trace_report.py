"""Analyses a timeline: how much of the environments' time was hidden, and a chart."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agym.core._system.extras import require
from agym.core.protocol.typing import Array
from agym.errors import UsageError

# The groups of lanes, "processes" in the file format; see ``agym.watching.trace``.
ENVIRONMENTS, WAITING, CALLER = "environments", "waiting", "caller"

# The start of the names of lanes whose environments run in the caller's thread.
INLINE = "the caller's thread"

COLOURS = {
    "step": "#2563eb", "reset": "#f59e0b", "render": "#10b981", WAITING: "#e5e7eb",
}  # fmt: skip
OTHER = "#8b5cf6"

# Colours of the caller's marks, in the order of their first blocks.
MARK_COLOURS = ("#b91c1c", "#0f766e", "#a16207", "#6d28d9", "#be185d", "#334155")


@dataclass(frozen=True)
class Overlap:
    """How many seconds the caller and the environments ran, and how many seconds both did.

    Example:
        >>> import agym, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.json")
        >>> with agym.make("CartPole-v1", 4, backend="thread") as envs, agym.trace(envs, path):
        ...     observations, infos = envs.reset(seed=0)
        ...     envs.send([0, 1, 0, 1])
        ...     with agym.mark("backward"):
        ...         loss = sum(range(100_000))
        ...     batch = envs.recv(min_envs=4)
        >>> overlap = agym.overlap(path)
        >>> 0 <= overlap.hidden <= 1, list(overlap.marks)
        (True, ['backward'])

    Attributes:
        seconds: Time from the start of the first span to the end of the last.
        caller: Time in which the caller computed, and neither waited for a result nor ran
            environments; if it marked blocks (:func:`agym.mark`), only these blocks count.
        environments: Time in which at least one environment ran.
        both: Time in which both ran.
        marks: The marked blocks by name, the longest first; empty if there are none.
    """

    seconds: float
    caller: float
    environments: float
    both: float
    marks: Mapping[str, MarkedTime]

    @property
    def hidden(self) -> float:
        """Share of the environments' time that was hidden, because the caller computed, too."""
        return self.both / self.environments if self.environments else 0.0

    @property
    def share(self) -> float:
        """Share of the caller's time in which environments ran."""
        return self.both / self.caller if self.caller else 0.0

    def __repr__(self) -> str:
        if not self.seconds:
            return "nothing ran during the recording"
        work = "ran its marked blocks" if self.marks else "did not wait"
        text = (
            f"{self.hidden:.0%} of the environments' time was hidden: they ran for"
            f" {self.environments:.3g} s of {self.seconds:.3g} s, and for {self.both:.3g} s of that"
            f" the caller {work}"
        )
        if not self.marks:
            return f'{text}\n  mark blocks of your code, `with agym.mark("backward"):`, to see them'
        width = max(map(len, self.marks))
        for name, mark in self.marks.items():
            blocks = "block" if mark.count == 1 else "blocks"
            text += (
                f"\n  {name:<{width}}  {mark.seconds:.3g} s in {mark.count} {blocks}, environments"
                f" ran for {mark.share:.0%} of that time"
            )
        return text


@dataclass(frozen=True)
class MarkedTime:
    """The caller's blocks of one name (:func:`agym.mark`).

    Attributes:
        seconds: Time in these blocks.
        both: Time in which the caller computed in these blocks while environments ran.
        count: Number of blocks.
    """

    seconds: float
    both: float
    count: int

    @property
    def share(self) -> float:
        """Share of the blocks' time in which environments ran."""
        return self.both / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Span:
    """A named interval of a lane, in seconds."""

    group: str
    lane: str
    name: str
    begun: float
    ended: float


def overlap(path: str | os.PathLike[str]) -> Overlap:
    """Measure how much overlapped in a timeline that :func:`agym.trace` recorded.

    Example:
        >>> import agym, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.json")
        >>> with agym.make("CartPole-v1", 4) as envs, agym.trace(envs, path):
        ...     observations, infos = envs.reset(seed=0)
        >>> agym.overlap(path).seconds > 0
        True

    Raises:
        UsageError: The file cannot be read as a timeline.
    """
    return measure(read_spans(path))


def read_spans(path: str | os.PathLike[str]) -> list[Span]:
    """Read a timeline.

    Raises:
        UsageError: The file cannot be read as a timeline.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise UsageError(f"{os.fspath(path)} cannot be read: {reason}") from error
    try:
        events = json.loads(text)["traceEvents"]
        names: dict[tuple[str, int, int], str] = {}
        spans = []
        for event in events:
            process, thread = event["pid"], event["tid"]
            if event["ph"] == "M":
                names[event["name"], process, thread] = event["args"]["name"]
            elif event["ph"] == "X":
                group = names["process_name", process, 0]
                lane = names["thread_name", process, thread]
                begun, seconds = float(event["ts"]) / 1e6, float(event["dur"]) / 1e6
                if not (math.isfinite(begun) and 0 <= seconds < math.inf):
                    raise ValueError
                spans.append(Span(group, lane, str(event["name"]), begun, begun + seconds))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{os.fspath(path)} is not a timeline of agym.trace") from error
    return spans


def measure(spans: Sequence[Span]) -> Overlap:
    """Return how much the caller's time and the environments' time overlap."""
    if not spans:
        return Overlap(0.0, 0.0, 0.0, 0.0, {})
    whole = np.array([[min(s.begun for s in spans), max(s.ended for s in spans)]])
    environments = _union(span for span in spans if span.group == ENVIRONMENTS)
    marked = [span for span in spans if span.group == CALLER]
    if marked:
        caller = _computing(marked, spans)
    else:
        waits = _union(span for span in spans if span.group == WAITING or _is_inline(span))
        caller = _without(whole, waits)
    marks = {}
    for name in {span.name for span in marked}:
        blocks = [span for span in marked if span.name == name]
        both = _common(_computing(blocks, spans), environments)
        marks[name] = MarkedTime(_length(_union(blocks)), both, len(blocks))
    return Overlap(
        _length(whole), _length(caller), _length(environments), _common(caller, environments),
        dict(sorted(marks.items(), key=lambda mark: -mark[1].seconds)),
    )  # fmt: skip


def _computing(blocks: Sequence[Span], spans: Sequence[Span]) -> Array:
    """Return when the caller computed in some of its blocks: without waits, and without steps."""
    inline = _union(filter(_is_inline, spans))
    parts = []
    for lane in {span.lane for span in blocks}:
        waits = _union(span for span in spans if span.group == WAITING and span.lane == lane)
        of_lane = _union(span for span in blocks if span.lane == lane)
        parts.append(_without(_without(of_lane, waits), inline))
    return _merged(np.concatenate(parts).tolist())


def _is_inline(span: Span) -> bool:
    return span.group == ENVIRONMENTS and INLINE in span.lane


def _union(spans: Iterable[Span]) -> Array:
    return _merged((span.begun, span.ended) for span in spans)


def _merged(intervals: Iterable[Sequence[float]]) -> Array:
    """Return the union as disjoint, ascending intervals, ``float[n, 2]``."""
    merged: list[list[float]] = []
    for begun, ended in sorted(map(tuple, intervals)):
        if merged and begun <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], ended)
        else:
            merged.append([begun, ended])
    return np.array(merged).reshape(-1, 2)


def _without(intervals: Array, others: Array) -> Array:
    """Return the parts of intervals outside of others."""
    remaining: list[tuple[float, float]] = []
    k = 0
    for begun, ended in intervals.tolist():
        while k < len(others) and others[k, 1] <= begun:
            k += 1
        at = begun
        for low, high in others[k:].tolist():
            if low >= ended:
                break
            if low > at:
                remaining.append((at, low))
            at = max(at, high)
        if at < ended:
            remaining.append((at, ended))
    return np.array(remaining).reshape(-1, 2)


def _common(intervals: Array, others: Array) -> float:
    """Return the length of the intersection."""
    return _length(intervals) - _length(_without(intervals, others))


def _length(intervals: Array) -> float:
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def draw(spans: Sequence[Span], path: Path) -> None:
    """Draw a timeline as a Gantt chart with a row per lane into a PNG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "plot")
    order = {CALLER: 0, WAITING: 1, ENVIRONMENTS: 2}
    lanes = sorted({(order.get(s.group, 3), s.group, s.lane) for s in spans})
    rows = {lane: row for row, lane in enumerate(lanes)}
    figure = figure_module.Figure(figsize=(10, 1.6 + 0.32 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    marks = list(dict.fromkeys(span.name for span in spans if span.group == CALLER))
    colours = COLOURS | {
        f'mark("{name}")': MARK_COLOURS[k % len(MARK_COLOURS)] for k, name in enumerate(marks)
    }
    bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for span in spans:
        row = rows[order.get(span.group, 3), span.group, span.lane]
        kind = {ENVIRONMENTS: span.name.partition(" ")[0], CALLER: f'mark("{span.name}")'}.get(
            span.group, span.group
        )
        bars.setdefault((row, kind), []).append((span.begun, span.ended - span.begun))
    shown: set[str] = set()
    for (row, kind), split in sorted(bars.items()):
        axes.broken_barh(
            split, (row - 0.4, 0.8), facecolors=colours.get(kind, OTHER),
            label="_" if kind in shown else kind,
        )  # fmt: skip
        shown.add(kind)
    axes.set_yticks(range(len(lanes)), [_row_name(*lane[1:]) for lane in lanes], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("time in seconds")
    axes.set_title(_title(measure(spans)), fontsize=9)
    if shown:
        figure.legend(fontsize=7, ncols=len(shown), loc="outside lower right")
    figure.savefig(path, format="png", dpi=130)


def _title(overlap: Overlap) -> str:
    if not overlap.seconds:
        return "nothing ran"
    return f"{overlap.hidden:.0%} of the environments' time was hidden"


def _row_name(group: str, lane: str) -> str:
    return lane if group == ENVIRONMENTS else f"{group}: {lane}"
