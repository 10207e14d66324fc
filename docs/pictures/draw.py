"""Draw the pictures of the README and the site, each from a real run.

python docs/pictures/draw.py --help
python docs/pictures/draw.py healed

Needs ``pip install -e '.[ci]'``; ``page`` also needs Chromium and its driver.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from matplotlib.figure import Figure
from rich.progress import track

import agym
from agym.watching.trace_report import Span, draw, read_spans

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"
RANDOM = np.random.default_rng(0)
INK, ACCENT, WARM, QUIET = "#1f2430", "#0b7a75", "#c8321f", "#b9bdc6"

WHITE, STANDING, FALLEN = np.array([[255, 255, 255], [150, 215, 170], [245, 150, 135]])

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def save(figure: Figure, name: str) -> None:
    """Save a picture beside this file."""
    path = FOLDER / name
    figure.savefig(path, dpi=110)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


@app.command()
def learning(
    stages: Annotated[int, typer.Option(help="How often the wall is shown.")] = 6,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 1,
) -> None:
    """Sixty-four CartPoles while PPO learns, from failing to solved: an animation."""
    from PIL import Image, ImageDraw, ImageFont  # an extra

    sys.path.insert(0, str(EXAMPLES))
    import ppo
    import torch

    args = ppo.Args(num_envs=64, num_steps=32, learning_rate=1e-3, num_minibatches=8, seed=seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    shots: list[Any] = []

    def show(frames: list[Any], ages: Any, steps: int, mean: float) -> None:
        # The longer a pole stands, the greener; red where it has just fallen.
        tints = [
            FALLEN if age < 4 else WHITE + (STANDING - WHITE) * min(1, age / 300) for age in ages
        ]
        tinted = [
            (f * (tint / 255)).astype(np.uint8) for f, tint in zip(frames, tints, strict=True)
        ]
        wall = Image.fromarray(agym.mosaic(tinted, 8, size=(616, 416)))
        shot = Image.new("RGB", (wall.width, wall.height + 28), "#1f2430")
        shot.paste(wall, (0, 0))
        result = f"mean return {mean:.0f} of 500" if mean else ""
        text = f"{steps:,} steps of training      {result}"
        ImageDraw.Draw(shot).text((8, wall.height + 5), text, "#ffffff", ImageFont.load_default(15))
        shots.append(shot.quantize(64))

    async def train() -> None:
        async with agym.make_async(
            "CartPole-v1", 64, autoreset="same_step", infos="episode", render_mode="rgb_array"
        ) as envs:
            agent = ppo.Agent(4, 2)
            optimizer = torch.optim.Adam(agent.parameters(), args.learning_rate, eps=1e-5)
            rollouts = ppo.Rollouts(args.num_steps, 64, (4,))
            group = ppo.Group(envs)
            obs, _ = await envs.reset(seed=seed)
            group.obs = torch.as_tensor(obs)
            returns: list[float] = []
            ages = np.full(64, 4)  # nothing has fallen yet
            shown_at = {round(200 * (k / (stages - 1)) ** 2) for k in range(stages)}
            for iteration in track(range(201), "learning"):
                for t in range(args.num_steps):
                    group.act(agent, rollouts, t)
                    ended = await group.finish(agent, rollouts, t, args.gamma)
                    returns += [float(episode["r"]) for episode in ended]
                    ages = np.where(rollouts.ends[t], 0, ages + 1)
                    if iteration in shown_at and t % 2 == 0:
                        mean = sum(returns[-100:]) / max(1, len(returns[-100:]))
                        show(await envs.render(), ages, 2048 * iteration, mean)
                with torch.no_grad():
                    next_value = agent.value(group.obs)
                advantages = ppo.advantages_of(rollouts, next_value, args)
                optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - iteration / 201)
                ppo.update(agent, optimizer, rollouts, advantages, args)

    agym.run(train())
    path = FOLDER / "learning.gif"
    shots[0].save(path, save_all=True, append_images=shots[1:], duration=90, loop=0, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


@app.command()
def games(seed: Annotated[int, typer.Option(help="Seed of the games.")] = 1) -> None:
    """Thirty-two games of Breakout after 200 random steps: one rule book, compiled."""
    from PIL import Image  # an extra

    envs = agym.vectorize("agym.envs.games.breakout:Breakout", 32, render_mode="rgb_array")
    envs.action_space.seed(seed)
    envs.reset(seed=seed)
    for _ in range(200):
        envs.step(envs.action_space.sample())
    frames = envs.render()
    path = FOLDER / "games.png"
    Image.fromarray(agym.mosaic(frames, 8, size=(1216, 640))).quantize(16).save(path)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


@app.command()
def healed() -> None:
    """A worker is killed in the middle of a run, and replaced."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        started = time.perf_counter()
        with agym.make(
            "Acrobot-v1", 32, backend="process", workers=2, autoreset="next_step",
            on_fault="restart", output="array",
        ) as envs:  # fmt: skip
            envs.reset(seed=0)
            with agym.trace(envs, path):
                started = time.perf_counter()
                killed = 0.0
                envs.send(envs.action_space.sample())
                back = 0.0  # when the replacement had stepped
                while not back or time.perf_counter() < started + back + 0.4:
                    batch = envs.recv(min_envs=16)
                    envs.send([1] * len(batch.env_ids), batch.env_ids)
                    now = time.perf_counter() - started
                    healed = 31 in batch.env_ids and "fault" not in batch.infos[-1]
                    if killed and not back and healed and now > killed + 0.1:
                        back = now
                    if not killed and now > 0.4:
                        killed = now
                        os.kill(int(envs.stats().workers[1].pid or 0), signal.SIGKILL)
                envs.recv(min_envs=32)
        spans = [span for span in read_spans(path) if span.group == "environments"]
    lanes = sorted({span.lane for span in spans}, key=lambda lane: int(lane.split()[-1]))
    figure = Figure(figsize=(9, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title("A worker is killed. The other goes on, and a replacement joins.", fontsize=10)
    for row, lane in enumerate(lanes):
        bars = [(span.started, span.stopped - span.started) for span in spans if span.lane == lane]
        axes.broken_barh(bars, (row - 0.35, 0.7), facecolors=ACCENT)
    back = min(
        span.started for span in spans if span.lane == lanes[1] and span.started > killed + 0.01
    )
    axes.axvline(killed, color=WARM)
    axes.annotate(" SIGKILL", (killed, -0.62), color=WARM, va="center")
    axes.axvspan(killed, back, 0.05, 0.48, color="#f6d9d4")
    axes.annotate(
        f"the replacement starts:\n{1e3 * (back - killed):.0f} ms", ((killed + back) / 2, 1),
        ha="center", va="center", fontsize=9,
    )  # fmt: skip
    axes.set_yticks(range(len(lanes)), [f"worker {k}" for k in range(len(lanes))])
    axes.set_ylim(len(lanes) - 0.5, -0.85)
    axes.set_xlabel("time in seconds; each bar is a step of sixteen environments")
    axes.spines[["top", "right", "left"]].set_visible(False)
    save(figure, "healed.png")


@app.command()
def timeline() -> None:
    """A backward pass that overlaps with the workers' steps, as agym.trace sees it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        with agym.make("Acrobot-v1", 128, backend="process", workers=2,
                       autoreset="next_step", output="array") as envs:  # fmt: skip
            envs.reset(seed=0)
            with agym.trace(envs, path):
                for _ in range(30):
                    envs.send(envs.action_space.sample())
                    with agym.mark("backward"):
                        sum(i * i for i in range(80_000))
                    envs.recv(min_envs=128)
        spans = read_spans(path)
    end = max(span.stopped for span in spans)
    some = [
        Span(span.group, span.lane, span.name, span.started - end * 0.6, span.stopped - end * 0.6)
        for span in spans
        if end * 0.6 <= span.started and span.stopped <= end * 0.6 + 0.03
    ]
    draw(some, FOLDER / "timeline.png")
    print(FOLDER / "timeline.png")


class Sleeper(gymnasium.Env[Any, Any]):
    """An environment that waits in each step, and notes when."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(1)

    def __init__(self, number: int, seconds: float, log: list[tuple[int, float, float]]) -> None:
        self.number, self.seconds, self.log = number, seconds, log

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        started = time.perf_counter()
        time.sleep(self.seconds)
        self.log.append((self.number, started, time.perf_counter()))
        return 0, 0.0, False, False, {}


@app.command()
def stragglers() -> None:
    """Steps of eight environments, one of them slow: with a barrier, and first-k."""

    def log_of(play: Callable[[agym.Envs, float], None]) -> list[tuple[int, float, float]]:
        log: list[tuple[int, float, float]] = []
        slow = [0.01] * 7 + [0.08]
        with agym.make([partial(Sleeper, k, s, log) for k, s in enumerate(slow)],
                       backend="thread") as envs:  # fmt: skip
            envs.reset()
            started = time.perf_counter()
            play(envs, started + 0.5)
        return [(k, a - started, b - started) for k, a, b in log if b - started < 0.5]

    def barrier(envs: agym.Envs, end: float) -> None:
        while time.perf_counter() < end:
            envs.step([0] * 8)

    def first_k(envs: agym.Envs, end: float) -> None:
        envs.send([0] * 8)
        while time.perf_counter() < end:
            ids = envs.recv(min_envs=4).env_ids
            envs.send([0] * len(ids), ids)

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    titles = {"envs.step(actions): all wait for the slowest": barrier,
              "envs.recv(min_envs=4): whichever four are ready": first_k}  # fmt: skip
    for axes, (title, play) in zip(figure.subplots(2, sharex=True), titles.items(), strict=True):
        log = log_of(play)
        for k, started, ended in log:
            axes.broken_barh(
                [(started, ended - started)], (k - 0.4, 0.8), edgecolor="white",
                facecolors=WARM if k == 7 else ACCENT,
            )  # fmt: skip
        axes.set_title(f"{title}: {len(log)} steps", loc="left", fontsize=10)
        axes.set_ylabel("environment")
        axes.set_yticks(range(8), [*map(str, range(7)), "slow  7"], fontsize=8)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("seconds")
    save(figure, "stragglers.png")


def _one_step(make: Callable[[], Any], reset: Callable[[Any], Any]) -> float:
    """Seconds until environments have been made and reset."""
    started = time.perf_counter()
    envs = make()
    reset(envs)
    seconds = time.perf_counter() - started
    envs.close()
    return seconds


@app.command()
def startup(
    most: Annotated[int, typer.Option(help="Largest number of environments of the others.")] = 32,
    repeats: Annotated[int, typer.Option(help="Runs of each, of which the median counts.")] = 3,
) -> None:
    """Seconds until environments are ready, by their number."""
    from stable_baselines3.common.vec_env import SubprocVecEnv  # an extra

    def cartpole() -> Any:
        return gymnasium.make("CartPole-v1")

    runners: dict[str, Callable[[int], Any]] = {
        "SB3 SubprocVecEnv": lambda n: SubprocVecEnv([cartpole] * n),
        "Gymnasium AsyncVectorEnv": lambda n: gymnasium.vector.AsyncVectorEnv([cartpole] * n),
        "agym, processes": lambda n: agym.make([cartpole] * n, backend="process"),
        "agym, serial": lambda n: agym.make([cartpole] * n, backend="serial"),
    }
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for (name, make), colour in zip(
        runners.items(), (QUIET, "#7d8597", ACCENT, "#7cc4bf"), strict=True
    ):
        counts = sorted({1, 4, 16, most, *((256, 1024) if name.startswith("agym") else ())})
        seconds = []
        for n in track(counts, name):
            runs = [_one_step(partial(make, n), lambda envs: envs.reset()) for _ in range(repeats)]
            seconds.append(median(runs))
        axes.plot(counts, seconds, marker="o", color=colour, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({1, 4, 16, most, 256, 1024})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel("number of CartPoles")
    axes.set_ylabel("seconds from start to the first observation")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, "startup.png")


@app.command()
def speed(
    files: Annotated[
        list[Path], typer.Argument(help="What python -m benchmarks grid --json wrote.")
    ],
    num_envs: Annotated[int, typer.Option(help="Number of environments.")] = 64,
) -> None:
    """Speed of five runners, as a share of what the cores give without any."""
    import json

    systems = {"Gymnasium Sync": QUIET, "Gymnasium Async": "#8d94a3", "SB3 Dummy": "#d8c7a8",
               "SB3 Subproc": "#b59f73", "agym auto": ACCENT}  # fmt: skip
    works = {}
    for each in (work for file in files for work in json.loads(file.read_text())["workloads"]):
        name, _, count = each["work"].partition(" ×")
        rates = {row["system"]: median(row["rates"]) for row in each["rows"] if row["rates"]}
        if count == str(num_envs) and {*systems, "bare at once"} <= rates.keys():
            if name in ("Informing-v0", "Waiting1ms-v0"):
                continue  # the benchmark's own
            works[name.partition("/")[2] or name] = {
                system: rates[system] / rates["bare at once"] for system in systems
            }
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    for k, (system, colour) in enumerate(systems.items()):
        places = [row + (k - 2) * 0.16 for row in range(len(works))]
        shares = [work[system] for work in works.values()]
        axes.bar(places, shares, 0.15, color=colour, label=system.replace("agym auto", "agym"))
    axes.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    names = [name.partition("-")[0] for name in works]
    axes.set_xticks(range(len(works)), names, rotation=20, ha="right", fontsize=8)
    axes.set_xlabel(f"{num_envs} environments of each kind")
    axes.set_ylabel("steps per second, as a share of\nloops without a runner on all cores")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.13), fontsize=9)
    save(figure, "speed.png")


