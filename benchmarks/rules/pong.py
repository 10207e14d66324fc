"""``pong``: cost of a step of Pong by engine and by number of games.

All engines take turns, for one number of games after the other. A cost linear in the number of
games is a flat line; a constant cost is a falling line.
"""

from __future__ import annotations

from typing import Annotated

import typer

from agym.errors import UsageError
from benchmarks.measuring.workloads import Workload
from benchmarks.reports.output import JsonFile, PlotFile, check_plot, check_writable, deliver
from benchmarks.reports.results import Settings
from benchmarks.rules.comparison import Factor, Limit, run_games, show_games
from benchmarks.rules.plot import save_pong_plot
from benchmarks.rules.systems import PLAYERS, AlePong, Compiled, Kernel, Python
from benchmarks.throughput.grid import parse_counts

EXAMPLES = """Examples:

python -m benchmarks pong --plot pong.png

python -m benchmarks pong agym/Pong-v0 --num-envs 1,64,4096 --json pong.json
"""

GAMES = ("agym/PongRally-v0", "agym/Pong-v0")
COUNTS = tuple(4**k for k in range(8))

TARGETS: tuple[Limit | Factor, ...] = (
    Limit("agym/PongRally-v0 ×1024", Kernel, 0.05),
    Factor("agym/PongRally-v0 ×1024", Compiled, Kernel, 0.6),
    Limit("agym/Pong-v0 ×1024", Kernel, 0.05),
    Factor("agym/Pong-v0 ×1024", Compiled, Kernel, 0.6),
    Factor(f"agym/PongRally-v0 ×{COUNTS[-1]}", Compiled, AlePong, 8000.0),
    Factor("agym/PongRally-v0 ×1", Compiled, Python, 1.0),
)


def pong(
    game: Annotated[str, typer.Argument(metavar="GAME", help=f"{' or '.join(GAMES)}.")] = GAMES[0],
    num_envs: Annotated[
        str, typer.Option(help="Numbers of games, separated by commas.")
    ] = ",".join(map(str, COUNTS)),
    seconds: Annotated[
        float, typer.Option(min=0.001, help="Seconds per slice of each engine.")
    ] = 0.2,
    repeats: Annotated[int, typer.Option(min=1, help="Number of slices of each engine.")] = 7,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Measure Pong in plain Python, numba and CUDA, and in ALE.

    ALE's single environment returns colour pictures of 210 × 160, its batches four grey ones of
    84 × 84; both skip 4 frames.
    """
    check_plot(plot)
    check_writable(json, plot)
    if game not in GAMES:
        raise UsageError(f"{game!r} is not a game of agym: use {' or '.join(GAMES)}")
    works = [Workload(game, count) for count in parse_counts(num_envs)]
    report = run_games(works, Settings(seconds, repeats), PLAYERS, TARGETS)
    deliver(show_games(report), report.to_json(), json)
    if plot is not None:
        save_pong_plot(report, plot)
