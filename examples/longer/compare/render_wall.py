"""Many CartPoles, each rendered in every step, with a plain loop and with agym.

python examples/longer/compare/render_wall.py --num-envs 200 --episodes 50

Both do the same work, in turns: they step and render the same environments with the same seeds and
actions. At the end, the script writes a picture and a video of all environments.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import agym

ENV = "CartPole-v1"


class Loop:
    """The environments in a plain loop, with next-step autoreset."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.envs = [gymnasium.make(ENV, render_mode="rgb_array") for _ in range(num_envs)]
        self.over = [False] * num_envs
        self.returns = [0.0] * num_envs
        self.frames: list[Any] = []
        for i, env in enumerate(self.envs):
            env.reset(seed=seed + i)

    def round(self, actions: list[int]) -> None:
        frames = []
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if self.over[i]:
                env.reset()
                self.over[i] = False
            else:
                _, reward, terminated, truncated, _ = env.step(action)
                self.returns[i] += float(reward)
                self.over[i] = terminated or truncated
            frames.append(env.render())
        self.frames = frames

    def close(self) -> None:
        for env in self.envs:
            env.close()


class Wall:
    """The same environments in agym's worker processes."""

    def __init__(self, num_envs: int, seed: int, workers: int | None) -> None:
        self.envs = agym.make(
            ENV, num_envs, backend="process", workers=workers, autoreset="next_step",
            output="array", render_mode="rgb_array",
        )  # fmt: skip
        self.returns = np.zeros(num_envs)
        self.episodes = np.zeros(num_envs, int)
        self.frames: list[Any] = []
        self.envs.reset(seed=seed)

    def round(self, actions: list[int]) -> None:
        _, rewards, terminated, truncated, _ = self.envs.step(actions)
        self.returns += rewards
        self.episodes += terminated | truncated
        self.frames = self.envs.render()


def play(loop: Loop, wall: Wall, episodes: int, seed: int) -> tuple[int, float, float]:
    """Play in turns until every environment had ``episodes``; return frames and seconds."""
    random = np.random.default_rng(seed)
    num_envs = len(wall.envs)
    rounds, seconds = 0, [0.0, 0.0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TextColumn("{task.fields[ratio]}"), TimeElapsedColumn(),
        console=Console(stderr=True), auto_refresh=False, transient=True,
    ) as progress:  # fmt: skip
        bar = progress.add_task("episodes of each", total=episodes, ratio="")
        for k in range(1, episodes + 1):
            started, turn = time.perf_counter(), []
            while wall.episodes.min() < k:
                turn.append(random.integers(0, 2, num_envs).tolist())
                wall.round(turn[-1])
            seconds[1] += time.perf_counter() - started
            started = time.perf_counter()
            for actions in turn:
                loop.round(actions)
            seconds[0] += time.perf_counter() - started
            rounds += len(turn)
            ratio = f"{seconds[0] / seconds[1]:.2f} times as fast" if seconds[1] else ""
            progress.update(bar, completed=k, ratio=ratio, refresh=True)
    return rounds * num_envs, seconds[0], seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--num-envs", type=int, default=200, help="number of environments (default: %(default)s)"
    )
    parser.add_argument(
        "--episodes",
        type=int,
        default=50,
        help="of each environment, at least (default: %(default)s)",
    )
    parser.add_argument("--workers", type=int, help="worker processes (default: one per core)")
    parser.add_argument(
        "--video-steps", type=int, default=100, help="length of the video (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("render_wall"),
        help="name of the files (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of environments and actions (default: %(default)s)",
    )
    options = parser.parse_args()
    if min(options.num_envs, options.episodes, options.video_steps) < 1:
        parser.error("--num-envs, --episodes and --video-steps must be at least 1")

    loop = Loop(options.num_envs, options.seed)
    wall = Wall(options.num_envs, options.seed, options.workers)
    with wall.envs as envs:
        frames, plain, ours = play(loop, wall, options.episodes, options.seed)
        # The same happened, and the same is seen, to the last pixel.
        same = loop.returns == wall.returns.tolist()
        if not (same and all(map(np.array_equal, loop.frames, wall.frames))):
            sys.exit("the plain loop and agym differ: please report it")
        loop.close()

        picture = options.output.with_suffix(".png")
        Image.fromarray(agym.mosaic(wall.frames)).save(picture)
        video = options.output.with_suffix(".mp4")
        with agym.record(envs, video, drop=False) as recording:
            for _ in range(options.video_steps):
                envs.step(envs.action_space.sample())
    print(
        f"{frames:,} frames of {options.num_envs} CartPoles: {plain:.1f} s in a plain loop,"
        f" {ours:.1f} s with agym, {plain / ours:.2f} times as fast; see {picture} and"
        f" {video} ({recording.frames} pictures)"
    )


if __name__ == "__main__":
    main()
