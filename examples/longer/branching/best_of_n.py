"""Best of n: an agent with a tool continues in n ways from its state, and the best way is kept.

python examples/longer/branching/best_of_n.py --picture best_of_n.png

A task is a game of numbers: combine two of them at a time until one is the target. The tool, a slow
HTTP server, evaluates each operation. A weak policy replaces a language model; alone, it hardly
ever reaches the target. So each task has a group of n environments: `branch` copies the state of
the best one into the others, all n continue at the same time, and so on.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import aiohttp
import matplotlib
import numpy as np
from aiohttp import web
from matplotlib.figure import Figure
from rich.progress import Progress

import agym

ACCENT, WARM, QUIET = "#0b7a75", "#c8321f", "#b9bdc6"
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
}
STYLE |= {"axes.titlesize": 10, "xtick.labelsize": 8, "ytick.labelsize": 8}
STYLE |= {"legend.frameon": False, "legend.fontsize": 8, "lines.markersize": 4}


def result_of(a: int, sign: str, b: int) -> int:
    """Return the result of an operation; 0 if it is not a positive whole number."""
    whole = b and a % b == 0
    return max(0, {"+": a + b, "-": a - b, "*": a * b, "/": a // b if whole else 0}[sign])


def answer_to(numbers: list[int], action: str) -> str:
    """Return the tool's answer: the result, and the remaining numbers."""
    a, sign, b = action.split()
    remaining = [*numbers]
    remaining.remove(int(a))
    remaining.remove(int(b))
    result = result_of(int(a), sign, int(b))
    return f"{action} = {result}: {' '.join(map(str, [*remaining, result]))}"


def parse(text: str) -> tuple[int, list[int]]:
    """Return a transcript's target, from its start, and the remaining numbers, from its end."""
    return int(text.split()[1]), [int(number) for number in text.rpartition(":")[2].split()]


def operations(left: list[int]) -> Iterator[tuple[str, int]]:
    """Return all possible operations, and their results."""
    for a, b in permutations(left, 2):
        for sign in "+-*/" if a >= b else "/":
            if result := result_of(a, sign, b):
                yield f"{a} {sign} {b}", result


def new_task(source: random.Random) -> str:
    """Return the first line of a transcript: eight numbers and a reachable target."""
    while True:
        start = left = [source.randint(1, 10) for _ in range(6)] + [25, 100]
        while len(left) > 1:
            action, _ = source.choice([*operations(left)])
            _, left = parse(f"reach 0 : {answer_to(left, action)}")
        if 100 <= left[0] <= 999:
            return f"reach {left[0]} from: {' '.join(map(str, start))}"


def policy(text: str, source: random.Random) -> str:
    """Return the next operation: of four random ones, usually the result nearest to the target."""
    target, left = parse(text)
    ideas = source.choices([*operations(left)], k=4)
    careful = source.random() < 0.8
    return min(ideas, key=lambda idea: abs(idea[1] - target) if careful else 0)[0]


def distance(text: str) -> int:
    """Return 0 for a solved state, else 1 + the distance to the target, now or in one step."""
    target, left = parse(text)
    near = min(abs(number - target) for number in left)
    return near and 1 + min([near, *(abs(result - target) for _, result in operations(left))])


