"""Analyses a timeline: how much of the environments' time was hidden, and a chart."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

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


class Span(NamedTuple):
    """A named interval of a lane, in seconds."""

    group: str
    lane: str
    name: str
    started: float
    stopped: float


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
                started, seconds = float(event["ts"]) / 1e6, float(event["dur"]) / 1e6
                if not (math.isfinite(started) and 0 <= seconds < math.inf):
                    raise ValueError
                spans.append(Span(group, lane, str(event["name"]), started, started + seconds))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{os.fspath(path)} is not a timeline of agym.trace") from error
    return spans


class _Time:
    """The time of a recording, cut into segments wherever a span begins or ends."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._edges = np.unique([edge for span in spans for edge in (span.started, span.stopped)])
        self._seconds = np.diff(self._edges)

    def covered(self, spans: Iterable[Span]) -> Array:
        """Return for each segment whether a span covers it, ``bool[n]``."""
        times = np.array([(span.started, span.stopped) for span in spans]).reshape(-1, 2)
        started, stopped = np.searchsorted(self._edges, times).T
        changes = np.zeros(len(self._edges), int)
        np.add.at(changes, started, 1)
        np.subtract.at(changes, stopped, 1)
        return np.cumsum(changes)[:-1] > 0

    def length(self, segments: Array) -> float:
        """Return the seconds of these segments."""
        return float(self._seconds[segments].sum())


def measure(spans: Sequence[Span]) -> Overlap:
    """Return how much the caller's time and the environments' time overlap."""
    if not spans:
        return Overlap(0.0, 0.0, 0.0, 0.0, {})
    time = _Time(spans)
    environments = time.covered(span for span in spans if span.group == ENVIRONMENTS)
    inline = time.covered(s for s in spans if s.group == ENVIRONMENTS and INLINE in s.lane)
    waits = [span for span in spans if span.group == WAITING]
    marked = [span for span in spans if span.group == CALLER]

    def computing(blocks: Sequence[Span]) -> Array:
        """Return when the caller computed in some of its blocks: without waits and steps."""
        computed = np.zeros_like(inline)
        for lane in {span.lane for span in blocks}:
            waited = time.covered(span for span in waits if span.lane == lane)
            computed |= time.covered(span for span in blocks if span.lane == lane) & ~waited
        return computed & ~inline

    caller = computing(marked) if marked else ~(time.covered(waits) | inline)
    marks = {}
    for name in {span.name for span in marked}:
        blocks = [span for span in marked if span.name == name]
        both = time.length(computing(blocks) & environments)
        marks[name] = MarkedTime(time.length(time.covered(blocks)), both, len(blocks))
    return Overlap(
        time.length(np.ones_like(inline)), time.length(caller), time.length(environments),
        time.length(caller & environments),
        dict(sorted(marks.items(), key=lambda mark: -mark[1].seconds)),
    )  # fmt: skip


def draw(spans: Sequence[Span], path: Path) -> None:
    """Draw a timeline as a Gantt chart with a row per lane into a PNG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module = require("matplotlib.figure", "plot")
    order = {CALLER: 0, WAITING: 1, ENVIRONMENTS: 2}
    lanes = sorted({(s.group, s.lane) for s in spans}, key=lambda it: (order.get(it[0], 3), it))
    rows = {lane: row for row, lane in enumerate(lanes)}
    figure = figure_module.Figure(figsize=(10, 1.6 + 0.32 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    marks = dict.fromkeys(_kind(span) for span in spans if span.group == CALLER)
    colours = COLOURS | dict(zip(marks, cycle(MARK_COLOURS), strict=False))
    bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for span in spans:
        bar = bars.setdefault((rows[span.group, span.lane], _kind(span)), [])
        bar.append((span.started, span.stopped - span.started))
    shown: set[str] = set()
    for (row, kind), parts in sorted(bars.items()):
        label = "_" if kind in shown else kind
        colour = colours.get(kind, OTHER)
        axes.broken_barh(parts, (row - 0.4, 0.8), facecolors=colour, label=label)
        shown.add(kind)
    names = [lane if group == ENVIRONMENTS else f"{group}: {lane}" for group, lane in lanes]
    axes.set_yticks(range(len(lanes)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("time in seconds")
    hidden = f"{measure(spans).hidden:.0%} of the environments' time was hidden"
    axes.set_title(hidden if spans else "nothing ran", fontsize=9)
    if shown:
        figure.legend(fontsize=7, ncols=len(shown), loc="outside lower right")
    figure.savefig(path, format="png", dpi=130)


def _kind(span: Span) -> str:
    """Return what a span is in the legend: the operation, the mark, or its group."""
    operation, mark = span.name.partition(" ")[0], f'mark("{span.name}")'
    return {ENVIRONMENTS: operation, CALLER: mark}.get(span.group, span.group)
