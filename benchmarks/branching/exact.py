"""Branch points: does another environment continue from a snapshot as its origin did?

::

    origin   ..... random steps ..... snapshot ── 50 actions ── rows
    another                               └ restore ── the same 50 actions ── the same rows?
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.table import Table

import agym
from benchmarks.branching.digests import Row, difference, digest
from benchmarks.branching.envs import backend_of, missing, source_of
from benchmarks.branching.records import BackendName, Game, Plan
from benchmarks.measuring.progress import Announce

# Steps that are compared, and the most random steps before a branch point.
COMPARED_STEPS, MAX_STEPS = 50, 60

# Tries per wanted point: the rest may be refused.
TRIES = 2


@dataclass
class ExactResult:
    """The branch points of one environment.

    Attributes:
        env: Its name.
        identical: Branch points whose continuations were equal to the last bit.
        different: Branch points whose continuations were different.
        refused: Number of further branch points, at which a snapshot was refused.
        at_ends: Number of compared branch points at which the episode had just ended.
        different_at_ends: Number of these whose continuations were different.
        ways: How snapshots were taken.
        nbytes: Median size of snapshots in bytes.
        reasons: Why snapshots were refused, and how often.
        differences: The first differences, in words.
        note: Why the environment was not measured.
    """

    env: str
    identical: int = 0
    different: int = 0
    refused: int = 0
    at_ends: int = 0
    different_at_ends: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    nbytes: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    note: str = ""

    @property
    def compared(self) -> int:
        return self.identical + self.different


def measure_exactness(
    game: Game, plan: Plan, backend: BackendName, announce: Announce
) -> ExactResult:
    """Take snapshots at random points of episodes, and compare the continuations."""
    if (note := missing(game)) is not None:
        return ExactResult(game.name, note=note)
    with agym.make(
        source_of(game), plan.batch, backend=backend_of(game, backend, plan.workers),
        autoreset="next_step", **game.kwargs,
    ) as envs:  # fmt: skip
        return _Comparison(game.name, envs, plan).run(announce)


class _Comparison:
    """The branch points of a batch of environments."""

    def __init__(self, name: str, envs: agym.Envs[Any, Any], plan: Plan) -> None:
        self._envs = envs
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._space = envs.single_action_space
        self._space.seed(plan.seed)
        self._last: dict[int, Row] = {}
        self._shown: dict[int, bytes] = {}
        self._result = ExactResult(name)
        self._sizes: list[int] = []
        self._ways: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def run(self, announce: Announce) -> ExactResult:
        """Compare until there are enough points, or too many were refused."""
        plan, result = self._plan, self._result
        observations, _ = self._envs.reset(seed=plan.seed)
        self._shown = {i: digest(observation) for i, observation in enumerate(observations)}
        while result.compared < plan.points and (
            result.compared + result.refused < TRIES * plan.points
        ):
            announce(f"{result.compared:,} of {plan.points:,} branch points")
            self._walk()
            self._branch(plan.points - result.compared)
        result.ways, result.reasons = {**self._ways}, {**self._reasons}
        result.nbytes = median(self._sizes) if self._sizes else 0.0
        return result

    def _walk(self) -> None:
        """Take a random number of random steps with each environment.

        Half of those whose episode ends on the way stay there, because few points are at an end.
        """
        counts = [self._random.randint(1, MAX_STEPS) for _ in range(self._envs.num_envs)]
        for step in range(max(counts)):
            ids = [i for i, count in enumerate(counts) if count > step]
            if not ids:
                break
            self._step(ids, [self._space.sample() for _ in ids])
            for i in ids:
                if self._last[i].ends and self._random.random() < 0.5:
                    counts[i] = 0

    def _branch(self, most: int) -> None:
        """Branch from all environments, each into the next one, and compare."""
        snapshots = dict([*self._take().items()][:most])
        if not snapshots:
            return
        origins = [*snapshots]
        ended = {i: i in self._last and self._last[i].ends for i in origins}
        shown = {i: self._shown[i] for i in origins}
        actions = {i: [self._space.sample() for _ in range(COMPARED_STEPS)] for i in origins}
        ours = self._play(actions)
        into = {self._next(i, origins): i for i in origins}
        restored = self._restore({target: snapshots[i] for target, i in into.items()})
        theirs = self._play({target: actions[into[target]] for target in restored})
        for target, observation in restored.items():
            i = into[target]
            why = "" if observation == shown[i] else "observation that restore returned"
            why = why or difference(ours[i], theirs[target])
            self._count(why, ended[i], f"environment {i} into {target}: {why}: {snapshots[i]}")

    def _next(self, i: int, origins: Sequence[int]) -> int:
        if len(origins) == 1:
            return (i + 1) % self._envs.num_envs
        return origins[(origins.index(i) + 1) % len(origins)]

    def _take(self) -> dict[int, agym.Snapshot]:
        """Take a snapshot of each environment, and note which are refused."""
        envs = self._envs
        try:
            taken = dict(enumerate(envs.snapshot()))
        except agym.SnapshotError:
            taken = {}
            for i in range(envs.num_envs):
                try:
                    taken[i] = envs[i].snapshot()
                except agym.SnapshotError as error:
                    self._refuse(str(error).partition("cannot be copied: ")[2] or str(error))
        if taken:
            self._sizes.append(next(iter(taken.values())).nbytes)
        self._ways.update(snapshot.way for snapshot in taken.values())
        return taken

    def _restore(self, snapshots: dict[int, agym.Snapshot]) -> dict[int, bytes]:
        """Restore snapshots; return digests of the observations of successful restores."""
        envs = self._envs
        ids = sorted(snapshots)
        try:
            observations = envs.restore([snapshots[i] for i in ids], ids).observations
        except agym.AgymError:
            found = {}
            for i in ids:
                try:
                    found[i] = digest(envs[i].restore(snapshots[i])[0])
                except agym.AgymError as error:
                    self._refuse(f"restore: {error}".partition("\n")[0])
                    self._shown[i] = digest(envs[i].reset()[0])
                    self._last.pop(i, None)
        else:
            found = {i: digest(observations[i]) for i in ids}
        return found

    def _refuse(self, reason: str) -> None:
        self._result.refused += 1
        self._reasons[reason] += 1

    def _count(self, why: str, ended: bool, where: str) -> None:
        result = self._result
        result.identical += not why
        result.different += bool(why)
        result.at_ends += ended
        result.different_at_ends += ended and bool(why)
        if why:
            result.differences.append(where)

    def _play(self, actions: Mapping[int, Sequence[Any]]) -> dict[int, list[Row]]:
        """Step some environments with the actions; return the results of each."""
        rows: dict[int, list[Row]] = {i: [] for i in actions}
        ids = sorted(actions)
        if ids:
            for step in range(COMPARED_STEPS):
                self._step(ids, [actions[i][step] for i in ids])
                for i in ids:
                    rows[i].append(self._last[i])
        return rows

    def _step(self, ids: Sequence[int], actions: Sequence[Any]) -> None:
        """Step some environments and store the results."""
        whole = len(ids) == self._envs.num_envs
        result = self._envs.step(actions, env_ids=None if whole else ids)
        for i, *row in zip(ids, *result, strict=True):
            self._last[i] = Row.of(*row)
            self._shown[i] = self._last[i].observation


def exact_table(results: Sequence[ExactResult]) -> Table:
    """Return a table with a line per environment."""
    notes = [f"{result.env}: {result.note}." for result in results if result.note]
    for result in results:
        for reason, count in result.reasons.items():
            notes.append(f"{result.env}, refused {count}×: {reason}.")
        notes += [f"{result.env}, different: {where}." for where in result.differences[:3]]
    table = Table(
        title=f"Branch points: {COMPARED_STEPS} steps in another environment, compared bit for bit",
        caption="\n".join(notes), caption_justify="left",
    )  # fmt: skip
    table.add_column("environment", no_wrap=True)
    for name in ("identical", "different", "refused", "at ends of episodes"):
        table.add_column(name, justify="right")
    table.add_column("way")
    table.add_column("bytes", justify="right")
    for result in results:
        table.add_row(
            result.env,
            *(f"{count:,}" for count in (result.identical, result.different, result.refused)),
            f"{result.at_ends:,} ({result.different_at_ends} different)",
            ", ".join(f"{way} {count:,}" for way, count in result.ways.items()) or "–",
            f"{result.nbytes:,.0f}",
        )
    return table
