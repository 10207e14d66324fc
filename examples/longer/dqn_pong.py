"""Double DQN learns Pong in six variants; the same learning gets faster from variant to variant.

python examples/longer/dqn_pong.py                           # all variants: a table, and a PNG
python examples/longer/dqn_pong.py --variant baseline wrappers-parallel --seeds 0 1 2
python examples/longer/dqn_pong.py --env ALE/Pong-v5         # only frames per second

    baseline           one environment: act, store, learn, in turn
    grad               the baseline without torch.no_grad(), to show its cost
    envs3              three environments per training step, which has three times the batch
    parallel           envs3, stepped in a worker process during the training step
    wrappers           envs3, preprocessed as one batch, and as bytes until the network
    wrappers-parallel  both

A frame is an observation of the agent: two steps of agym/Pong-v0, four of the emulator.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

import agym

BATCH = 32  # transitions of a training step, for each environment
CAPACITY = 30_000  # frames that are remembered
WARM_UP = 1_000  # frames before the first training step
DISCOUNT = 0.97
N_STEP = 3  # rewards that are summed up before a target is bootstrapped
LEARNING_RATE = 1e-3
TAU = 0.01  # by which the target network goes towards the other in a training step
EXPLORATION = 10_000  # frames in which epsilon falls from 1 to ...
EPSILON = 0.01
MAX_FRAMES = 200_000  # after which a run stops
WINDOW = 20  # games of which the mean score counts
FULL = 21  # points that win a whole game
SKIP, STACK = 2, 2  # of agym/Pong-v0: steps per frame, and frames per observation


@dataclass(frozen=True)
class Rung:
    """The differences from the baseline."""

    num_envs: int = 1
    no_grad: bool = True
    overlap: bool = False
    batched: bool = False


LADDER = {
    "baseline": Rung(),
    "grad": Rung(no_grad=False),
    "envs3": Rung(num_envs=3),
    "parallel": Rung(num_envs=3, overlap=True),
    "wrappers": Rung(num_envs=3, batched=True),
    "wrappers-parallel": Rung(num_envs=3, batched=True, overlap=True),
}


class Skip(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action."""

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(SKIP):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def floats(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Converts bytes to numbers from 0 to 1, which need four times the memory."""
    scale = np.float32(env.observation_space.high.max())
    space = spaces.Box(0, 1, env.observation_space.shape, np.float32)
    return TransformObservation(env, lambda grid: grid.astype(np.float32) / scale, space)


class SkipAndStack(VectorWrapper):
    """Repeats each action and stacks the observations, for all games at once, as bytes."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(envs)
        shape = STACK, *envs.single_observation_space.shape
        self.single_observation_space = spaces.Box(0, 2, shape, np.uint8)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.stacks = np.zeros(self.observation_space.shape, np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        frames, infos = self.env.reset(seed=seed, options=options)
        self.stacks[:] = frames[:, None]
        return self.stacks, infos

    def step(self, actions: Any) -> Any:
        total, over, cut = np.zeros(self.num_envs), *np.zeros((2, self.num_envs), bool)
        for _ in range(SKIP):  # a game that starts in the middle of the repeats is played on
            frames, rewards, terminated, truncated, _ = self.env.step(actions)
            total += rewards * ~(over | cut)
            over, cut = over | terminated, cut | truncated
        finals = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(over | cut):
            finals[i] = self.stacks[i].copy()  # nothing is learned from what follows the end
            self.stacks[i] = frames[i]
        self.stacks[:, :-1], self.stacks[:, -1] = self.stacks[:, 1:].copy(), frames
        return self.stacks, total, over, cut, {"final_obs": finals, "_final_obs": over | cut}


def one_pong(**rules: Any) -> gymnasium.Env[Any, Any]:
    return floats(FrameStackObservation(Skip(gymnasium.make("agym/Pong-v0", **rules)), STACK))


def many_pongs(num_envs: int, **rules: Any) -> VectorEnv[Any, Any, Any]:
    rules = {"autoreset_mode": AutoresetMode.SAME_STEP, **rules}
    return SkipAndStack(gymnasium.make_vec("agym/Pong-v0", num_envs, "vector_entry_point", **rules))


def one_atari() -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("ale_py:ALE/Pong-v5", frameskip=1, repeat_action_probability=0)
    return floats(FrameStackObservation(AtariPreprocessing(env), 4))


def many_ataris(num_envs: int) -> VectorEnv[Any, Any, Any]:
    rules = {"repeat_action_probability": 0, "autoreset_mode": AutoresetMode.SAME_STEP}
    return gymnasium.make_vec("ale_py:ALE/Pong-v5", num_envs, "vector_entry_point", **rules)


class Positions(nn.Module):
    """Finds the ball and the paddle in each grid of agym/Pong-v0: means of rows and columns.

    This layer could be learned, but is not: that would need a hundred times as many frames, and
    would not differ between the variants.
    """

    def __init__(self) -> None:
        super().__init__()
        rows, columns = torch.arange(30.0) - 14.5, torch.arange(40.0) - 19.5
        where = torch.zeros(30, 40, 3)
        where[:, 1:39, 0], where[:, 1:39, 1] = rows[:, None], columns[1:39]
        where[:, 39, 2] = 2 * rows / 5  # a paddle has five cells, with half of the ball's value
        self.register_buffer("where", where.flatten(0, 1).T.contiguous())

    def forward(self, grids: Tensor) -> Tensor:
        before, now = nn.functional.linear(grids.flatten(2), self.where).unbind(1)
        row, column, paddle = now.unbind(1)
        fall, run = (now - before)[:, :2].unbind(1)
        views = (row - paddle) / 4, fall / 6, column / 10, run / 2, row / 10, paddle / 10
        return torch.stack(views, 1)


def small_network(actions: int) -> nn.Module:
    return nn.Sequential(
        Positions(), nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
        nn.Linear(128, actions),
    )  # fmt: skip


def nature_network(actions: int) -> nn.Module:
    """The network of https://doi.org/10.1038/nature14236."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        nn.Linear(512, actions),
    )  # fmt: skip


@dataclass(frozen=True)
class Game:
    """The game, and the network for its observations."""

    one: Callable[..., gymnasium.Env[Any, Any]]
    many: Callable[..., VectorEnv[Any, Any, Any]]
    network: Callable[[int], nn.Module]
    scale: float  # the largest byte of an observation
    rules: dict[str, Any] = field(default_factory=dict)

    @property
    def points(self) -> int:
        return int(self.rules.get("points", FULL))

    def make(self, rung: Rung) -> agym.AsyncEnvs[Any, Any]:
        """Make the environments of a variant."""
        options: dict[str, Any] = {"autoreset": "same_step", "infos": "none"}
        if rung.batched:
            many = partial(self.many, **self.rules)
            return agym.make_async(many, rung.num_envs, backend="vector", **options)
        backend = {"backend": "process", "workers": 1} if rung.overlap else {"backend": "serial"}
        return agym.make_async(partial(self.one, **self.rules), rung.num_envs, **backend, **options)


class Replay:
    """A ring buffer of transitions, with a row for each step of all environments."""

    def __init__(self, envs: agym.AsyncEnvs[Any, Any], rng: np.random.Generator) -> None:
        self.rows, self.num_envs, self.rng = CAPACITY // len(envs), len(envs), rng
        space, shape = envs.single_observation_space, (self.rows, len(envs))
        self.observations = np.zeros((*shape, *space.shape), space.dtype)
        self.actions = np.zeros(shape, np.int64)
        self.rewards, self.ended = np.zeros(shape, np.float32), np.zeros(shape, bool)
        self.now = 0  # the row of this step, which has no reward yet

    def sample(self, size: int) -> tuple[Tensor, ...]:
        """Sample transitions of ``N_STEP`` steps: observation, action, return, discount, next."""
        oldest = max(0, self.now - self.rows + 1)
        begin = self.rng.integers(oldest, self.now - N_STEP + 1, size)
        env = self.rng.integers(self.num_envs, size=size)
        steps = (begin[:, None] + np.arange(N_STEP)) % self.rows, env[:, None]
        going_on = np.cumprod(~self.ended[steps], 1, dtype=np.float32)
        rewards = self.rewards[steps]
        rewards[:, 1:] *= going_on[:, :-1]  # those of the next game do not count
        first, last = (begin % self.rows, env), ((begin + N_STEP) % self.rows, env)
        discounts = DISCOUNT ** np.arange(N_STEP + 1, dtype=np.float32)
        columns = (
            self.observations[first], self.actions[first], rewards @ discounts[:-1],
            going_on[:, -1] * discounts[-1], self.observations[last],
        )  # fmt: skip
        return tuple(map(torch.from_numpy, columns))


class Agent:
    """A network that acts and learns, and a delayed copy of it for the targets."""

    def __init__(self, game: Game, actions: int, rung: Rung, rng: np.random.Generator) -> None:
        self.online, self.target = game.network(actions), game.network(actions)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), LEARNING_RATE, fused=True)
        self.actions, self.scale, self.rng = actions, game.scale, rng
        self.no_grad = torch.no_grad if rung.no_grad else nullcontext

    def floats(self, observations: Tensor) -> Tensor:
        """Convert bytes to numbers from 0 to 1; numbers are returned unchanged."""
        bytes_ = observations.dtype == torch.uint8
        return observations.float().div_(self.scale) if bytes_ else observations

    def act(self, observations: np.ndarray, epsilon: float) -> np.ndarray:
        with self.no_grad():
            values = self.online(self.floats(torch.from_numpy(observations)))
        greedy, n = values.argmax(1).numpy(), len(observations)
        return np.where(
            self.rng.random(n) < epsilon, self.rng.integers(self.actions, size=n), greedy
        )

    def learn(self, sample: tuple[Tensor, ...]) -> None:
        """Double DQN, https://arxiv.org/abs/1509.06461."""
        observations, actions, returns, discounts, later = sample
        later = self.floats(later)
        with self.no_grad():
            best = self.online(later).argmax(1, keepdim=True)
            targets = returns + discounts * self.target(later).gather(1, best).squeeze(1)
        values = self.online(self.floats(observations)).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(values, targets.detach())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
                old.lerp_(new, TAU)


@dataclass
class Run:
    """The result of a training. Scores are scaled as if each game went to 21."""

    frames: int = 0
    seconds: float = 0.0
    fps: float = 0.0  # from the first training step on
    score: float = -FULL  # mean of the last games
    solved: float | None = None  # mean of as many without exploration, once both are good
    curve: list[tuple[float, float]] = field(default_factory=list)

    @property
    def minutes(self) -> float | None:
        """Minutes until the game was solved."""
        return None if self.solved is None else self.seconds / 60


async def train(
    game: Game, rung: Rung, seed: int, frames: int, target: float, tell: Callable[[Run], None]
) -> Run:
    """Learn until games are won by ``target`` points of 21, or for ``frames`` frames."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    run, scores, warm_up = Run(), deque[float](maxlen=WINDOW), min(WARM_UP, frames // 2)
    async with game.make(rung) as envs:
        n, score = len(envs), np.zeros(len(envs))
        agent = Agent(game, envs.single_action_space.n, rung, rng)
        replay = Replay(envs, rng)
        observations, _ = await envs.reset(seed=seed)
        started = warm = time.perf_counter()
        while run.frames < frames and run.solved is None:
            row, learns = replay.now % replay.rows, run.frames >= warm_up and replay.now >= N_STEP
            epsilon = max(EPSILON, 1 - run.frames / EXPLORATION)
            replay.observations[row] = observations
            replay.actions[row] = actions = agent.act(observations, epsilon)

            pending = envs.step(actions)
            if learns and rung.overlap:  # while the environments are stepping
                agent.learn(replay.sample(BATCH * n))
            observations, rewards, terminated, truncated, _ = await pending
            if learns and not rung.overlap:
                agent.learn(replay.sample(BATCH * n))

            replay.rewards[row], replay.ended[row] = rewards, terminated | truncated
            replay.now += 1
            run.frames += n

            now = time.perf_counter()
            if learns:
                run.fps = (run.frames - warm_up) / (now - warm)
            else:
                warm = now
            run.seconds = now - started
            score += rewards
            for i in np.flatnonzero(replay.ended[row]):
                scores.append(score[i] * FULL / game.points)
                score[i], run.score = 0, sum(scores) / len(scores)
                if len(scores) == WINDOW:
                    run.curve.append((run.seconds / 60, run.score))
            if run.frames % 300 < n:
                tell(run)
            if len(scores) == WINDOW and run.score >= target:
                again = play(game, agent, seed + 1_000_000)
                run.solved = again if again >= target else None
                scores.clear()
                started, warm = (t + time.perf_counter() - now for t in (started, warm))
    return run


def play(game: Game, agent: Agent, seed: int) -> float:
    """Return the mean score of new games, without exploration."""
    many = partial(game.many, **game.rules, max_episode_steps=4_000)
    with agym.make(many, WINDOW, backend="vector", output="array") as envs:
        observations, _ = envs.reset(seed=seed)
        scores, over = np.zeros(WINDOW), np.zeros(WINDOW, bool)
        while not over.all():  # those that are over hold still
            actions = agent.act(observations, epsilon=0)
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            scores, over = scores + rewards, terminated | truncated
    return float(scores.mean()) * FULL / game.points


def middle(runs: list[Run], name: str) -> float | None:
    """Return the median over the seeds, if there is a value for each."""
    values = [getattr(run, name) for run in runs]
    return None if None in values or not values else median(values)


def show(runs: dict[str, list[Run]], title: str) -> Table:
    """Print a line per variant: medians over the seeds, and percentages of the baseline."""
    table = Table(title=title)
    table.add_column("rung", no_wrap=True)
    for name in ("frames/s", "", "solved, min", "", "frames", "score"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, some in runs.items():
        cells = [name]
        for column, form in (("fps", ",.0f"), ("minutes", ".2f")):
            value, base = middle(some, column), middle(runs.get("baseline", []), column)
            cells.append(format(value, form) if value else "–")
            cells.append(f"{100 * (value / base - 1):+.0f} %" if value and base else "")
        score = middle(some, "solved")
        cells.append(f"{middle(some, 'frames'):,.0f}")
        table.add_row(*cells, f"{score:+.1f}" if score else "–")
    return table


def save_curves(runs: dict[str, list[Run]], title: str, path: Path) -> None:
    """Draw the mean score of the last games over time, with a colour per variant."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    panel = figure.subplots()
    for i, (name, some) in enumerate(runs.items()):
        for k, run in enumerate(some):
            panel.plot(*zip(*run.curve, strict=True), f"C{i}", lw=1.2, label="" if k else name)
    panel.set(xlabel="minutes", ylabel=f"mean score of {WINDOW} games, of {FULL}", title=title)
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(fontsize=8, loc="lower right")
    figure.savefig(path, format="png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--env",
        choices=("agym/Pong-v0", "ALE/Pong-v5"),
        default="agym/Pong-v0",
        help="the game (default: %(default)s)",
    )
    add(
        "--variant",
        nargs="+",
        choices=LADDER,
        default=list(LADDER),
        metavar="RUNG",
        help="variants (default: all)",
    )
    add(
        "--seeds",
        type=int,
        nargs="+",
        default=[0],
        help="seeds; each variant runs once per seed (default: %(default)s)",
    )
    add("--points", type=int, default=5, help="points that win a game (default: %(default)s)")
    add(
        "--skill",
        type=float,
        default=0.05,
        help="skill of the opponent, from 0 to 1 (default: %(default)s)",
    )
    add(
        "--target",
        type=float,
        default=18,
        help="mean score that solves the game, scaled to 21 points (default: %(default)s)",
    )
    add(
        "--frames",
        type=int,
        help="maximum frames of a run; if given, the game need not be solved (default: 200000)",
    )
    add(
        "--threads",
        type=int,
        default=1,
        help="threads of torch; another core plays (default: %(default)s)",
    )
    add(
        "--plot",
        type=Path,
        default=Path("dqn_pong.png"),
        help="PNG file of the learning curves (default: %(default)s)",
    )
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    rules = {"points": options.points, "skill": options.skill}
    game = Game(one_pong, many_pongs, small_network, 2, rules)
    if options.env == "ALE/Pong-v5":
        game = Game(one_atari, many_ataris, nature_network, 255)
        options.frames, options.target = options.frames or 2_000, np.inf
    frames = options.frames or MAX_FRAMES

    runs: dict[str, list[Run]] = {name: [] for name in options.variant}
    text, bar = TextColumn("{task.description}"), BarColumn()
    with Progress(
        text, bar, TimeElapsedColumn(), console=Console(stderr=True), auto_refresh=False
    ) as progress:
        for name, seed in ((name, seed) for seed in options.seeds for name in options.variant):
            task = progress.add_task(name, total=frames)

            def tell(run: Run, title: str = f"{name}, seed {seed}", task: Any = task) -> None:
                text = f"{title}: {run.frames:,} frames, {run.fps:,.0f}/s, score {run.score:+.1f}"
                progress.update(task, completed=run.frames, description=text, refresh=True)

            run = agym.run(train(game, LADDER[name], seed, frames, options.target, tell))
            tell(run)
            progress.stop_task(task)
            runs[name].append(run)

    title = f"DQN on {options.env}, seeds {' '.join(map(str, options.seeds))}"
    Console().print(show(runs, title))
    if all(run.curve for some in runs.values() for run in some):
        save_curves(runs, title, options.plot)
    unsolved = [name for name, some in runs.items() if any(run.solved is None for run in some)]
    if unsolved and not options.frames:
        sys.exit(f"not solved in {frames:,} frames: {', '.join(unsolved)}")


if __name__ == "__main__":
    main()
