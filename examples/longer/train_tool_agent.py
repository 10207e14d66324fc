"""A tool agent learns which tool to call: 64 rollouts at once, one coroutine for each.

python examples/longer/train_tool_agent.py --picture curve.png

A customer asks for a price. The agent reads text, and calls tools that take as long as a server:
look up the price, multiply it, convert it, answer. A small network replaces a language model. All
rollouts share it with `agym.batched`, and it is trained by GRPO: rollouts of the same question are
compared, and the actions of rollouts that are better than the group's mean become more likely. If a
tool fails, the whole group starts again, so that failures do not bias the comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import nn

import agym

PRICES = {"apples": 2.0, "pears": 3.0, "plums": 5.0, "grapes": 7.0, "melons": 9.0}  # dollars
EUROS = 0.9  # for a dollar
ACTIONS = ("look up", "multiply", "convert", "answer")
COST = 0.01  # of a call
MAX_CALLS = 8
BREAKS = 0.001  # of all calls


class Tools:
    """The tools; a call takes some milliseconds, sometimes many, and sometimes fails."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calls = 0
        self.seconds = 0.0

    async def call(self, action: str, question: Question, value: float | None) -> float:
        """Return the tool's result; a tool that cannot work with its input raises."""
        delay = min(0.1, 0.003 * self.random.paretovariate(1.5))
        self.calls += 1
        self.seconds += delay
        await asyncio.sleep(delay)
        if self.random.random() < BREAKS:
            raise ConnectionError(f"the tool to {action} does not answer")
        if action == "look up":
            return PRICES[question.item]
        if value is None:
            raise ValueError("there is no number yet")
        return value * (question.count if action == "multiply" else EUROS)


@dataclass(frozen=True)
class Question:
    """A customer's question."""

    item: str
    count: int
    euros: bool

    def __str__(self) -> str:
        what = f"{self.count} {self.item}" if self.count > 1 else f"one of the {self.item}"
        return f"what do {what} cost in {'euros' if self.euros else 'dollars'} ?"

    @property
    def answer(self) -> float:
        return PRICES[self.item] * self.count * (EUROS if self.euros else 1.0)


class Shop:
    """Actions are tools, observations text; the reward is 1 for the right answer, minus costs."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.random = random.Random()

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        if seed is not None:
            self.random.seed(seed)
        count = self.random.choice([1, self.random.randint(2, 9)])
        item, euros = self.random.choice(list(PRICES)), self.random.random() < 0.5
        self.question = Question(item, count, euros)
        self.value: float | None = None
        self.calls = 0
        self.text = str(self.question)
        return self.text, {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "answer":
            right = self.value is not None and abs(self.value - self.question.answer) < 1e-6
            return self.text, float(right), True, False, {"right": right}
        self.calls += 1
        try:
            self.value = await self.tools.call(action, self.question, self.value)
            self.text += f" {action} gives {self.value:.2f} ."
        except ValueError as error:
            self.text += f" {action} fails : {error} ."
        return self.text, -COST, False, self.calls == MAX_CALLS, {"right": False}

    async def close(self) -> None:
        """Do nothing: the tools are shared."""


class Network(nn.Module):
    """Maps texts to logits of actions: a bag of hashed words, and a hidden layer."""

    def __init__(self, words: int = 512, hidden: int = 64) -> None:
        super().__init__()
        self.words = words
        self.embed = nn.EmbeddingBag(words, hidden, mode="sum")
        self.out = nn.Linear(hidden, len(ACTIONS))

    def forward(self, texts: list[str]) -> torch.Tensor:
        split = [re.sub(r"[\d.]+", "#", text).split() for text in texts]
        ids = [crc32(word.encode()) % self.words for words in split for word in words]
        starts = [0, *torch.tensor([len(words) for words in split]).cumsum(0).tolist()[:-1]]
        hidden = self.embed(torch.tensor(ids), torch.tensor(starts))
        logits: torch.Tensor = self.out(torch.relu(hidden))
        return logits


class Actor:
    """Samples actions for all waiting agents; its weights are a copy of the learner's."""

    def __init__(self) -> None:
        self.network = Network()

    @torch.no_grad()
    def act(self, texts: list[str]) -> torch.Tensor:
        return torch.distributions.Categorical(logits=self.network(texts)).sample()

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        self.network.load_state_dict(weights)


