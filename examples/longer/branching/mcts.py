"""Monte-Carlo tree search with snapshots as nodes: plans 300 moves of Breakout.

python examples/longer/branching/mcts.py

python examples/longer/branching/mcts.py --env-id agym/CartPole-v1 --moves 200 --games 1

A node of the tree has a snapshot of the game. A simulation walks down the tree to a leaf by UCT,
restores the leaf's snapshot, branches it into one environment per action, takes every action in one
batched step, and adds the results as the leaf's children. Then all children are played with random
actions, at the same time, and their returns are added to every node on the way back up.
::

    select                 expand                            roll out               back up
    root ── … ── leaf ─▶ restore, branch ─▶ step([0, 1, 2]) ─▶ random steps ─▶ leaf ── … ── root

A snapshot contains the game's random stream, so the search knows future random events: where
Breakout serves its next ball, or whether the ice is slippery. To plan without that knowledge, seed
the environments differently after each restore.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from rich.progress import Progress

import agym

DISCOUNT = 0.99
EXPLORATION = 0.5  # of UCT, in units of the children's largest value
WINDOW = 48  # moves whose tree is drawn
QUIET = "#b9bdc6"
COLORS = ["#e0a458", "#c8321f", "#0b7a75"]


@dataclass(eq=False, slots=True)
class Node:
    """A state of the game, and the returns of simulations from there on."""

    snapshot: agym.Snapshot
    reward: float = 0.0  # of the action that led here
    ended: bool = False
    moves: int = 0  # since the reset
    visits: int = 0
    total: float = 0.0
    children: list[Node] = field(default_factory=list)  # one per action, or none yet

    @property
    def value(self) -> float:
        """The mean discounted return after the action that led here, with its reward."""
        return self.reward + DISCOUNT * self.total / max(self.visits, 1)


class Search:
    """Grows a tree of snapshots, with one environment per action."""

    def __init__(self, envs: agym.Envs, depth: int, seed: int) -> None:
        self.envs = envs
        self.depth = depth
        self.first = int(envs.single_action_space.start)
        self.rng = np.random.default_rng(seed)
        self.simulations = self.expansions = self.steps = self.replay_steps = 0
        self.snapshot_seconds = self.step_seconds = 0.0

    def step(self, actions: Any) -> tuple[Any, Any]:
        """Step all environments; return the rewards, and whether each game has ended."""
        started = time.perf_counter()
        _, rewards, terminated, truncated, _ = self.envs.step(actions + self.first)
        self.step_seconds += time.perf_counter() - started
        self.steps += len(actions)
        return rewards, terminated | truncated

    def choose(self, node: Node) -> Node:
        """Return the child with the highest upper confidence bound."""
        scale = max(abs(child.value) for child in node.children) or 1.0
        explore = EXPLORATION * scale * math.sqrt(math.log(node.visits))
        return max(node.children, key=lambda child: child.value + explore / child.visits**0.5)

    def simulate(self, root: Node) -> None:
        """Walk to a leaf, expand it, roll out its children, and back up their returns."""
        path = [root]
        while path[-1].children:
            path.append(self.choose(path[-1]))
        leaf, count = path[-1], len(self.envs)
        returns = np.zeros(count)
        if not leaf.ended:
            self.expand(leaf)
            for child, earned in zip(leaf.children, self.roll_out(leaf.children), strict=True):
                child.visits, child.total = 1, earned
            returns = np.array([child.value for child in leaf.children])
        total = returns.sum()
        for node in reversed(path):
            node.visits += count
            node.total += total
            total = count * node.reward + DISCOUNT * total
        self.simulations += 1

    def expand(self, leaf: Node) -> None:
        """Take every action from a leaf at once; the results are its children."""
        started = time.perf_counter()
        count = len(self.envs)
        self.envs[0].restore(leaf.snapshot)
        self.envs[0].branch()  # into all others
        middle = time.perf_counter()
        rewards, ended = self.step(np.arange(count))
        after = time.perf_counter()
        for snapshot, reward, end in zip(self.envs.snapshot(), rewards, ended, strict=True):
            leaf.children.append(Node(snapshot, float(reward), bool(end), leaf.moves + 1))
        self.snapshot_seconds += middle - started + time.perf_counter() - after
        self.expansions += 1
        self.replay_steps += count * leaf.moves

    def roll_out(self, nodes: list[Node]) -> Any:
        """Play random actions from the current states; return the discounted returns."""
        returns, ended = np.zeros(len(nodes)), np.array([node.ended for node in nodes])
        factor = 1.0
        for actions in self.rng.integers(0, len(nodes), (self.depth, len(nodes))):
            if ended.all():
                break
            rewards, ends = self.step(actions)
            returns += factor * np.where(ended, 0, rewards)
            ended |= ends
            factor *= DISCOUNT
        return returns

    def plan(self, root: Node, simulations: int) -> int:
        """Return the action of the most simulations, counted from 0."""
        for _ in range(simulations):
            self.simulate(root)
        nodes = root.children
        return max(range(len(nodes)), key=lambda i: (nodes[i].visits, nodes[i].value))


def play(
    player: agym.Envs, search: Search, simulations: int, moves: int, seed: int
) -> Iterator[tuple[float, Node]]:
    """Play a game; yield the return after each move, and the current node of the tree."""
    player.reset(seed=seed)
    node, earned = Node(player.snapshot()[0]), 0.0
    for _ in range(moves):
        if simulations:
            action = search.plan(node, simulations)
            node = node.children[action]  # its subtree is kept
        else:
            action = int(search.rng.integers(len(search.envs)))
        _, rewards, terminated, truncated, _ = player.step(np.array([action + search.first]))
        if simulations and node.reward != rewards[0]:
            sys.exit("the game continued differently than from its snapshot: please report it")
        earned += float(rewards[0])
        yield earned, node
        if terminated[0] or truncated[0]:
            return


def lay_out(root: Node) -> dict[Node, float]:
    """Return the heights at which to draw the nodes of the next moves: the most visited at 0."""
    heights = {root: 0.0}
    edges = {1: 0.0, -1: 0.0}  # up to where the heights are taken, above and below

    def place(node: Node, height: float, side: int) -> None:
        heights[node] = height
        shown = node.children if node.moves < root.moves + WINDOW else []
        for i, child in enumerate(sorted(shown, key=lambda child: -child.visits)):
            way = side or (-1) ** (i + node.moves)
            edges[way] += way if i else 0
            place(child, edges[way] if i else height, way if i else side)

    place(root, 0.0, 0)
    return heights


def blend_futures(player: agym.Envs, root: Node, nodes: Iterable[Node]) -> Any:
    """Draw the game at a node, and on top of it other nodes; the most visited are the clearest."""
    player.restore(root.snapshot)
    now = np.array(player.render()[0], float)
    sign = 1 if now.mean() < 128 else -1  # show what is brighter, or darker on a bright ground
    strongest = np.zeros_like(now)
    for node in nodes:
        player.restore(node.snapshot)
        strength = 0.35 + 0.5 * math.sqrt(node.visits / root.visits)
        change = sign * strength * (player.render()[0] - now)
        np.maximum(strongest, change, out=strongest)
    return (now + sign * strongest).clip(0, 255).astype(np.uint8)


def draw(path: Path, player: agym.Envs | None, root: Node, curves: dict[int, Any]) -> None:
    """Draw the game with its possible futures, the search tree, and returns by simulations."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    heights = lay_out(root)
    figure = Figure((13, 4), layout="constrained")
    panels = figure.subplots(1, 2 if player is None else 3, squeeze=False)[0]
    if player is not None:
        panels[0].imshow(blend_futures(player, root, heights))
        panels[0].set(xticks=[], yticks=[], title=f"move {root.moves}, and futures in the tree")
    tree, chart = panels[-2:]
    pairs = [(a, b) for a in heights for b in a.children if b in heights]
    lines = [[(a.moves, heights[a]), (b.moves, heights[b])] for a, b in pairs]
    widths = [0.4 + 3 * math.sqrt(b.visits / root.visits) for _, b in pairs]
    tree.add_collection(LineCollection(lines, linewidths=widths, colors=QUIET))
    x, values = [node.moves for node in heights], [node.value for node in heights]
    dots = tree.scatter(x, [*heights.values()], s=6, c=values, cmap="viridis", zorder=2)
    figure.colorbar(dots, ax=tree, label="value", shrink=0.8)
    tree.set(xlabel="move", yticks=[], title=f"tree of {len(heights):,} snapshots")
    colors = [QUIET, *COLORS[1 - len(curves) :]]
    for color, (simulations, games) in zip(colors, curves.items(), strict=True):
        chart.plot(np.transpose(games), color=color, linewidth=0.6, alpha=0.5)
        label = f"{simulations} simulation{'s' * (simulations > 1)}" if simulations else "random"
        chart.plot(np.mean(games, 0), color=color, linewidth=2, label=label)
    chart.legend(frameon=False)
    chart.set(xlabel="move", title="return, by simulations per move")
    for panel in (tree, chart):
        panel.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=100)


