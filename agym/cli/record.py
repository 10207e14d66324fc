"""``agym record``: record a video of environments with random actions.

Examples:
agym record CartPole-v1 -n 16 -o cartpole.mp4

agym record ALE/Pong-v5 -n 16 --steps 500 --labels -o pong.mp4

agym record Acrobot-v1 --steps 200 --scale 0.5 -o acrobot.gif
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from agym import make
from agym.api.options.environments import find_spec
from agym.backends import BackendName
from agym.cli.console import console, text_column
from agym.cli.options import WITH_WORKERS, EnvId, NumEnvs, Seed, Workers, flag, number
from agym.watching.video.movie import check_path
from agym.watching.video.recording import MAX_FPS, MIN_FPS, paths_of, record
from agym.watching.video.tiling import MAX_SCALE, mosaic


def command(
    env: EnvId,
    output: Annotated[Path, typer.Option("-o", "--output", help="Video file, .mp4 or .gif.")],
    num_envs: NumEnvs = 1,
    steps: Annotated[int, typer.Option(min=1, help="Steps per environment.")] = 300,
    every: Annotated[int, typer.Option(min=1, max=1_000_000, help="Steps per frame.")] = 1,
    fps: Annotated[
        float | None,
        number("Frames per second.", "the environment's render_fps", min=MIN_FPS, max=MAX_FPS),
    ] = None,
    scale: Annotated[
        float | None, number("Scale factor.", "fits into 1920 × 1080", min=0.001, max=MAX_SCALE)
    ] = None,
    columns: Annotated[
        int | None,
        typer.Option(min=1, help="Environments per row.", show_default="about a square"),
    ] = None,
    labels: Annotated[bool, flag("--labels", "Number the environments.")] = False,
    single: Annotated[bool, flag("--single", "One file per environment.")] = False,
    workers: Workers = None,
    seed: Seed = 0,
) -> None:
    """Step environments with random actions and record all of them in one video."""
    find_spec(env)
    paths = [output] if not single else paths_of(output, range(num_envs))
    for path in paths:
        check_path(path)
    # Not "auto", which measures steps: drawing takes longer than most steps, and needs processes.
    backend: BackendName = WITH_WORKERS if workers or num_envs > 1 else "serial"
    with (
        Progress(
            text_column("{task.description}"), BarColumn(), MofNCompleteColumn(),
            text_column("steps"), TimeElapsedColumn(),
            console=console(stderr=True), transient=True,
        ) as progress,
        make(
            env, num_envs, workers=workers, backend=backend,
            autoreset="next_step", render_mode="rgb_array",
        ) as envs,
    ):  # fmt: skip
        bar = progress.add_task(f"recording {env}", total=steps)
        envs.action_space.seed(seed)
        envs.reset(seed=seed)
        frames = envs.render()
        # Refuses a picture that is too large, before the first step.
        mosaic(frames[:1] if single else frames, columns, scale=scale)
        with record(
            envs, output, fps=fps, every=every, mosaic=not single, columns=columns,
            labels=labels, scale=scale, drop=False,
        ) as recording:  # fmt: skip
            for _ in range(steps):
                envs.step(envs.action_space.sample())
                progress.advance(bar)
            progress.update(bar, description="finishing the file")
    more = f" and {num_envs - 1} more files" if single and num_envs > 1 else ""
    envs_text = env if num_envs == 1 else f"{num_envs} environments ({env})"
    console().print(
        f"wrote {paths[0]}{more}: {recording.frames} frames of {envs_text}",
        soft_wrap=True, highlight=False,
    )  # fmt: skip
