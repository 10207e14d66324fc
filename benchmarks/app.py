"""``python -m benchmarks``: the benchmarks, one file per command."""

from __future__ import annotations

import typer

from agym.cli.console import Commands
from benchmarks.agents import batched, gaps, many, openenv, serving
from benchmarks.branching import command as branching
from benchmarks.overhead import calls, imports, startup
from benchmarks.overhead import command as overhead
from benchmarks.ray import command as ray_command
from benchmarks.rules import makers, pong, twins, vectorize
from benchmarks.soak import command as soak
from benchmarks.throughput import account, busy, everything, grid, multienv, pool, scale
from benchmarks.throughput import command as throughput
from benchmarks.waiting import io, overlap, render, stragglers, training

EXAMPLES = """Examples:

python -m benchmarks throughput CartPole-v1:8

python -m benchmarks grid CartPole-v1 --num-envs 1,8

python -m benchmarks busy CartPole-v1:64

python -m benchmarks account Acrobot-v1 64

python -m benchmarks overhead

python -m benchmarks imports

python -m benchmarks calls

python -m benchmarks all --quick

python -m benchmarks io

python -m benchmarks overlap

python -m benchmarks training

python -m benchmarks stragglers

python -m benchmarks soak

python -m benchmarks pool --plot charts

python -m benchmarks multienv

python -m benchmarks pong

python -m benchmarks vectorize

python -m benchmarks twins

python -m benchmarks makers

python -m benchmarks render

python -m benchmarks ray

python -m benchmarks branching

python -m benchmarks batched

python -m benchmarks openenv

python -m benchmarks gaps

python -m benchmarks serving

python -m benchmarks agents_many
"""

app = typer.Typer(
    name="python -m benchmarks",
    cls=Commands,
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog=throughput.EXAMPLES)(throughput.throughput)
app.command(epilog=grid.EXAMPLES)(grid.grid)
app.command(epilog=busy.EXAMPLES)(busy.busy)
app.command(epilog=account.EXAMPLES, no_args_is_help=True)(account.account)
app.command(epilog=overhead.EXAMPLES)(overhead.overhead)
app.command(epilog=scale.EXAMPLES)(scale.scale)
app.command(epilog=startup.STARTUP_EXAMPLES)(startup.startup)
app.command(epilog=startup.MEMORY_EXAMPLES)(startup.memory)
app.command(epilog=imports.EXAMPLES)(imports.imports)
app.command(epilog=calls.EXAMPLES)(calls.calls)
app.command("all", epilog=everything.EXAMPLES)(everything.everything)
app.command(epilog=io.EXAMPLES)(io.io)
app.command(epilog=overlap.EXAMPLES)(overlap.overlap)
app.command(epilog=training.EXAMPLES)(training.training)
app.command(epilog=stragglers.EXAMPLES)(stragglers.stragglers)
app.command(epilog=soak.EXAMPLES)(soak.soak)
app.command(epilog=pool.EXAMPLES)(pool.pool)
app.command(epilog=multienv.EXAMPLES)(multienv.multienv)
app.command(epilog=pong.EXAMPLES)(pong.pong)
app.command(epilog=vectorize.EXAMPLES)(vectorize.vectorize)
app.command(epilog=twins.EXAMPLES)(twins.twins)
app.command(epilog=makers.EXAMPLES)(makers.makers)
app.command(epilog=render.EXAMPLES)(render.render)
app.command(epilog=ray_command.EXAMPLES)(ray_command.ray)
app.command(epilog=branching.EXAMPLES)(branching.branching)
app.command(epilog=batched.EXAMPLES)(batched.batched)
app.command(epilog=openenv.EXAMPLES)(openenv.openenv)
app.command(epilog=gaps.EXAMPLES)(gaps.gaps)
app.command(epilog=serving.EXAMPLES)(serving.serving)
app.command("agents_many", epilog=many.EXAMPLES)(many.agents_many)


@app.callback()
def bench() -> None:
    """Compare agym's speed with other runners and with ideal bounds, side by side."""