@asynccontextmanager
async def tool_server(seed: int, waits: list[float]) -> AsyncIterator[str]:
    """Serve the tool on a free port of this machine; yield the address, and record all waits."""
    source = random.Random(seed)

    async def answer(request: web.Request) -> web.Response:
        left, action = await request.json()
        wait = min(1.0, 0.1 * source.paretovariate(3))
        waits.append(wait)
        await asyncio.sleep(wait)
        return web.Response(text=answer_to(left, action))

    app = web.Application()
    app.router.add_post("/tool", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/tool"
    finally:
        await runner.cleanup()


class NumbersEnv:
    """An observation is the transcript so far, an action an operation, such as "25 * 4"."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url
        self.text = ""

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.text = options["task"] if options else "reach 24 from: 3 3 8 8"
        return self.text, {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        question = [parse(self.text)[1], action]
        async with self.session.post(self.url, json=question) as response:
            self.text += "\n" + await response.text()
        target, left = parse(self.text)
        return self.text, float(target in left), target in left or len(left) == 1, False, {}

    async def snapshot(self) -> str:
        return self.text

    async def restore(self, text: str) -> None:
        self.text = text

    async def close(self) -> None:
        """Do nothing: the session is shared."""


@dataclass
class Way:
    """The steps of an environment since the branch point."""

    env: agym.AsyncEnvHandle
    texts: list[str]  # the transcript at the branch point, and after each step
    over: bool = False
    true: bool = True  # whether its transcripts follow from the branch point and its actions


async def go_on(env: agym.AsyncEnvHandle, text: str, segment: int, source: random.Random) -> Way:
    """Play some steps from a transcript."""
    way = Way(env, [text])
    while len(way.texts) <= segment and not way.over:
        action = policy(text, source)
        expected = f"{text}\n{answer_to(parse(text)[1], action)}"
        text, _, way.over, _, _ = await env.step(action)
        way.true = way.true and text == expected
        way.texts.append(text)
    return way


async def solve(
    envs: agym.AsyncEnvs, task: str, seed: str, segment: int, done: Callable[[], None]
) -> tuple[float, list[list[Way]]]:
    """Work on a task until it is over; return the seconds, and the ways per segment, best first.

    best ──▶ branch ──▶ go_on × n ──▶ sort by distance ──▶ best ──▶ branch ──▶ ...
    """
    started = time.perf_counter()
    await envs[0].reset(options={"task": task})
    best, tree = Way(envs[0], [task]), list[list[Way]]()
    while not best.over:
        branches = await best.env.branch(len(envs) - 1) if len(envs) > 1 else []
        # Branches only differ by their actions, so each has a policy with another seed.
        sources = [random.Random(f"{seed} {len(tree)} {i}") for i in range(len(envs))]
        async with asyncio.TaskGroup() as tasks:
            playing = [
                tasks.create_task(go_on(env, best.texts[-1], segment, source))
                for env, source in zip([best.env, *branches], sources, strict=True)
            ]
        ways = [task.result() for task in playing]
        tree.append(sorted(ways, key=lambda way: distance(way.texts[-1])))
        best = tree[-1][0]
    done()
    return time.perf_counter() - started, tree


@matplotlib.rc_context(STYLE)
def draw(path: Path, rows: list[tuple[int, float, float, float]], tree: list[list[Way]]) -> None:
    """Draw the gain and the cost of n, and the course of one task."""
    figure = Figure((11, 4.8), layout="constrained")
    axes = figure.subplot_mosaic([["solved", "tree"], ["time", "tree"]], width_ratios=[1, 2.7])
    n, solved, seconds, alone = zip(*rows, strict=True)
    ticks = {"xticks": range(len(n)), "xticklabels": n}
    bars = axes["solved"].bar(ticks["xticks"], solved, 0.65, color=ACCENT)
    axes["solved"].bar_label(bars, [f"{rate:.0%}" for rate in solved], fontsize=8)
    axes["solved"].set(title="tasks solved with the best of n", yticks=[], ylim=(0, 1.1), **ticks)
    axes["solved"].spines["left"].set_visible(False)
    axes["time"].plot(alone, "o--", color=QUIET, label="one wait after another")
    axes["time"].plot(seconds, "o-", color=WARM, label="waits overlap")
    axes["time"].set(title="seconds for a task", xlabel="n", ylim=(0, 1.1 * max(alone)), **ticks)
    axes["time"].legend()

    plot, step, ease = axes["tree"], 0, np.linspace(0, 1, 24)
    for ways in tree:
        heights = {way.env.index: np.log2(1 + distance(way.texts[0])) for way in ways}
        for i in range(1, max(len(way.texts) for way in ways)):
            going = [
                (distance(way.texts[i]), k, way) for k, way in enumerate(ways) if way.texts[i:]
            ]
            lowest = 0.0
            for value, k, way in sorted(going):
                begin, end = heights[way.env.index], max(np.log2(1 + value), lowest)
                heights[way.env.index], lowest = end, end + 0.08  # draw equal values side by side
                color, width, size = (QUIET, 0.9, 2.5) if k else (ACCENT, 2.8, 6)
                line = begin + (end - begin) * ease**2 * (3 - 2 * ease)
                plot.plot(step + i - 1 + ease, line, color=color, lw=width, zorder=1 + width)
                plot.plot(step + i, end, "o", color=color, ms=size, zorder=2 + width)
        step += len(ways[0].texts) - 1
    task, *lines = tree[-1][0].texts[-1].split("\n")
    actions = [line.partition(":")[0].replace(" =", "\n=") for line in lines]
    plot.set_xticks(range(step + 1), ["start", *actions])
    marks = np.array([1, 3, 10, 30, 100, 300, 1000])
    plot.set_yticks([0, *np.log2(1 + marks)], ["solved", *marks])
    plot.set_title(f"{task}; of {len(tree[0])} ways at a time, the best continues")
    plot.set_ylabel("distance to the target", fontsize=9)
    figure.savefig(path, format="png", dpi=110)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tasks", type=int, default=32, help="tasks at the same time (default: %(default)s)"
    )
    parser.add_argument(
        "--n",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8, 16],
        help="environments per task; several values to compare (default: 1 2 4 8 16)",
    )
    parser.add_argument(
        "--segment", type=int, default=1, help="steps between choices (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of tasks and policies (default: %(default)s)"
    )
    parser.add_argument("--picture", type=Path, help="PNG file to draw into (default: none)")
    options = parser.parse_args()
    if min(options.tasks, *options.n, options.segment) < 1:
        parser.error("--tasks, --n and --segment must be at least 1")
    if options.picture is not None:
        try:
            options.picture.open("ab").close()
        except OSError as error:
            parser.error(f"--picture {options.picture} cannot be written: {error.strerror}")

    seeds = [f"{options.seed} {i}" for i in range(options.tasks)]
    tasks = [new_task(random.Random(seed)) for seed in seeds]
    rows, waits = [], list[float]()
    async with (
        tool_server(options.seed, waits) as url,
        # A connection takes two files of this process, and many systems allow it 1024.
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=400)) as session,
    ):
        with Progress() as progress:
            for n in options.n:
                waits.clear()
                async with agym.make_async(
                    NumbersEnv, n * len(tasks), output="list", session=session, url=url
                ) as envs:
                    bar = progress.add_task(f"best of {n}", total=len(tasks))
                    done = partial(progress.advance, bar)
                    groups = zip(envs.split(len(tasks)), tasks, seeds, strict=True)
                    results = await asyncio.gather(
                        *(solve(*group, options.segment, done) for group in groups)
                    )
                trees = [tree for _, tree in results]
                if not all(way.true for tree in trees for ways in tree for way in ways):
                    sys.exit("a branch doesn't follow from its actions: please report it")
                solved = [tree for tree in trees if distance(tree[-1][0].texts[-1]) == 0]
                times = sum(seconds for seconds, _ in results), sum(waits)
                rows.append((n, *(x / len(tasks) for x in (len(solved), *times))))
    for n, rate, seconds, alone in rows:
        print(
            f"best of {n}: {rate:.0%} of {len(tasks)} tasks solved, {seconds:.1f} s per task;"
            f" one wait after another would take {alone:.1f} s"
        )
    if options.picture is not None:  # of the last n the longest task that was solved
        draw(options.picture, rows, max(solved or trees, key=len))


if __name__ == "__main__":
    agym.run(main())
