"""``agym bench``: the measurements, one small file per command."""

from __future__ import annotations

import typer

from agym.bench import (
    everything,
    grid,
    io,
    multienv,
    overhead,
    overlap,
    pong,
    pool,
    ray_command,
    render,
    scale,
    soak,
    starting,
    stragglers,
    throughput,
)

EXAMPLES = """Examples:

agym bench throughput CartPole-v1:8

agym bench grid CartPole-v1 --num-envs 1,8

agym bench overhead

agym bench all --quick

agym bench io

agym bench overlap

agym bench stragglers

agym bench soak

agym bench pool --plot charts

agym bench multienv

agym bench pong

agym bench render

agym bench ray
"""

app = typer.Typer(help="Measure agym, side by side.", no_args_is_help=True, epilog=EXAMPLES)
app.command(epilog=throughput.EXAMPLES)(throughput.throughput)
app.command(epilog=grid.EXAMPLES)(grid.grid)
app.command(epilog=overhead.EXAMPLES)(overhead.overhead)
app.command(epilog=scale.EXAMPLES)(scale.scale)
app.command(epilog=starting.STARTUP_EXAMPLES)(starting.startup)
app.command(epilog=starting.MEMORY_EXAMPLES)(starting.memory)
app.command("all", epilog=everything.EXAMPLES)(everything.everything)
app.command(epilog=io.EXAMPLES)(io.io)
app.command(epilog=overlap.EXAMPLES)(overlap.overlap)
app.command(epilog=stragglers.EXAMPLES)(stragglers.stragglers)
app.command(epilog=soak.EXAMPLES)(soak.soak)
app.command(epilog=pool.EXAMPLES)(pool.pool)
app.command(epilog=multienv.EXAMPLES)(multienv.multienv)
app.command(epilog=pong.EXAMPLES)(pong.pong)
app.command(epilog=render.EXAMPLES)(render.render)
app.command(epilog=ray_command.EXAMPLES)(ray_command.ray)


@app.callback()
def bench() -> None:
    """Measure agym against other runners, and against what would be ideal, side by side."""
