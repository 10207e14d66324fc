"""The cost of a snapshot and a restore, next to the baseline calls of the simulator, in turns.

::

    baseline         [ cloneState ] or [ mj_getState ], of each simulator in a loop
    agym         [ caller ][ transport ][ copy ][ transport ][ caller ]
    round trip   [ caller ][ transport ][ an attribute ][ transport ][ caller ]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

import agym
from agym.core._system.extras import require
from benchmarks.branching.envs import SIMULATORS, backend_of, make_baseline, missing
from benchmarks.branching.records import BackendName, Game, Plan
from benchmarks.measuring.interleave import RUN_IN, in_turns
from benchmarks.measuring.progress import Announce
from benchmarks.reports.results import Verdict

# Limits relative to the baseline calls: of one environment, and per environment of many.
ONE_LIMIT, MANY_LIMIT = 2.0, 3.0

# Steps before the snapshots.
STEPS = 50

CALLS = ("snapshot", "restore")


class AleBaseline:
    """ALE's copies of its state, including the random stream."""

    def __init__(self, env: Any) -> None:
        self._ale = env.unwrapped.ale
        self._state = self._ale.cloneState(include_rng=True)

    def snapshot(self) -> None:
        self._ale.cloneState(include_rng=True)

    def restore(self) -> None:
        self._ale.restoreState(self._state)


class MujocoBaseline:
    """MuJoCo's copies of its state, into an existing vector."""

    def __init__(self, env: Any) -> None:
        self._mujoco = mujoco = require("mujoco", "mujoco")
        self._model, self._data = env.unwrapped.model, env.unwrapped.data
        self._what = mujoco.mjtState.mjSTATE_INTEGRATION
        self._vector = np.empty(mujoco.mj_stateSize(self._model, self._what))
        self.snapshot()

    def snapshot(self) -> None:
        self._mujoco.mj_getState(self._model, self._data, self._vector, self._what)

    def restore(self) -> None:
        self._mujoco.mj_setState(self._model, self._data, self._vector, self._what)


@dataclass(frozen=True)
class CostRow:
    """Seconds per environment of one call, one value per slice.

    Attributes:
        env: The environment.
        num_envs: Number of environments.
        call: ``"snapshot"`` or ``"restore"``.
        backend: agym's backend.
        baseline: Seconds of the simulator's call.
        agym: Seconds of agym's call.
        trip: Seconds of a call that reads an attribute.
    """

    env: str
    num_envs: int
    call: str
    backend: str
    baseline: tuple[float, ...]
    agym: tuple[float, ...]
    trip: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Ratio of agym's time to the time of the baseline call."""
        return median(a / b for a, b in zip(self.agym, self.baseline, strict=True))

    @property
    def own_ratio(self) -> float:
        """The same ratio without a round trip."""
        rows = zip(self.agym, self.trip, self.baseline, strict=True)
        return median((a - trip) / b for a, trip, b in rows)

    def judge(self) -> Verdict:
        """Compare with the target."""
        text = f"{self.env} ×{self.num_envs}, {self.backend}: {self.call} against the baseline call"
        if self.num_envs == 1:
            text, limit, measured = f"{text}, less a round trip", ONE_LIMIT, self.own_ratio
        else:
            limit, measured = MANY_LIMIT, self.ratio
        return Verdict.on_ratio(text, limit, measured, at_most=True)


def measure_costs(game: Game, plan: Plan, announce: Announce) -> list[CostRow]:
    """Measure one environment, and many."""
    if missing(game) is not None:
        return []
    rows: list[CostRow] = []
    for num_envs in dict.fromkeys((1, plan.num_envs)):
        rows += _costs(game, num_envs, plan, announce)
    return rows


