"""Go-Explore on Montezuma's Revenge: return to a known state, then explore from there.

python examples/longer/branching/go_explore.py --picture go_explore.png

Random play earns nothing in this game: the key is about a hundred right actions away. Go-Explore
keeps an archive with a snapshot per cell: a position in a room, and the player's items. Each
environment restores a cell that was rarely chosen, and acts at random from there. When it reaches a
new cell, or a known cell in a better way, it adds a snapshot to the archive.

Go-Explore: https://arxiv.org/abs/1901.10995 and https://arxiv.org/abs/2004.12919
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from matplotlib.figure import Figure
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import agym

try:
    import ale_py
except ImportError:
    sys.exit("ale_py is missing: install it with `pip install -e '.[atari]'`")

gymnasium.register_envs(ale_py)

GAME = "ALE/MontezumaRevenge-v5"
# Where the console keeps things in its memory, which is the observation.
MOTION, ROOM, X, Y, LIVES, CARRIED = 2, 3, 42, 43, 58, 65
STILL, FALLING = 6, 7  # values of MOTION; still are the dead, and who has just picked up something
FIRST_ROOM = 1

Key = tuple[int, int, int, int]  # room, column, row, what the player carries


@dataclass(slots=True)
class Place:
    """The player's state after a step, and the step before."""

    room: int
    x: int
    y: int
    score: float
    before: Place | None = None


@dataclass
class Cell:
    """The best known way to a cell."""

    snapshot: agym.Snapshot | None  # random play needs none
    place: Place | None  # random play keeps none
    score: float
    length: int  # steps since the reset
    found_at: int  # steps of all environments before the cell was found
    chosen: int = 0  # how often it was restored since its score was last improved


@dataclass
class Archive:
    """The cells that were reached, with the history of the search."""

    cells: dict[Key, Cell] = field(default_factory=dict)
    best: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    taken: int = 0
    restored: int = 0
    curve: list[tuple[int, int, float]] = field(default_factory=list)  # steps, cells, best score

    @property
    def rooms(self) -> int:
        return len({room for room, *_ in self.cells})

    def better(self, key: Key, score: float, length: int) -> bool:
        """Whether the archive lacks this cell, or has a worse or longer way to it."""
        known = self.cells.get(key)
        return known is None or (score, -length) > (known.score, -known.length)

    def keep(self, key: Key, cell: Cell) -> None:
        known = self.cells.get(key)
        if known is not None:
            cell.found_at = known.found_at
            cell.chosen = known.chosen if cell.score == known.score else 0
        self.cells[key] = cell

    def choose(self, count: int, rng: np.random.Generator) -> list[Cell]:
        """Return cells to explore from; cells that were rarely chosen are more likely."""
        cells = list(self.cells.values())
        weights = np.array([1 / np.sqrt(1 + cell.chosen) for cell in cells])
        picked = [cells[i] for i in rng.choice(len(cells), count, p=weights / weights.sum())]
        for cell in picked:
            cell.chosen += 1
        return picked

    @property
    def summary(self) -> str:
        rooms = f"{self.rooms} room" + "s" * (self.rooms != 1)
        return f"{len(self.cells)} cells in {rooms}, best score {self.best:.0f}"


