"""Watch the training of async_training.py in a browser: python examples/watch_training.py --wait.

Open the printed address. Click an environment to enlarge it, pause the environments or slow them
down. Only environments in view are rendered, so the training is hardly slower.
"""

from __future__ import annotations

import argparse

import torch
from async_training import NUM_ENVS, train

import agym


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=10_000, help="of each environment (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of the page (default: any that is free)"
    )
    parser.add_argument("--wait", action="store_true", help="start when the page is opened")
    options = parser.parse_args()
    if options.steps < 4:
        parser.error("--steps must be at least 4")

    torch.set_num_threads(1)  # the other cores are for the environments
    make = agym.make_async("CartPole-v1", NUM_ENVS, backend="process", render_mode="rgb_array")
    async with make as envs, agym.watch(envs, options.port) as page:
        print(f"watch {NUM_ENVS} environments at {page.url}", flush=True)
        if options.wait:
            await page.wait_for_viewer()
        seconds = await train(envs, options.steps)
    print(f"{options.steps * NUM_ENVS:,} steps in {seconds:.1f} s")


if __name__ == "__main__":
    agym.run(main())
