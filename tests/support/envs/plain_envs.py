"""Small environments that do one thing each, for tests; workers import them from here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
from gymnasium import spaces

Result = tuple[Any, float, bool, bool, dict[str, Any]]


class Tally(gym.Env[Any, Any]):
    """Observes (episode, step, action); an episode ends after ``length`` steps, or ``options`` say.

    Rewards tell episodes and steps apart, and infos tell what the reset was given.
    """

    def __init__(self, length: int = 3, gravity: float = 9.8) -> None:
        self.observation_space = spaces.Box(-1, 1000, (3,), np.float64)
        self.action_space = spaces.Discrete(10)
        self.metadata = {"render_modes": ["ansi"], "render_fps": 7}
        self.render_mode = "ansi"
        self.length = length
        self.gravity = gravity
        self.episode = self.now = 0
        self.state = np.arange(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if options:
            self.length = options.get("length", self.length)
        self.episode += 1
        self.now = 0
        info = {"seed": seed, "options": options, "draw": float(self.np_random.random())}
        return self._observe(-1), info

    def step(self, action: Any) -> Result:
        self.now += 1
        info = {"now": self.now, "action": int(action)}
        reward = self.episode + self.now / 16
        return self._observe(action), reward, self.now >= self.length, False, info

    def _observe(self, action: Any) -> Any:
        return np.array([self.episode, self.now, action], np.float64)

    def render(self) -> Any:
        return f"{self.episode}:{self.now}"

    def add(self, a: float, b: float = 0) -> float:
        return self.gravity + a + b


class Nested(gym.Env[Any, Any]):
    """Dict observations and actions; the seeded random stream is in everything."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "position": spaces.Box(-np.inf, np.inf, (3,), np.float32),
                "inner": spaces.Dict(
                    {"bits": spaces.MultiBinary(4), "level": spaces.Discrete(9, start=-4)}
                ),
                "pair": spaces.Tuple(
                    (spaces.MultiDiscrete([3, 4]), spaces.Box(0, 255, (), np.uint8))
                ),
            }
        )
        self.action_space = spaces.Dict(
            {"force": spaces.Box(-1, 1, (3,), np.float32), "gear": spaces.Discrete(3)}
        )
        self._position = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._position = self.np_random.normal(size=3).astype(np.float32)
        return self._observe(), {"start": self._position.copy(), "name": "reset"}

    def step(self, action: Any) -> Result:
        self._position += action["force"] * np.float32(1 + action["gear"])
        chance = self.np_random.random()
        info = {"chance": chance, "norm": np.linalg.norm(self._position), "nested": {"a": 1}}
        return self._observe(), float(chance), bool(chance < 0.05), bool(chance > 0.97), info

    def _observe(self) -> Any:
        random = self.np_random
        return {
            "position": self._position.copy(),
            "inner": {
                "bits": random.integers(0, 2, 4, np.int8),
                "level": random.integers(-4, 5),
            },
            "pair": (random.integers(0, 3, 2), np.array(random.integers(0, 256), np.uint8)),
        }


class Letters(spaces.Space[str]):
    """A space of one's own: strings of one letter repeated."""

    def __init__(self, letter: str) -> None:
        super().__init__(None, None)
        self.letter = letter

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return self.letter * int(self.np_random.integers(1, 9))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and set(x) <= {self.letter}

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Letters) and other.letter == self.letter

    def __hash__(self) -> int:
        return hash(self.letter)


class Echo(gym.Env[Any, Any]):
    """Observes exactly the given values, one after the other, and keeps the actions it is given.

    With ``ends`` every step ends the episode.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        observations: Sequence[Any],
        action_space: spaces.Space[Any] | None = None,
        ends: bool = False,
    ) -> None:
        self.observation_space = observation_space
        self.ends = ends
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self.received: list[Any] = []
        self._observations = list(observations)
        self._at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._at = 0
        return self._observations[0], {}

    def step(self, action: Any) -> Result:
        self.received.append(action)
        self._at = min(self._at + 1, len(self._observations) - 1)
        return self._observations[self._at], 0.0, self.ends, False, {}

    def what_was_received(self) -> list[Any]:
        return self.received


class Counted(Tally):
    """Writes a line with its process id to a file when constructed, and one when closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._log("made")

    def _log(self, what: str) -> None:
        with Path(self._path).open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def close(self) -> None:
        self._log("closed")


class Dice(gym.Env[Any, Any]):
    """Observes how many sides it has."""

    observation_space = spaces.Discrete(1000)
    action_space = spaces.Discrete(2)

    def __init__(self, sides: int = 77, render_mode: str | None = None) -> None:
        self.sides = sides

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.sides, {}

    def step(self, action: Any) -> Any:
        return self.sides, 0.0, False, False, {}


class Plus(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Adds a number to observations."""

    def __init__(self, env: Any, by: int) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, by=by)
        gym.ObservationWrapper.__init__(self, env)
        self.by = by

    def observation(self, observation: Any) -> Any:
        return observation + self.by


class Probe(Tally):
    """Tells about the process it lives in."""

    def pid(self) -> int:
        return os.getpid()

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def native_threads(self) -> int:
        """How many threads there are after work that would start a pool of them."""
        np.ones((600, 600)) @ np.ones((600, 600))
        return psutil.Process().num_threads()

    def maps(self) -> str:
        """What this process has mapped into its memory."""
        return Path("/proc/self/maps").read_text()

    def echo(self, value: Any) -> Any:
        return value
