"""``agents_many``: PettingZoo environments, compared with AgileRL's runner and with bare loops.

All systems take turns on the same actions. AgileRL has a process per environment and resets within
the last step, as agym does here. It is not among agym's extras: ``pip install agilerl`` (its
dependencies are large; without it, its column is left out).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

import agym
from agym.core._system.extras import how_to_get, installed
from agym.multi_agent.find import find
from agym.multi_agent.host import ParallelHost
from benchmarks.measuring.workloads import Actions, Workload
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import AT_ONCE, LOOP, Settings
from benchmarks.rules.comparison import Factor, Target, run_games, show_games
from benchmarks.systems.base import System
from benchmarks.systems.baseline import BareAtOnce, BareLoop

EXAMPLES = """Examples:

python -m benchmarks agents_many

python -m benchmarks agents_many mpe2/simple_spread_v3:64 --json many.json
"""


# AgileRL passes an action of shape (1,) on as a number, which pistonball refuses, so its pistons
# move by whole steps here.
KEYWORDS: dict[str, dict[str, Any]] = {"butterfly/pistonball-v6": {"continuous": False}}


class AgentsWorkload(Workload):
    """Environments of PettingZoo."""

    @property
    def keywords(self) -> dict[str, Any]:
        return KEYWORDS.get(self.env_id, {})

    @property
    def plain(self) -> Any:
        """Makes the environment itself."""
        return partial(find(self.env_id, "parallel"), **self.keywords)

    @property
    def factory(self) -> Any:
        """Makes an environment whose action space all systems sample."""
        return partial(ParallelHost, self.plain)

    def missing(self) -> str | None:
        return None if installed("pettingzoo") else how_to_get("pettingzoo", "multiagent")


class PlainLoop:
    """PettingZoo environments, stepped one after the other."""

    def __init__(self, work: AgentsWorkload) -> None:
        make = work.plain
        self._envs = [make() for _ in range(work.num_envs)]

    def reset(self, seed: int | None = None) -> None:
        for env in self._envs:
            env.reset(seed=seed)

    def step(self, actions: list[Any]) -> None:
        """Step every environment once, and reset those that end."""
        for env, action in zip(self._envs, actions, strict=True):
            env.step(action["actions"])
            if not env.agents:
                env.reset()

    def close(self) -> None:
        for env in self._envs:
            env.close()


class Loop(BareLoop):
    """A loop over all environments."""

    name = LOOP

    def make(self, work: Any, workers: int) -> Any:
        return PlainLoop(work)


class AtOnce(BareAtOnce):
    """A loop in each worker, all at the same time."""

    name = AT_ONCE
    loop = Loop


class Agym(System):
    """agym's worker processes."""

    name = "agym process"
    backend = "process"

    def make(self, work: Any, workers: int) -> Any:
        return agym.make_parallel(
            work.env_id, work.num_envs, backend=self.backend, workers=workers, copy=False,
            **work.keywords,
        )  # fmt: skip

    def choose(self, actions: Actions) -> list[Any]:
        return [batch["actions"] for batch in actions.batches]


class AgymSerial(Agym):
    """agym in the caller's thread."""

    name = "agym serial"
    backend = "serial"

    def make(self, work: Any, workers: int) -> Any:
        return super().make(work, 1)


class AgymAuto(Agym):
    """agym's default: it measures one environment and chooses."""

    name = "agym"
    backend = "auto"

    def make(self, work: Any, workers: int) -> Any:
        envs = agym.make_parallel(work.env_id, work.num_envs, copy=False, **work.keywords)
        self.choice = f"{envs.runner.backend} ×{envs.runner.workers}"
        return envs


class AgileRL(Agym):
    """AgileRL's runner, with a process per environment."""

    name = "AgileRL"
    process_per_env = True

    @classmethod
    def why_not(cls, work: Workload) -> str | None:
        if not installed("agilerl"):
            return "agilerl is not installed: pip install agilerl"
        return super().why_not(work)

    def make(self, work: Any, workers: int) -> Any:
        from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv

        return AsyncPettingZooVecEnv([work.plain] * work.num_envs)


SYSTEMS: tuple[type[System], ...] = (Loop, AtOnce, AgymSerial, Agym, AgymAuto, AgileRL)
IDS = ("mpe2/simple_spread_v3", "butterfly/pistonball-v6")
WORKS = tuple(AgentsWorkload(env_id, 16) for env_id in IDS)
TARGETS: tuple[Target, ...] = tuple(
    Factor(work.name, AgymAuto, against, factor)
    for work in WORKS
    for against, factor in ((AgileRL, 2.0), (AtOnce, 0.85))
)


def agents_many(
    works: Annotated[
        list[str] | None, typer.Argument(metavar="ID:N", help="PettingZoo environments.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each system.")
    ] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each system.")] = 7,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    json: JsonFile = None,
) -> None:
    """Measure batches of PettingZoo environments, compared with AgileRL and bare loops.

    One of the two targets of an environment is enough: twice as fast as AgileRL, or 0.85 times as
    fast as bare loops.
    """
    check_writable(json)
    chosen = [
        AgentsWorkload(text.rpartition(":")[0], int(text.rpartition(":")[2]))
        for text in works or ()
    ]
    report = run_games(chosen or [*WORKS], Settings(seconds, repeats, workers), SYSTEMS, TARGETS)
    deliver(show_games(report), report.to_json(), json)