def play(
    envs: agym.Envs[Any, Any],
    archive: Archive,
    options: argparse.Namespace,
    progress: Progress,
    bar: Any,
    *,
    returning: bool,
) -> None:
    """Act at random, starting from the archive's cells, or from resets in random play."""
    rng, count, started = np.random.default_rng(options.seed), len(envs), time.perf_counter()
    memory, _ = envs.reset(seed=options.seed)
    first_lives = memory[:, LIVES]
    scores, lengths = np.zeros(count), np.zeros(count, int)
    left = np.full(count, options.explore)  # steps of each until its next restore
    actions = np.zeros(count, int)
    over = np.zeros(count, bool)
    places: list[Place | None] = [None] * count

    while True:
        if returning:
            now = memory[:, (ROOM, X, Y)].tolist()
            places = [Place(*now[i], scores[i], places[i]) for i in range(count)]

        # Find the environments that reached a new or better cell, and are not falling or dying.
        lost = over | (memory[:, LIVES] != first_lives) if returning else over
        finders: dict[Key, int] = {}
        able = ~lost & ~np.isin(memory[:, MOTION], (STILL, FALLING))
        for i in np.flatnonzero(able):
            room, x, y, carried = (int(memory[i, address]) for address in (ROOM, X, Y, CARRIED))
            key = room, x // options.cell, y // options.cell, carried
            if archive.better(key, scores[i], lengths[i]):
                first = finders.setdefault(key, i)
                if (scores[i], -lengths[i]) > (scores[first], -lengths[first]):
                    finders[key] = i
        found = sorted((int(i), key) for key, i in finders.items())
        ids = [i for i, _ in found]
        snapshots = envs.snapshot(ids) if returning else [None] * len(ids)
        for (i, key), snapshot in zip(found, snapshots, strict=True):
            if key not in archive.cells:
                left[i] = options.explore
            cell = Cell(snapshot, places[i], scores[i], int(lengths[i]), archive.steps)
            archive.keep(key, cell)
        archive.taken += len(ids) if returning else 0
        archive.best = max(archive.best, float(scores.max()))
        archive.seconds = time.perf_counter() - started
        done = archive.steps >= options.steps
        if done or archive.steps % (20 * count) == 0:
            archive.curve.append((archive.steps, len(archive.cells), archive.best))
            progress.update(bar, completed=archive.steps, found=archive.summary)
        if done:
            return

        # Restore all environments whose exploration has ended, in one call.
        ended = np.flatnonzero(lost | (left <= 0) if returning else over)
        if returning and len(ended):
            chosen = archive.choose(len(ended), rng)
            envs.restore([cell.snapshot for cell in chosen], ended)
            archive.restored += len(ended)
            for i, cell in zip(ended, chosen, strict=True):
                scores[i], lengths[i], places[i] = cell.score, cell.length, cell.place
            left[ended] = options.explore
        elif len(ended):
            envs.reset(env_ids=ended)
            scores[ended] = lengths[ended] = 0

        other = rng.random(count) < 1 / options.repeat
        other[ended] = True
        actions = np.where(other, rng.integers(0, envs.action_space.nvec), actions)
        memory, rewards, terminated, truncated, _ = envs.step(actions)
        over = terminated | truncated
        scores += rewards
        lengths += 1
        left -= 1
        archive.steps += count


