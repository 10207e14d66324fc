"""Environments that paint: what they render says who they are and how often they stepped."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SHAPES = [(40, 60, 3), (50, 30, 3), (1, 2000, 3)]


class Painter(gym.Env[Any, Any]):
    """Paints into one and the same array each time, in various modes.

    Args:
        me: Shows in every picture.
        mode: ``rgb_array``, ``transposed``, ``flipped``, ``rgb_array_list``, ``depth_array``,
            ``rgbd_tuple``, ``both`` (a dict), ``ansi`` or ``growing``.
        shape: Of a picture.
        seconds: How long a picture takes.
    """

    observation_space = spaces.Box(0, 1000, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(
        self,
        me: int = 0,
        mode: str = "rgb_array",
        shape: tuple[int, ...] = SHAPES[0],
        seconds: float = 0.0,
    ) -> None:
        self.me, self.render_mode, self.shape, self.seconds = me, mode, shape, seconds
        height, width, colours = shape
        self.canvas = np.zeros(shape, np.uint8)
        self.column_major = np.zeros((width, height, colours), np.uint8)
        self.depth = np.zeros((height, width), np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.float32([0]), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.float32([self.steps]), 1.0, self.steps % 7 == 0, False, {}

    def picture(self) -> np.ndarray[Any, Any]:
        rows = np.arange(self.canvas.shape[0], dtype=np.uint8)[:, None]
        self.canvas[..., 0] = rows + self.steps
        self.canvas[..., 1] = np.arange(self.canvas.shape[1], dtype=np.uint8)
        self.canvas[..., 2] = self.me
        return self.canvas

    def render(self) -> Any:
        time.sleep(self.seconds)
        picture, mode = self.picture(), self.render_mode
        if mode == "transposed":
            self.column_major[:] = picture.transpose(1, 0, 2)
            return self.column_major.transpose(1, 0, 2)
        if mode == "flipped":
            return picture[::-1, ::-1]
        if mode == "growing":
            return np.repeat(picture, 1 + self.steps, axis=0)
        self.depth[:] = self.steps + self.me / 10
        return {
            "rgb_array": picture,
            "rgb_array_list": [picture, picture[: self.steps], picture[..., 0]],
            "depth_array": self.depth,
            "rgbd_tuple": (picture, self.depth),
            "both": {"picture": picture, "texts": ["a", self.steps]},
            "ansi": f"{self.me}: {self.steps}",
        }[str(mode)]