def _costs(game: Game, num_envs: int, plan: Plan, announce: Announce) -> Iterator[CostRow]:
    # One at a time are as many, one after the other, since costs depend on the state.
    count = plan.num_envs
    announce(f"making {count} environments")
    kind = AleBaseline if game.module == "ale_py" else MujocoBaseline
    with ExitStack() as stack:
        baselines = []
        for seed in range(count):
            env = make_baseline(game)
            stack.callback(env.close)
            env.reset(seed=seed)
            env.action_space.seed(seed)
            for _ in range(STEPS):
                env.step(env.action_space.sample())
            baselines.append(kind(env))
        systems: dict[tuple[str, str], Callable[[], Any]] = {
            ("baseline", call): _loop([getattr(baseline, call) for baseline in baselines])
            for call in CALLS
        }
        backends = [BackendName.serial] if num_envs == 1 else [*BackendName]
        for backend in backends:
            envs = stack.enter_context(_make(game, count, backend, plan))
            calls = _single_calls(envs) if num_envs == 1 else _batch_calls(envs)
            for call, function in calls.items():
                systems[backend.value, call] = function
        times = _measure(systems, plan, announce)
    each = {key: tuple(one / count for one in values) for key, values in times.items()}
    for call in CALLS:
        for backend in backends:
            yield CostRow(
                game.name, num_envs, call, backend.value, each["baseline", call],
                each[backend.value, call], each[backend.value, "trip"],
            )  # fmt: skip


def _make(game: Game, num_envs: int, backend: BackendName, plan: Plan) -> agym.Envs[Any, Any]:
    envs = agym.make(
        game.env_id, num_envs, backend=backend_of(game, backend, plan.workers),
        autoreset="next_step", **game.kwargs,
    )  # fmt: skip
    envs.reset(seed=plan.seed)
    envs.single_action_space.seed(plan.seed)
    for _ in range(STEPS):
        envs.step([envs.single_action_space.sample() for _ in range(num_envs)])
    return envs


def _batch_calls(envs: agym.Envs[Any, Any]) -> dict[str, Callable[[], Any]]:
    """Return calls for all environments; the proof of copies is made here, unmeasured."""
    snapshots = envs.snapshot()
    return {
        "snapshot": envs.snapshot,
        "restore": lambda: envs.restore(snapshots),
        "trip": lambda: envs.get_attr("render_mode"),
    }


def _single_calls(envs: agym.Envs[Any, Any]) -> dict[str, Callable[[], Any]]:
    """Return calls for one environment after the other."""
    restores = [partial(env.restore, env.snapshot()) for env in envs]
    return {
        "snapshot": _loop([env.snapshot for env in envs]),
        "restore": _loop(restores),
        "trip": _loop([partial(env.get_attr, "render_mode") for env in envs]),
    }


def _loop(functions: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    def call_all() -> None:
        for function in functions:
            function()

    return call_all


def _measure(
    systems: dict[tuple[str, str], Callable[[], Any]], plan: Plan, announce: Announce
) -> dict[tuple[str, str], list[float]]:
    """Return the seconds per call of each system, one value per slice."""
    times: dict[tuple[str, str], list[float]] = {key: [] for key in systems}
    for turn, key in in_turns([*systems], plan.repeats):
        announce(f"{turn + 1}/{plan.repeats} {' '.join(key)}")
        seconds_per_call(systems[key], plan.seconds * RUN_IN)
        times[key].append(seconds_per_call(systems[key], plan.seconds))
    return times


def seconds_per_call(function: Callable[[], Any], seconds: float) -> float:
    """Call a function for some seconds, at least once; return the mean time."""
    calls, started = 0, time.perf_counter()
    while True:
        function()
        calls += 1
        elapsed = time.perf_counter() - started
        if elapsed >= seconds:
            return elapsed / calls


def cost_table(rows: Sequence[CostRow], plan: Plan) -> Table:
    """Return a table with a line per call."""
    left_out = (note for game in SIMULATORS if (note := missing(game)) is not None)
    notes = (
        "A round trip reads an attribute of all environments. process:"
        f" {plan.workers} workers, against the baseline calls on one core."
    )
    table = Table(
        title=f"µs per environment: median of {plan.repeats} × {plan.seconds:g} s in turns",
        caption="\n".join([notes, *(f"{note}." for note in dict.fromkeys(left_out))]),
        caption_justify="left",
    )
    table.add_column("environments", no_wrap=True)
    table.add_column("call")
    table.add_column("backend")
    for name in ("baseline", "agym", "round trip", "agym ÷ baseline", "less a trip"):
        table.add_column(name, justify="right")
    for row in rows:
        columns = (row.baseline, row.agym, row.trip)
        table.add_row(
            f"{row.env} ×{row.num_envs}", row.call, row.backend,
            *(f"{1e6 * median(column):,.1f}" for column in columns),
            f"{row.ratio:.2f}", f"{row.own_ratio:.2f}",
        )  # fmt: skip
    return table