def report(
    search: Search, seconds: float, options: argparse.Namespace, curves: dict[int, Any]
) -> None:
    """Print the return and the cost of the search."""
    random, searched = (curves[n][:, -1].mean() for n in (0, options.simulations))
    replayed = search.replay_steps
    each = replayed / search.expansions
    snapshots = 1000 * search.snapshot_seconds / search.expansions
    replays = 1000 * search.step_seconds / search.steps * each
    print(
        f"After {options.moves} moves, the search has a return of {searched:,.1f}, and random play"
        f" one of {random:,.1f} (means, games: {options.games}).\n"
        f"It ran {search.simulations / seconds:,.0f} simulations per second, {search.simulations:,}"
        f" in all, each with a rollout of each of the {len(search.envs)} actions.\n"
        f"An expansion took {snapshots:.2f} ms for snapshots. To step from the reset to its leaf"
        f" instead would have taken {each:,.0f} steps, {replays:.2f} ms: {replayed:,} steps in"
        f" all, besides the {search.steps:,} of the search."
    )


def parse() -> argparse.Namespace:
    """Parse the options; exit with a message if one is invalid."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--env-id", default="agym/Breakout-v0", help="has discrete actions (default: %(default)s)")
    add("--simulations", type=int, default=16, help="per move (default: %(default)s)")
    add("--depth", type=int, default=60, help="steps of a rollout (default: %(default)s)")
    add("--moves", type=int, default=300, help="of a game, at most (default: %(default)s)")
    add("--games", type=int, default=3, help="with seeds in a row (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the first game (default: %(default)s)")
    add("--backend", default="serial", help="of the search's environments (default: %(default)s)")
    add("--picture", type=Path, help="a PNG file to draw, which takes longer (default: none)")
    options = parser.parse_args()
    for name in ("simulations", "depth", "moves", "games"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if not 0 <= options.seed < 2**31 - options.games:
        parser.error("--seed must be at least 0, and below 2**31")
    if options.picture is not None:
        if options.picture.suffix != ".png":
            parser.error(f"--picture {options.picture} must end in .png")
        if find_spec("matplotlib") is None:
            parser.error("--picture needs matplotlib: pip install -e '.[examples]'")
        place = options.picture if options.picture.exists() else options.picture.parent
        if options.picture.is_dir() or not os.access(place, os.W_OK):
            parser.error(f"--picture {options.picture} cannot be written")
    return options


def main() -> None:
    options = parse()
    # Of Atari's two observations this one is 600 times smaller, and a snapshot contains it.
    kwargs = {"obs_type": "ram"} if options.env_id.startswith("ALE/") else {}
    make = partial(agym.make, options.env_id, output="array", infos="none", **kwargs)
    with make(1, backend="serial") as one:
        actions, modes = one.single_action_space, one.metadata.get("render_modes") or ()
    if not isinstance(actions, spaces.Discrete) or actions.n < 2:
        sys.exit(f"--env-id {options.env_id} has no discrete actions to choose from: {actions}")
    frames = options.picture is not None and "rgb_array" in modes
    if frames:
        make = partial(make, render_mode="rgb_array")
    with make(1, backend="serial") as player, make(int(actions.n), backend=options.backend) as envs:
        if frames:
            player.reset(seed=options.seed)
            player.render()  # fails now rather than at the end
        budgets = {0, options.simulations}
        if options.picture is not None:  # and two between
            budgets |= {-(-options.simulations // 4), -(-options.simulations // 16)}
        games = range(options.games)
        curves = {n: np.zeros((options.games, options.moves)) for n in sorted(budgets)}
        with Progress(transient=True) as progress:
            task = progress.add_task("moves", total=len(curves) * len(games) * options.moves)
            for simulations, game in product(curves, games):
                if game == 0:
                    search, started = Search(envs, options.depth, options.seed), time.perf_counter()
                played = play(player, search, simulations, options.moves, options.seed + game)
                for move, (earned, node) in enumerate(played):
                    curves[simulations][game, move:] = earned
                    progress.advance(task)
                    if game == 0 and move < options.moves * 2 // 5:
                        shown = node
                progress.advance(task, options.moves - move - 1)  # of a game that ended
        report(search, time.perf_counter() - started, options, curves)
        if options.picture is not None:
            draw(options.picture, player if frames else None, shown, curves)
            print(f"{options.picture} shows the game, the tree and the returns.")


if __name__ == "__main__":
    try:
        main()
    except (agym.AgymError, OSError) as error:
        sys.exit(str(error))
