"""The training of async_training.py, with a web page to watch it.

python examples/watch_training.py --wait

Open the printed address. Watch the environments, click one to enlarge it, pause them or slow them
down. Only environments in view are rendered, so the training is hardly slower.
"""

from __future__ import annotations

import argparse
import os

import torch
from async_training import tell, train

import agym


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--num-envs", type=int, default=16, help="number of environments (default: %(default)s)"
    )
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--workers",
        type=int,
        default=max(1, cores - 1),
        help="worker processes (default: %(default)s)",
    )
    parser.add_argument(
        "--updates",
        type=int,
        default=600,
        help="maximum number of rollouts (default: %(default)s)",
    )
    parser.add_argument(
        "--target", type=float, default=400, help="mean return to reach (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        help="port of the page; 0 for any free port (default: %(default)s)",
    )
    parser.add_argument("--wait", action="store_true", help="start when the page is opened")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of environments and agent (default: %(default)s)"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)  # the other cores are for the environments
    async with (
        agym.make_async(
            "CartPole-v1",
            options.num_envs,
            backend="process",
            workers=options.workers,
            render_mode="rgb_array",
        ) as envs,
        agym.watch(envs, options.port) as page,
    ):
        print(f"watch it at {page.url}", flush=True)
        if options.wait:
            await page.wait_for_viewer()
        run = await train(envs, options.updates, options.seed, target=options.target)
    tell(run, options.num_envs, options.target)


if __name__ == "__main__":
    agym.run(main())
