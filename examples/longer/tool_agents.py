"""Hundreds of agents use the tools of an HTTP server, all at the same time on one event loop.

python examples/longer/tool_agents.py --num-envs 256

An environment is a class with coroutines. Actions and observations are text, so no spaces are
needed. The server's answers take a random time, sometimes up to a second. The script plays in two
ways: with a task per environment, and a batched policy for all tasks; and in batches of the
environments that were answered first.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import agym


def answer_to(question: str) -> str:
    """Return the server's answer."""
    return hashlib.sha256(question.encode()).hexdigest()[:12]


def delay_of(question: str, seed: int) -> float:
    """Return the seconds that an answer takes: at least 5 ms, with a heavy tail up to a second."""
    return min(1.0, 0.005 * random.Random(f"{seed} {question}").paretovariate(1.2))


class ToolServer:
    """Answers questions over HTTP, and counts them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.asked: Counter[str] = Counter()
        self.delays = 0.0
        self.busy = self.most_busy = 0

    async def answer(self, request: web.Request) -> web.Response:
        question = await request.text()
        self.asked[question] += 1
        delay = delay_of(question, self.seed)
        self.delays += delay
        self.busy += 1
        self.most_busy = max(self.busy, self.most_busy)
        await asyncio.sleep(delay)
        self.busy -= 1
        return web.Response(text=answer_to(question))

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen on a free port of this machine; yield the address."""
        app = web.Application()
        app.router.add_post("/tool", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}/tool"
        finally:
            await runner.cleanup()


class ToolEnv:
    """An action is a question to the tool, and the next observation is its answer."""

    def __init__(self, session: aiohttp.ClientSession, url: str, rounds: int) -> None:
        self.session = session
        self.url = url
        self.rounds = rounds
        self.asked = 0

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.asked = 0
        return "ready", {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        async with self.session.post(self.url, data=action) as response:
            observation = await response.text()
        self.asked += 1
        return observation, 1.0, self.asked == self.rounds, False, {}

    async def close(self) -> None:
        """Do nothing: the session is shared."""


def question_of(phase: str, env_id: int, observation: str) -> str:
    """Return an agent's next question; it contains the last answer, so a mix-up is noticed."""
    return f"{phase}: agent {env_id} wants to know what follows from {observation}"


def questions_of(
    asking: tuple[list[str], np.ndarray[Any, Any], list[str]],
) -> list[str]:
    """Return the next questions of a batch of agents, as a language model would."""
    return [question_of(*each) for each in zip(*asking, strict=True)]


Transcripts = list[list[str]]


async def with_tasks(envs: agym.AsyncEnvs, phase: str, progress: Progress) -> Transcripts:
    """Play each environment in a separate task; return the answers of each agent."""
    bar = progress.add_task(phase, total=len(envs))

    async def play(env: agym.AsyncEnvHandle) -> list[str]:
        answers = []
        observation, _ = await env.reset()
        over = False
        while not over:
            question = await policy((phase, env.index, observation))
            observation, _, over, _, _ = await env.step(question)
            answers.append(observation)
        progress.advance(bar)
        return answers

    async with agym.batched(questions_of) as policy, asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(env)) for env in envs]
    return [task.result() for task in tasks]


async def with_batches(envs: agym.AsyncEnvs, phase: str, progress: Progress) -> Transcripts:
    """Step in batches of the agents that were answered first, at least an eighth of all."""
    bar = progress.add_task(phase, total=len(envs))
    answers: Transcripts = [[] for _ in envs]
    observations, _ = await envs.reset()
    envs.send([question_of(phase, i, observation) for i, observation in enumerate(observations)])
    async for batch in envs.as_completed(min_envs=max(1, len(envs) // 8)):
        questions = {}
        for i, observation, over in zip(
            batch.env_ids, batch.observations, batch.terminated, strict=True
        ):
            answers[i].append(observation)
            if not over:
                questions[i] = question_of(phase, i, observation)
        progress.advance(bar, sum(batch.terminated))
        if questions:
            envs.send(list(questions.values()), list(questions))
    return answers


def check(phase: str, rounds: int, transcripts: Transcripts, server: ToolServer) -> None:
    """Exit with a message unless each agent got its answers, and each question was asked once."""
    right = True
    for i, answers in enumerate(transcripts):
        right = right and len(answers) == rounds
        observation = "ready"
        for answer in answers:
            question = question_of(phase, i, observation)
            right = right and answer == answer_to(question) and server.asked.pop(question, 0) == 1
            observation = answer
    if not right or server.asked:
        sys.exit("an answer was lost, duplicated, or reached another agent: please report it")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--num-envs", type=int, default=256, help="number of agents (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=8, help="questions of each agent (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the server's delays (default: %(default)s)"
    )
    options = parser.parse_args()
    if min(options.num_envs, options.rounds) < 1:
        parser.error("--num-envs and --rounds must be at least 1")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())

    server = ToolServer(options.seed)
    lines = []
    async with (
        server.serve() as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        agym.make_async(
            ToolEnv,
            options.num_envs,
            output="list",
            session=session,
            url=url,
            rounds=options.rounds,
        ) as envs,
    ):
        with Progress(*columns, TimeElapsedColumn()) as progress:
            for phase, play in (("a task each", with_tasks), ("first-k batches", with_batches)):
                server.delays, server.most_busy = 0.0, 0
                started = time.perf_counter()
                transcripts = await play(envs, phase, progress)
                seconds = time.perf_counter() - started
                check(phase, options.rounds, transcripts, server)
                lines.append(
                    f"{phase}: {options.num_envs * options.rounds} answers in {seconds:.1f} s,"
                    f" up to {server.most_busy} at once; one by one, the server alone would take"
                    f" {server.delays:.1f} s"
                )
    print(*lines, sep="\n")


if __name__ == "__main__":
    agym.run(main())
