"""Agents that play episodes in the sessions of a server.

    pip install -e '.[openenv,serve]'
    python examples/longer/openenv_agents.py
    python examples/longer/openenv_agents.py --url http://127.0.0.1:8000 --token ...

With --url, the server is one that `agym serve` has started; without it, the script starts a server.
Each agent is a coroutine with one environment, which is a session of the server. The agent guesses
a number by bisection; the server answers "higher" or "lower", after a random time, like a tool or a
browser.
"""

import argparse
import asyncio
import contextlib
import random
import time

import agym

HIGHEST = 1000


class GuessTheNumber:
    """The environment on the server: actions are numbers, observations are text."""

    async def reset(self, *, seed=None, options=None):
        self.rng = random.Random(seed)
        self.secret = self.rng.randint(1, HIGHEST)
        return "start", {}

    async def step(self, action):
        await asyncio.sleep(self.rng.expovariate(100))
        guess = action["guess"]
        if guess == self.secret:
            return "found", 1.0, True, False, {}
        return "higher" if guess < self.secret else "lower", 0.0, False, False, {}

    async def close(self):
        pass


async def play(env, episodes):
    """Play episodes in one environment; return the number of guesses of each episode."""
    counts = []
    for _ in range(episodes):
        answer, _ = await env.reset()
        low, high, count, done = 1, HIGHEST, 0, False
        while not done:
            guess = (low + high) // 2
            answer, _, terminated, truncated, _ = await env.step(guess)
            low, high = (guess + 1, high) if answer == "higher" else (low, guess - 1)
            count, done = count + 1, terminated or truncated
        counts.append(count)
    return counts


async def main(arguments):
    async with contextlib.AsyncExitStack() as stack:
        url, token = arguments.url, arguments.token
        if url is None:
            server = await stack.enter_async_context(agym.serve(GuessTheNumber, arguments.sessions))
            url, token = server.url, server.token
        factory = await asyncio.to_thread(
            agym.openenv, url, token=token, action="guess", timeout=30
        )
        envs = await stack.enter_async_context(
            agym.make_async(factory, arguments.sessions, autoreset="disabled")
        )
        started = time.perf_counter()
        agents = [play(envs[i], arguments.episodes) for i in range(arguments.sessions)]
        counts = [count for agent in await asyncio.gather(*agents) for count in agent]
        seconds = time.perf_counter() - started
    print(
        f"{len(counts)} episodes of {arguments.sessions} agents:"
        f" {sum(counts) / len(counts):.1f} guesses each, {sum(counts) / seconds:.0f} steps/s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sessions",
        type=int,
        default=32,
        help="agents, each with a session (default: %(default)s)",
    )
    parser.add_argument(
        "--episodes", type=int, default=4, help="episodes of each agent (default: %(default)s)"
    )
    parser.add_argument("--url", help="address of a server (default: the script starts one)")
    parser.add_argument("--token", help="token of that server (default: none)")
    options = parser.parse_args()
    if min(options.sessions, options.episodes) < 1:
        parser.error("--sessions and --episodes must be at least 1")
    try:
        agym.run(main(options))
    except agym.AgymError as error:
        raise SystemExit(f"openenv_agents.py: {error}") from None