@app.command()
def twins() -> None:
    """Twins next to EnvPool and SyncVectorEnv: a chart of the README's table, for the home page."""
    table = (FOLDER.parents[1] / "README.md").read_text().partition("`agym.make_vec` |\n")[2]
    rows: list[tuple[str, list[str]]] = []
    for line in table.partition("\n\n")[0].splitlines()[1:]:
        names, *columns = (
            cell.replace("*", "").split(" · ") for cell in line.strip("| ").split("|")
        )
        for k, name in enumerate(names):  # "× 1024" continues "CartPole × 64"
            kind, _, count = name.strip().rpartition("×")
            kind = kind.strip() or rows[-1][0].partition(" ")[0]
            rows.append((f"{kind} × {count.strip()}", [column[k].strip() for column in columns]))
    parts = []
    y = 44
    for name, (sync, _, envpool, agym_rate) in rows:
        parts.append(_text(136, y + 22, name, "end"))
        for rate, colour in ((sync, "quiet"), (envpool, "mid"), (agym_rate, "accent")):
            if rate == "–":
                parts.append(_text(146, y + 4, "not in EnvPool", colour="muted", size=11))
            else:
                value = 1000 * float(rate.replace(",", ""))
                width = 272 * np.log10(value / 1000) / np.log10(12_500)
                parts.append(_bar(146, y - 6, width, colour))
                parts.append(_text(152 + width, y + 4, _short(value), bold=colour == "accent"))
            y += 15
        y += 15
    x = 146
    for label, colour in (("SyncVectorEnv", "quiet"), ("EnvPool", "mid"), ("agym", "accent")):
        parts += [_bar(x, 8, 12, colour), _text(x + 18, 18, label)]
        x += 36 + 8 * len(label)
    parts.append(
        _text(146, y + 8, "steps per second, on a logarithmic scale", colour="muted", size=11)
    )
    label = "Steps per second of SyncVectorEnv, EnvPool and agym's twins, in six groups of bars."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 {y + 18}" role="img" '
        f'aria-label="{label}" class="chart" font-family="system-ui, sans-serif">'
    )
    # In the site, the page's theme sets the colours; alone, as in the README, the file does.
    dark = "--color-foreground-primary: #e8e9ec; --color-foreground-muted: #9297a3;"
    dark += " --color-brand-primary: #4fd1c5"
    style = f"<style>@media (prefers-color-scheme: dark) {{ svg:root {{ {dark} }} }}</style>"
    path = FOLDER / "twins.svg"
    path.write_text("\n  ".join([head, style, *parts]) + "\n</svg>\n")
    print(path)


