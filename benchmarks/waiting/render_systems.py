"""Systems of ``python -m benchmarks render``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import EnvSpec

from agym.watching.live.page import watch
from agym.watching.trace import trace
from benchmarks.measuring.workloads import Workload
from benchmarks.systems.base import Contest, System
from benchmarks.systems.baseline import BareAtOnce, BareLoop
from benchmarks.systems.runners import Agym, AgymProcess, AgymProcessAsync, GymnasiumAsync

# One round in RENDERED is rendered during the steps.
RENDERED = 20

# Pictures per second of the live page, and seconds for its viewer to notice its end.
PICTURES, VIEWER_SECONDS = 10, 20


class DrawingLoop(BareLoop):
    """Steps and renders each environment in turn, and keeps the pictures."""

    name = "plain loop"
    _frames: Any = None

    def make(self, work: Workload, workers: int) -> Any:
        self._over = [False] * work.num_envs
        self._single = [work.factory() for _ in range(work.num_envs)]
        return self

    def reset(self) -> None:
        for env in self._single:
            env.reset(seed=0)

    def step(self, actions: Any) -> None:
        frames, over = [], self._over
        for i, (env, action) in enumerate(zip(self._single, actions, strict=True)):
            if over[i]:
                env.reset()
                over[i] = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                over[i] = terminated or truncated
            frames.append(env.render())
        self._frames = frames

    def close(self) -> None:
        for env in self._single:
            env.close()


class DrawingAtOnce(BareAtOnce):
    """The same loop in every worker at the same time: the bound of the machine."""

    name = "plain loop at once"
    loop = DrawingLoop


class OnlyDrawingLoop(DrawingLoop):
    """Renders environments without stepping them."""

    name = "rendering in a plain loop"

    def step(self, actions: Any) -> None:
        self._frames = [env.render() for env in self._single]


class OnlyDrawingAtOnce(BareAtOnce):
    """The same loop in every worker, all at the same time."""

    name = "rendering in plain loops at once"
    loop = OnlyDrawingLoop


class DrawingAgym(AgymProcess):
    """Steps all environments, then renders each; keeps the latest pictures, like a caller."""

    _frames: Any = None

    def step(self, actions: Any) -> None:
        self._envs.step(actions)
        self._frames = self._envs.render()


class DrawingAsync(GymnasiumAsync):
    """The same with a process per environment; pictures are pickled."""

    name = 'Gymnasium Async, call("render")'
    _frames: Any = None

    def step(self, actions: Any) -> None:
        self._envs.step(actions)
        self._frames = self._envs.call("render")


class StillAgym(Agym):
    """Finished pictures from one worker: their copy and their transport."""

    name = "from one worker"
    backend = "process"
    _frames: Any = None

    def count(self, workers: int) -> int | None:
        return 1

    def step(self, actions: Any) -> None:
        self._frames = self._envs.render()


class StillCopies(BareLoop):
    """The same pictures, copied once in the caller: the lower bound."""

    name = "copied once in the caller"
    _frames: Any = None

    def step(self, actions: Any) -> None:
        self._frames = [env.unwrapped.picture.copy() for env in self._envs._envs]


class Stepping(AgymProcessAsync):
    """Steps of all environments without rendering."""

    name = "steps alone"

    async def _run(self, seconds: float) -> float:
        rounds, elapsed = 0, 0.0
        started = time.perf_counter()
        while elapsed < seconds:
            await self.rounds()
            rounds += RENDERED
            elapsed = time.perf_counter() - started
        return rounds * self._num_envs / elapsed

    async def rounds(self) -> None:
        """Run as many rounds as belong to one rendered round."""
        for _ in range(RENDERED):
            await self._envs.step(next(self._actions))


class SteppingAndDrawing(Stepping):
    """The same, with one round in twenty rendered; no step waits for it."""

    name = f"1 round in {RENDERED} rendered"
    _frames: Any = None

    async def rounds(self) -> None:
        pending = self._envs.render()
        await super().rounds()
        self._frames = await pending


class Untraced(AgymProcess):
    """Steps of all environments."""

    name = "no timeline"


class Traced(AgymProcess):
    """The same while a timeline is recorded; the file is written outside of the timed part."""

    name = "agym.trace"

    def run(self, seconds: float) -> float:
        with tempfile.TemporaryDirectory() as folder, trace(self._envs, Path(folder) / "run.json"):
            return super().run(seconds)


class Unwatched(AgymProcess):
    """Steps of all environments, and no page."""

    name = "no page"


class Watchable(AgymProcess):
    """The same with a page that no browser has open."""

    name = "a page, no viewer"
    extra = "watch", "starlette"
    _page: Any = None

    def make(self, work: Workload, workers: int) -> Any:
        envs = super().make(work, workers)
        self._page = watch(envs, fps=PICTURES)
        return envs


class Watched(Watchable):
    """The same with a viewer in a separate process."""

    name = "a page, with a viewer"
    _viewer: Any = None

    def make(self, work: Workload, workers: int) -> Any:
        envs = super().make(work, workers)
        self._viewer = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.waiting.render_viewer", self._page.url]
        )
        return envs

    def close(self) -> None:
        super().close()
        self._viewer.wait(VIEWER_SECONDS)


@dataclass(frozen=True)
class RenderWorkload(Contest):
    """Environments and what is measured with them.

    Attributes:
        about: Prefix of the name.
        compared: The systems.
        render_mode: ``None`` where the environment has its own.
    """

    about: str = ""
    compared: tuple[type[System], ...] = ()
    render_mode: str | None = "rgb_array"

    @property
    def name(self) -> str:
        return f"{self.about} {super().name}"

    @property
    def spec(self) -> EnvSpec:
        spec = deepcopy(super().spec)
        if self.render_mode is not None:
            spec.kwargs["render_mode"] = self.render_mode
        return spec

    @property
    def systems(self) -> Sequence[type[System]]:
        return self.compared


DRAWING = "step and render"
WALL = RenderWorkload("CartPole-v1", 200, DRAWING, (DrawingLoop, DrawingAtOnce, DrawingAgym))
FEW = RenderWorkload("CartPole-v1", 16, DRAWING, (DrawingAsync, DrawingAgym))
STILL = RenderWorkload("Still-v0", 16, "finished pictures of", (StillCopies, StillAgym), None)
BESIDE = RenderWorkload(
    "CartPole-v1", 64, "render beside", (Stepping, OnlyDrawingAtOnce, SteppingAndDrawing)
)
TRACED = RenderWorkload("CartPole-v1", 64, "timeline of", (Untraced, Traced), None)
WATCHED = RenderWorkload("CartPole-v1", 16, "live page of", (Unwatched, Watchable, Watched))
RENDER_WORKLOADS = WALL, FEW, STILL, BESIDE, TRACED, WATCHED
