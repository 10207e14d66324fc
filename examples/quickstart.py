"""Many CartPoles at once, with agymc's API: make, reset, step until all are done, render, close.

python examples/quickstart.py --num-envs 200 --episodes 2 --render --verbose
"""

from __future__ import annotations

import argparse
import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import agym


def play(envs: agym.Envs, *, render: bool, progress: Progress) -> list[float]:
    """Play one episode in every environment at random; gives the returns."""
    bar = progress.add_task("environments done", total=len(envs))
    returns = [0.0] * len(envs)
    envs.reset()
    done = [False] * len(envs)
    while not all(done):  # those that are done hold still until the others are too
        if render:
            frames = envs.render()
            assert len(frames) == len(envs)
        actions = envs.action_space.sample()
        _, rewards, terminated, truncated, _ = envs.step(actions)
        done = [ended or cut for ended, cut in zip(terminated, truncated, strict=True)]
        returns = [total + reward for total, reward in zip(returns, rewards, strict=True)]
        progress.update(bar, completed=sum(done))
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--backend", default="auto", help="auto, serial or process")
    parser.add_argument("--render", action="store_true", help="render every round")
    parser.add_argument("--verbose", action="store_true", help="show a progress bar")
    arguments = parser.parse_args()
    if min(arguments.num_envs, arguments.episodes) < 1:
        parser.error("--num-envs and --episodes must be at least 1")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    begun = time.perf_counter()
    with (
        Progress(*columns, TimeElapsedColumn(), disable=not arguments.verbose) as progress,
        agym.make(
            "CartPole-v1",
            arguments.num_envs,
            backend=arguments.backend,
            render_mode="rgb_array" if arguments.render else None,
        ) as envs,
    ):
        episodes = [
            play(envs, render=arguments.render, progress=progress)
            for _ in range(arguments.episodes)
        ]
    seconds = time.perf_counter() - begun

    returns = [total for episode in episodes for total in episode]
    # A pole that is pushed at random falls after some twenty steps, and never before eight.
    assert len(returns) == arguments.num_envs * arguments.episodes
    assert min(returns) >= 8
    print(
        f"{len(returns)} episodes of CartPole-v1 in {seconds:.1f} s,"
        f" mean return {sum(returns) / len(returns):.1f}"
    )


if __name__ == "__main__":
    main()