@app.command()
def scaling(
    reports: Annotated[
        list[Path], typer.Argument(help="JSON of benchmarks, one per count of cores.")
    ],
    output: Annotated[Path, typer.Option("-o", help="PNG file.")] = FOLDER / "scaling.png",
) -> None:
    """Steps per second over the number of cores, from reports of the same benchmark."""
    rates: dict[str, dict[str, dict[int, float]]] = {}
    for path in reports:
        report = json.loads(path.read_text())
        for workload in report["workloads"]:
            for row in workload["rows"]:
                systems = rates.setdefault(workload["work"], {}).setdefault(row["system"], {})
                systems[int(report["machine"]["cores"])] = median(row["rates"])
    across = min(3, len(rates))
    down = -(-len(rates) // across)
    figure = Figure(figsize=(4.2 * across, 3.2 * down), layout="constrained")
    panels = [*figure.subplots(down, across, squeeze=False).flat]
    for panel, (work, systems) in zip(panels, rates.items(), strict=False):
        for system, points in systems.items():
            cores = sorted(points)
            panel.plot(cores, [points[each] for each in cores], "o-", label=system)
        panel.set(title=work, xlabel="cores", ylabel="steps per second", xscale="log", yscale="log")
        cores = sorted({each for points in systems.values() for each in points})
        panel.set_xticks(cores, [str(each) for each in cores], minor=False)
        panel.minorticks_off()
        panel.legend(fontsize=7)
    for panel in panels[len(rates) :]:
        panel.set_axis_off()
    figure.suptitle(f"{report['machine']['cpu']}, agym {report['machine']['agym-envs']}")
    figure.savefig(output, dpi=110)
    print(output)


# The colours are the site's, in light and in dark mode; the second ones are for a viewer of files.
COLOURS = {
    "ink": f"var(--color-foreground-primary, {INK})",
    "muted": "var(--color-foreground-muted, #6b6f76)",
    "quiet": f"var(--chart-quiet, {QUIET})",
    "mid": "var(--chart-mid, #7d8597)",
    "accent": f"var(--color-brand-primary, {ACCENT})",
}


def _bar(x: float, y: float, width: float, colour: str) -> str:
    style = f"fill: {COLOURS[colour]}"
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="12" rx="2" style="{style}"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, colour: str = "ink",
    size: int = 13, bold: bool = False,
) -> str:  # fmt: skip
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-size="{size}"{weight} '
        f'style="fill: {COLOURS[colour]}">{text}</text>'
    )


