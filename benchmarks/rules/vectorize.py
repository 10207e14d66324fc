"""``vectorize``: steps of classic games as rule books, compared with EnvPool and SyncVectorEnv.

All systems take turns. EnvPool and SyncVectorEnv run Gymnasium's environment of the same name.
"""

from __future__ import annotations

from typing import Annotated

import typer

from agym.api.options.environments import find_spec
from agym.errors import UsageError
from benchmarks.measuring.workloads import Workload, parse_work
from benchmarks.reports.output import JsonFile, check_writable, deliver
from benchmarks.reports.results import Settings
from benchmarks.rules.comparison import Factor, Limit, run_games, show_games
from benchmarks.rules.systems import RUNNERS, CompiledCopies, EnvPool, Kernel

EXAMPLES = """Examples:

python -m benchmarks vectorize

python -m benchmarks vectorize agym/CartPole-v1:64 agym/Acrobot-v1:1024 --json classic.json
"""

WORKS = (
    Workload("agym/CartPole-v1", 64),
    Workload("agym/CartPole-v1", 1024),
    Workload("agym/Acrobot-v1", 1024),
    Workload("agym/Pendulum-v1", 1024),
    Workload("agym/MountainCar-v0", 1024),
)

# 15 million steps per second where the loops alone give 20.
TARGETS: tuple[Limit | Factor, ...] = (
    Factor("agym/CartPole-v1 ×64", CompiledCopies, EnvPool, 5.0),
    Factor("agym/CartPole-v1 ×1024", CompiledCopies, EnvPool, 10.0),
    Limit("agym/CartPole-v1 ×1024", CompiledCopies, 1 / 15),
    Factor("agym/CartPole-v1 ×1024", CompiledCopies, Kernel, 0.75),
    *(
        Factor(f"agym/{game} ×1024", CompiledCopies, EnvPool, 5.0)
        for game in ("Acrobot-v1", "Pendulum-v1", "MountainCar-v0")
    ),
)


def vectorize(
    works: Annotated[
        list[str] | None, typer.Argument(metavar="ID:N", help="Rule books and numbers of games.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each system.")
    ] = 0.5,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each system.")] = 9,
    workers: Annotated[int, typer.Option(min=1, help="Threads of EnvPool.")] = 2,
    json: JsonFile = None,
) -> None:
    """Measure rule books as VectorEnvs, compared with EnvPool and SyncVectorEnv."""
    check_writable(json)
    chosen = [parse_work(text) for text in works] if works else [*WORKS]
    for work in chosen:
        if not str(find_spec(work.env_id).vector_entry_point).startswith("agym."):
            raise UsageError(
                f"{work.env_id!r} is not a rule book of agym, such as agym/CartPole-v1"
            )
    report = run_games(chosen, Settings(seconds, repeats, workers), RUNNERS, TARGETS)
    deliver(show_games(report), report.to_json(), json)
