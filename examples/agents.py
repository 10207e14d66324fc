"""Agents whose tools are slow, and three ways to wait for them: python examples/agents.py.

An environment whose ``reset`` and ``step`` are coroutines waits without a thread or a process, so
thousands of environments wait on one event loop. A tool answers after a random time: usually soon,
sometimes late. Nobody has to wait for the slowest answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import agym

AGENTS = 64


class Adding:
    """Add numbers with a calculator that adds two numbers at a time. All text, as for an LLM."""

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.rng = random.Random(seed)
        self.numbers = [self.rng.randint(1, 99) for _ in range(10)]
        self.total = sum(self.numbers)
        return " + ".join(map(str, self.numbers)), {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action.startswith("answer "):
            return "", float(action == f"answer {self.total}"), True, False, {}
        await asyncio.sleep(self.rng.expovariate(50))  # the tool: 20 ms on average
        a, b = map(int, action.split(" + "))
        self.numbers = [a + b, *self.numbers[2:]]
        return " + ".join(map(str, self.numbers)), 0.0, False, False, {}

    async def close(self) -> None: ...


def choose(texts: list[str]) -> list[str]:
    """Return the next action for each text; a language model would go here."""
    actions = []
    for text in texts:
        first, *rest = text.split(" + ")
        actions.append(f"{first} + {rest[0]}" if rest else f"answer {first}")
    return actions


async def wait_for_all(envs: agym.AsyncEnvs) -> float:
    """Step all agents together; return the number of right answers."""
    right = 0.0
    texts, _ = await envs.reset(seed=0)
    over = [False]
    while not all(over):  # all have ten numbers, so they end in the same step
        texts, rewards, over, _, _ = await envs.step(choose(texts))
        right += sum(rewards)
    return right


async def first_k(envs: agym.AsyncEnvs) -> float:
    """Step the agents whose tools have answered, at least eight at a time."""
    right = 0.0
    texts, _ = await envs.reset(seed=0)
    envs.send(choose(texts))
    async for batch in envs.as_completed(min_envs=8):
        right += sum(batch.rewards)
        rows = zip(batch.env_ids, batch.observations, batch.terminated, strict=True)
        texts = {i: text for i, text, over in rows if not over}
        if texts:
            envs.send(choose([*texts.values()]), [*texts])
    return right


async def task_each(envs: agym.AsyncEnvs) -> float:
    """Give each agent its own loop; the model still gets the texts of all that wait for it."""

    async def play(env: agym.AsyncEnvHandle) -> float:
        text, _ = await env.reset(seed=env.index)
        reward, over = 0.0, False
        while not over:
            text, reward, over, _, _ = await env.step(await model(text))
        return reward

    async with agym.batched(choose) as model:
        return sum(await asyncio.gather(*(play(env) for env in envs)))


async def main() -> None:
    async with agym.make_async(Adding, AGENTS, autoreset="disabled", output="list") as envs:
        baseline = 0.0
        for play in (wait_for_all, first_k, task_each):
            started = time.perf_counter()
            right = await play(envs)
            seconds = time.perf_counter() - started
            gain = f", {baseline / seconds:.1f} times as fast" if baseline else ""
            print(f"{play.__name__}: {right:.0f} of {AGENTS} right in {seconds:.2f} s{gain}")
            baseline = baseline or seconds


if __name__ == "__main__":
    agym.run(main())