def _short(value: float) -> str:
    """Write 1,760,000 as "1.76 million"."""
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{value:,.0f}"


@app.command()
def curves(
    name: Annotated[str, typer.Argument(help="Name of the picture, such as ppo_cartpole.png.")],
    runs: Annotated[list[Path], typer.Argument(help="Folders that TensorBoard reads.")],
    title: Annotated[str, typer.Option(help="Title.")] = "",
) -> None:
    """Mean return of episodes against steps, one line per run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    for folder in runs:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        found = events.Scalars("charts/episodic_return")
        values = np.array([each.value for each in found])
        width = max(1, min(50, len(values) // 20))
        means = np.convolve(values, np.ones(width) / width, "valid")
        seed = folder.name.split("__")[2]  # as the examples name their runs
        axes.plot([each.step for each in found[width - 1 :]], means, label=f"seed {seed}", lw=1.2)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return of the last episodes")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if len(runs) > 1:
        axes.legend(frameon=False, fontsize=7)
    save(figure, name)


@app.command()
def page() -> None:
    """Screenshots of the live page: 64 and 16 environments, a phone, dark and light."""
    from selenium import webdriver

    shots = [("page_64", 64, (1440, 900), "dark"), ("page_16", 16, (1280, 800), "light"),
             ("page_phone", 16, (412, 915), "dark")]  # fmt: skip
    for name, count, (width, height), scheme in shots:
        words = [sys.executable, "-m", "agym", "watch", "CartPole-v1", "-n", str(count)]
        words += ["--policy", "draw:balance", "--speed", "60"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=FOLDER) as watch:
            assert watch.stdout is not None
            url = watch.stdout.readline().strip()
            options = webdriver.ChromeOptions()
            options.binary_location = str(shutil.which("chromium"))
            for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         f"--window-size={width},{height}", "--hide-scrollbars"):  # fmt: skip
                options.add_argument(flag)
            browser = webdriver.Chrome(
                options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
            )
            try:
                media = [{"name": "prefers-color-scheme", "value": scheme}]
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
                browser.execute_cdp_cmd(
                    "Emulation.setDeviceMetricsOverride",
                    {
                        "width": width,
                        "height": height,
                        "deviceScaleFactor": 1,
                        "mobile": width < 500,
                    },
                )
                browser.get(url)
                # The first episodes to end are the shortest, which looks like learning: wait until
                # they are no longer among the latest.
                while browser.execute_script("return latest?.episodes ?? 0") < 200 + 3 * count:
                    time.sleep(1)
                browser.save_screenshot(str(FOLDER / f"{name}.png"))
            finally:
                browser.quit()
                watch.send_signal(signal.SIGINT)
        print(FOLDER / f"{name}.png")


def balance(observations: Any) -> Any:
    """Push the cart under the pole; a share of the environments at random, so that episodes end."""
    actions = (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(int)
    clumsy = RANDOM.random(len(actions)) < np.linspace(0.05, 0.6, len(actions))
    return np.where(clumsy, RANDOM.integers(0, 2, len(actions)), actions)


if __name__ == "__main__":
    app()