@dataclass
class Episode:
    """The observations and actions of an episode."""

    texts: list[str]
    actions: list[int]
    total: float
    right: bool


async def play(
    policy: agym.BatchedPolicy, env: agym.AsyncEnvHandle, text: str, info: dict[str, Any]
) -> Episode:
    """Play an episode in one environment, as if there were no others."""
    episode = Episode([], [], 0.0, False)
    over = False
    while not over:
        action = int(await policy(text))
        episode.texts.append(text)
        episode.actions.append(action)
        text, reward, terminated, truncated, info = await env.step(ACTIONS[action])
        episode.total += reward
        episode.right = info["right"]
        over = terminated or truncated
    return episode


def learn(
    learner: Network, optimizer: torch.optim.Optimizer, episodes: list[Episode], size: int
) -> None:
    """Do one step of GRPO: an action's weight is its episode's return relative to the group."""
    totals = torch.tensor([episode.total for episode in episodes]).view(-1, size)
    advantages = (totals - totals.mean(1, keepdim=True)).flatten()
    lengths = torch.tensor([len(episode.actions) for episode in episodes])
    policy = torch.distributions.Categorical(
        logits=learner([text for episode in episodes for text in episode.texts])
    )
    actions = torch.tensor([action for episode in episodes for action in episode.actions])
    likely = policy.log_prob(actions) * advantages.repeat_interleave(lengths)
    loss = -likely.mean() - 0.02 * policy.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def draw(path: Path, rights: list[float], totals: list[float]) -> None:
    """Draw the learning curve."""
    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(6, 2.6), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.plot(rights, color="#0b7a75", label="questions answered correctly")
    axes.plot(totals, color="#b9bdc6", label="return, minus the costs of calls")
    axes.set_xlabel("batches of rollouts")
    axes.set_ylim(min(0.0, *totals) - 0.02, 1.02)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--batches", type=int, default=250, help="batches of rollouts (default: %(default)s)"
    )
    parser.add_argument(
        "--groups", type=int, default=8, help="questions in a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--group-size", type=int, default=8, help="rollouts of a question (default: %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of questions, tools, network (default: %(default)s)",
    )
    parser.add_argument("--picture", type=Path, help="PNG file to draw into (default: none)")
    options = parser.parse_args()
    if min(options.batches, options.groups) < 1 or options.group_size < 2:
        parser.error("--batches and --groups must be at least 1, --group-size at least 2")
    if options.picture is not None:
        try:
            options.picture.open("ab").close()
        except OSError as error:
            parser.error(f"--picture {options.picture} cannot be written: {error.strerror}")

    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    tools, actor, learner = Tools(options.seed), Actor(), Network()
    optimizer = torch.optim.Adam(learner.parameters(), lr=3e-3)
    num_envs = options.groups * options.group_size
    rights: list[float] = []
    totals: list[float] = []
    again = 0
    start_time = time.perf_counter()
    async with (
        agym.make_async(Shop, num_envs, autoreset="disabled", output="list", tools=tools) as envs,
        agym.batched(actor.act, max_batch=num_envs, update=actor.load) as policy,
    ):
        groups = agym.group(envs, options.group_size)
        for batch in range(options.batches):
            await policy.update(learner.state_dict())
            questions = range(batch * len(groups), (batch + 1) * len(groups))
            plays = [
                group.play(partial(play, policy), seed=question, retry=10)
                for group, question in zip(groups, questions, strict=True)
            ]
            episodes = [episode for played in await asyncio.gather(*plays) for episode in played]
            again += sum(group.attempts - 1 for group in groups)
            learn(learner, optimizer, episodes, options.group_size)
            rights.append(sum(episode.right for episode in episodes) / num_envs)
            totals.append(sum(episode.total for episode in episodes) / num_envs)
            if batch % 25 == 0 or batch == options.batches - 1:
                print(f"batch {batch:3d}: {rights[-1]:4.0%} right, return {totals[-1]:5.2f}")
        stats = policy.stats()
    seconds = time.perf_counter() - start_time
    print(
        f"{options.batches * num_envs} rollouts in {seconds:.1f} s; one after the other, the tools"
        f" alone would take {tools.seconds:.1f} s for {tools.calls} calls; {again} groups restarted"
    )
    print(stats)
    if options.picture is not None:
        draw(options.picture, rights, totals)


if __name__ == "__main__":
    agym.run(main())