def draw(path: Path, frame: np.ndarray, size: int, runs: dict[str, Archive]) -> None:
    """Draw the cells of the first room by the time when they were reached, and the runs."""
    ours = next(iter(runs.values()))
    figure = Figure(figsize=(10, 4.7), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.1, 1))
    room = left.subplots()
    room.imshow(frame, extent=(0, 160, 210, 0), aspect=0.8, interpolation="nearest")
    found: dict[tuple[int, int], int] = {}
    for (number, column, row, _), cell in ours.cells.items():
        if number == FIRST_ROOM:
            found[column, row] = min(cell.found_at, found.get((column, row), cell.found_at))
    # The player's middle on the screen is at (x + 3, 318 - y) of the console's x and y.
    xs = [(column + 0.5) * size + 3 for column, _ in found]
    ys = [318 - (row + 0.5) * size for _, row in found]
    when = np.array(list(found.values())) / 1000
    dots = room.scatter(xs, ys, c=np.log1p(when), s=24, cmap="cool", alpha=0.9, linewidths=0)
    ticks = np.linspace(0, np.log1p(when.max()), 5)
    colours = left.colorbar(dots, ax=room, location="bottom", shrink=0.8, ticks=ticks, pad=0.01)
    colours.set_ticklabels([f"{np.expm1(tick):.0f}" for tick in ticks])
    colours.set_label("first reached after so many thousand steps")
    last = max(ours.cells.values(), key=lambda cell: (cell.score, -cell.length))
    way: list[Place] = []
    place = last.place
    while place is not None:
        way.insert(0, place)
        place = place.before
    inside = [place for place in way if place.room == FIRST_ROOM]
    line = ([place.x + 3 for place in inside], [318 - place.y for place in inside])
    room.plot(*line, color="white", linewidth=1.5)
    for before, after in pairwise(way):
        if after.score > before.score and after.room == FIRST_ROOM:
            spot = after.x + 3, 318 - after.y
            room.plot(*spot, "*", color="#ffe14d", markersize=15, markeredgecolor="black")
            gain = f"+{after.score - before.score:.0f}"
            box = {"facecolor": "black", "edgecolor": "none", "pad": 1.5}
            room.text(spot[0] + 5, spot[1] - 3, gain, color="white", bbox=box, zorder=5)
    room.set(xlim=(0, 160), ylim=(190, 46), xticks=[], yticks=[])
    left.suptitle("The first room, and the way to the best score", fontsize="large")

    cells, score = right.subplots(2, sharex=True)
    for (name, run), colour in zip(runs.items(), ("#0b7a75", "#8b8f99"), strict=False):
        if not run.curve:  # stopped before
            continue
        steps, counts, scores = np.array(run.curve).T
        cells.plot(steps / 1000, counts, color=colour, label=name)
        score.step(steps / 1000, scores, color=colour, label=name, where="post")
    cells.set(title="Cells", ylim=0)
    cells.legend(frameon=False)
    score.set(title="Best score", xlabel="thousand steps", ylim=(-0.05 * max(100, ours.best), None))
    for axes in (cells, score):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def flag(name: str, default: Any, text: str, **more: Any) -> None:
        kind = type(default) if default is not None else Path
        parser.add_argument(name, type=kind, default=default, help=text, **more)

    default = "(default: %(default)s)"
    flag("--num-envs", 32, f"number of environments {default}")
    backends = ("serial", "thread", "process")
    flag("--backend", "process", f"where environments run {default}", choices=backends)
    flag("--workers", os.cpu_count() or 1, "workers of the backend (default: one for each core)")
    flag("--steps", 400_000, f"steps of all environments together, for each of the ways {default}")
    flag("--explore", 100, f"steps after a restored or a new cell until the next restore {default}")
    flag("--repeat", 10.0, f"steps that a random action is repeated, on average {default}")
    flag("--cell", 8, f"width and height of a cell in pixels {default}")
    flag("--seed", 0, f"seed of the environments and of all random choices {default}")
    flag("--picture", None, "PNG file to draw the result into (default: none)")
    parser.add_argument("--skip-random", action="store_true", help="leave out the random play")
    options = parser.parse_args()
    for name in ("num_envs", "workers", "steps", "explore", "repeat", "cell"):
        if not getattr(options, name) >= 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    path: Path | None = options.picture
    if path is not None:
        if path.suffix != ".png":
            parser.error(f"--picture {path} must be a file that ends with .png")
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            parser.error(f"--picture {path} cannot be written")

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[found]}"))
    runs: dict[str, Archive] = {}
    frame = None
    with agym.make(
        GAME,
        options.num_envs,
        backend=options.backend,
        workers=options.workers if options.backend != "serial" else None,
        output="array",
        infos="none",
        obs_type="ram",
        frameskip=4,
        repeat_action_probability=0.0,
        render_mode="rgb_array",
    ) as envs:
        try:
            with Progress(*columns, TimeElapsedColumn()) as progress:
                for name in ["Go-Explore"] + ["Random play"] * (not options.skip_random):
                    bar = progress.add_task(name, total=options.steps, found="")
                    runs[name] = archive = Archive()
                    play(envs, archive, options, progress, bar, returning=name == "Go-Explore")
        except KeyboardInterrupt:
            print("stopped; results so far:")
        if path is not None:
            envs.reset(seed=options.seed)
            envs.step(np.zeros(len(envs), int))  # the emulator draws the screen in a step
            frame = envs.render([0])[0]
    for name, archive in runs.items():
        spent = f"{archive.steps:,} steps and {archive.seconds:.0f} s"
        print(f"{name}: {archive.summary}, in {spent}.")
    ours = runs.setdefault("Go-Explore", Archive())
    print(f"{ours.taken:,} snapshots were taken, and {ours.restored:,} restored.")
    if path is not None and frame is not None and ours.curve:
        draw(path, frame, options.cell, runs)
        print(f"The picture is {path}.")


if __name__ == "__main__":
    try:
        main()
    except (agym.AgymError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped")
